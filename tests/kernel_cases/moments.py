"""Tilted moments, for the clock only: inside the package they are part of other kernels."""

import numpy as np

from fastmf._jit.intrinsics import fetch_and_increment
from fastmf._jit.kernel import kernel
from fastmf.priors._compiled import tilted_moments, units_of


@kernel(name=None)
def moments_of_rows(units, b, a, mean, var, queue):
    """Means and variances of rows of tilted units, computed as `tap` computes them."""
    while True:
        row = fetch_and_increment(queue)
        if row >= b.shape[0]:
            break
        tilted_moments(units, 0, b[row], a[row], mean[row], var[row])


def moments_arguments(prior, n_rows):
    """Arguments of `moments_of_rows`: tilts of every kind."""
    rng = np.random.default_rng(4)
    shape = n_rows, len(prior[0])
    b, a = rng.normal(size=shape) * 10, rng.normal(size=shape) * 10
    return units_of(prior, float), b, a, np.zeros(shape), np.zeros(shape), np.zeros(1, np.int64)
