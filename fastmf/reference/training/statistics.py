"""NumPy twin of `fastmf.kernels.training.statistics`."""

import numpy as np

from fastmf.reference.linear.product import unpacked
from fastmf.reference.units import moments


def conditional_moments(units, address, couplings, states, work, b, mean, var):
    """Moments of the units of one layer, given the states of the other."""
    np.matmul(states, unpacked(couplings, b.shape[1]), out=b)
    mean[:], var[:] = moments(units.prior, b, b.dtype.type(0))
