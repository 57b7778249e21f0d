"""Solvers: a model in; marginals, log-partition and a record of convergence out."""

from fastmf.inference.belief_propagation import Beliefs, belief_propagation
from fastmf.inference.fixed_point import FixedPoint
from fastmf.inference.tap import tap

__all__ = ["Beliefs", "FixedPoint", "belief_propagation", "tap"]
