"""Quantities that are zero with some probability, and else Gaussian."""

import numpy as np
from scipy.special import ndtri


def slab_moments(mean, variance, included):
    """Mean and variance where a quantity is not zero, from those with the mass at zero."""
    positive = np.maximum(included, 1e-300)
    slab_mean = mean / positive
    return slab_mean, np.maximum((variance + mean**2) / positive - slab_mean**2, 0.0)


def slab_interval(level, included, mean, variance):
    """Ends of equal-tailed intervals of this probability, of quantities with these moments."""
    moments = slab_moments(mean, variance, included)
    return [_quantile((1 + side * level) / 2, included, *moments) for side in (-1, 1)]


def _quantile(tail, included, mean, variance):
    """Quantiles of a mass at zero and a Gaussian."""
    deviation = np.sqrt(variance)
    with np.errstate(divide="ignore", invalid="ignore"):
        safe = np.where(included > 0, included, 1.0)
        below = mean + deviation * ndtri(np.clip(tail / safe, 0, 1))
        above = mean + deviation * ndtri(np.clip((tail - (1 - included)) / safe, 0, 1))
    return np.where(below < 0, below, np.where(above > 0, above, 0.0))
