"""NumPy twin of `fastmf.kernels.training.statistics`."""

import numpy as np

from fastmf._jit.intrinsics import view
from fastmf.reference.linear.product import unpacked
from fastmf.reference.units import moments


def conditional_moments(units, address, couplings, states, work, b, mean, var):
    """Moments of the units of one layer, given the states of the other."""
    np.matmul(states, unpacked(couplings, b.shape[1]), out=b)
    mean[:], var[:] = moments(units.prior, b, b.dtype.type(0))


def pair_averages(address, terms, rights, weights, work, out):
    """Polynomial in the weights, entry by entry; the coefficients are sums of products of units."""
    out[:], begin = 0, 0
    for units, n_rows, stride, power in terms:
        left = view(units, (n_rows, stride), weights)[:, : len(weights)]
        right = unpacked(rights[:, begin : begin + n_rows], weights.shape[1])
        out += weights**power * (left.T @ right)
        begin += n_rows
