"""Uniqueness of the fixed point of sum-product (Mooij and Kappen 2007, Corollary 3).

Where the spectral radius of a matrix between directed edges is below 1, sum-product has one fixed
point and converges to it from any messages, whatever the fields.
"""

import numpy as np

MAX_POWER_ITERATIONS = 200


def spectral_radius_bound(weights):
    """Upper bound of the spectral radius of an RBM."""
    strength = np.tanh(abs(weights.astype(np.float64)) / 4)
    if not strength.size:
        return 0.0

    def twice(x):
        """The square of the matrix on the edges that start at visible units."""
        back = strength * (x.sum(0) - x)
        return strength * (back.sum(1, keepdims=True) - back)

    return perron_bound(twice, np.ones_like(strength), MAX_POWER_ITERATIONS) ** 0.5


def perron_bound(product, x, max_iter):
    """Upper bound of the spectral radius of a matrix A without negative entries.

    By Collatz and Wielandt, max (A x)_i / x_i is an upper bound for every positive x, so that it
    holds after any number of power iterations. These make it close, slowly on trees (whose radius
    is 0).
    """
    bound = np.inf
    for _ in range(max_iter):
        new = product(x)
        last, bound = bound, min(bound, (new / x).max())
        if bound >= last * (1 - 1e-9):
            break
        # The added multiple of x keeps it positive, and damps oscillations.
        x = new.clip(min=0) + 0.1 * bound * x + 1e-300
        x = (x / x.max()).clip(min=1e-250)
    return float(bound)
