"""NumPy twin of `fastmf.kernels.training.statistics`."""

import numpy as np

from fastmf.reference.linear.product import unpacked
from fastmf.reference.units import moments


def conditional_moments(units, address, couplings, states, work, b, mean, var):
    """Moments of the units of one layer, given the states of the other."""
    np.matmul(states, unpacked(couplings, b.shape[1]), out=b)
    mean[:], var[:] = moments(units.prior, b, b.dtype.type(0))


def pair_averages(address, terms, lefts, rights, weights, work, out):
    """Polynomial in the weights, entry by entry; the coefficients are sums of products of units."""
    out[:], begin = 0, 0
    rights = unpacked(rights, weights.shape[1])
    for n_rows, power in terms:
        rows = slice(begin, begin + n_rows)
        out += weights**power * (lefts[rows].T @ rights[rows])
        begin += n_rows
