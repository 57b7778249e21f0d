"""Scores of estimates, and the simple estimators that a model must beat."""

from fastmf.evaluation.denoising import (
    flip,
    matthews_correlation,
    nearest_neighbour,
    pointwise_estimate,
)

__all__ = ["flip", "matthews_correlation", "nearest_neighbour", "pointwise_estimate"]
