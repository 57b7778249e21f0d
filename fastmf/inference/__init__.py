"""Solvers: a model in; marginals, log-partition and a record of convergence out."""

from fastmf.inference.expectation_propagation import adaptive_tap, expectation_propagation
from fastmf.inference.fixed_point import FixedPoint
from fastmf.inference.tap import tap

__all__ = ["FixedPoint", "adaptive_tap", "expectation_propagation", "tap"]
