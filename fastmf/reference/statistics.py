"""NumPy twin of `fastmf.kernels.statistics`."""

import numpy as np

from fastmf.reference.product import unpacked
from fastmf.reference.units import moments


def conditional_moments(units, address, couplings, states, queue, b, mean, var):
    """Moments of the units of one layer, given the states of the other."""
    np.matmul(states, unpacked(couplings, b.shape[1]), out=b)
    mean[:], var[:] = moments(units.prior, b, b.dtype.type(0))


def pair_averages(address, lefts, rights, ends, weights, queue, out):
    """Polynomial in the weights, entry by entry; the coefficients are sums of products of units."""
    out[:] = 0
    for power, begin, end in zip(range(len(ends))[::-1], [0, *ends], ends, strict=False):
        pairs = lefts[begin:end].T @ unpacked(rights[:, begin:end], weights.shape[1])
        out += weights**power * pairs
