"""NumPy twin of `fastmf.kernels.statistics`."""

import numpy as np

from fastmf.reference.product import unpacked


def conditional_moments(prior, couplings, states, queue, b, mean, var):
    """Moments of the units of one layer, given the states of the other."""
    np.matmul(states, unpacked(couplings, b.shape[1]), out=b)
    mean[:], var[:] = prior.moments(b, b.dtype.type(0))


def pair_averages(lefts, rights, counts, scales, powers, weights, queue, out):
    """Sum over terms of scale * weights ** power * (left.T @ right)."""
    out[:] = 0
    for left, right, n, scale, power in zip(lefts, rights, counts, scales, powers, strict=True):
        pairs = left[:n].T @ unpacked(right[:, :n], weights.shape[1])
        out += out.dtype.type(scale) * weights**power * pairs
