"""Solvers: a model in; marginals, log-partition and a record of convergence out."""

from fastmf.inference.adaptive_tap import adaptive_tap
from fastmf.inference.belief_propagation import belief_propagation
from fastmf.inference.beliefs import Beliefs
from fastmf.inference.expectation_propagation import expectation_propagation
from fastmf.inference.fixed_point import FixedPoint
from fastmf.inference.relaxed_bp import relaxed_bp
from fastmf.inference.tap import tap

__all__ = [
    "Beliefs",
    "FixedPoint",
    "adaptive_tap",
    "belief_propagation",
    "expectation_propagation",
    "relaxed_bp",
    "tap",
]
