"""Solvers: a model in; marginals, log-partition and a record of convergence out."""

from fastmf.inference.expectation_propagation import expectation_propagation
from fastmf.inference.fixed_point import FixedPoint
from fastmf.inference.tap import tap

__all__ = ["FixedPoint", "expectation_propagation", "tap"]
