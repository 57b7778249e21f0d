"""Solvers: a model in; marginals, log-partition and a record of convergence out."""

from fastmf.inference.fixed_point import FixedPoint
from fastmf.inference.relaxed_bp import relaxed_bp
from fastmf.inference.tap import tap

__all__ = ["FixedPoint", "relaxed_bp", "tap"]
