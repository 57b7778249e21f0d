"""Solvers: a model in; marginals, log-partition and a record of convergence out."""

from fastmf.inference.belief_propagation import belief_propagation
from fastmf.inference.beliefs import Beliefs
from fastmf.inference.fixed_point import FixedPoint
from fastmf.inference.tap import tap

__all__ = ["Beliefs", "FixedPoint", "belief_propagation", "tap"]
