"""Annealed importance sampling in NumPy, with the random numbers of `fastmf.kernels.annealed`."""

from itertools import pairwise

import numpy as np

from fastmf.reference.product import unpacked
from fastmf.reference.random import uniforms
from fastmf.special import sigmoid, softplus


def annealed(
    to_hidden, to_visible, visible, hidden, visible_base, hidden_base, betas, seed, v, h,
    log_weights, queue,
):  # fmt: skip
    """Take all rows along the path, and add up their log importance weights."""
    weights, transposed = unpacked(to_hidden, h.shape[1]), unpacked(to_visible, v.shape[1])

    def log_partition(slope, beta):
        return softplus(hidden_base + beta * slope).sum(1, dtype=np.float64)

    for step, (old, new) in enumerate(pairwise(betas), 1):
        linear = v @ visible.astype(np.float64)
        old, new = v.dtype.type(old), v.dtype.type(new)
        slope = v @ weights + hidden
        log_weights += (betas[step] - betas[step - 1]) * linear
        log_weights += log_partition(slope, new) - log_partition(slope, old)
        h[:] = uniforms(seed, 2 * step, h.shape) < sigmoid(hidden_base + new * slope)
        slope = h @ transposed + visible
        v[:] = uniforms(seed, 2 * step + 1, v.shape) < sigmoid(visible_base + new * slope)
