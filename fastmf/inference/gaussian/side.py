"""What all Gaussian sides of expectation propagation have in common."""

from typing import NamedTuple

import numpy as np
from scipy.linalg.lapack import dpotrf


class Moments(NamedTuple):
    """Moments of the Gaussian.

    Parameters
    ----------
    marginal : array of shape (2, n_units)
        Means and variances.
    log_partition : float
        Log of the integral of everything, sites and constant included.
    """

    marginal: np.ndarray
    log_partition: float


class Side:
    """A quadratic form that couples units: subclasses say what its inverse is with sites."""

    # What the log-partition is the difference of: its rounding counts.
    constant = 0.0

    def dense(self):
        """The same as a full matrix of couplings."""
        raise NotImplementedError

    def inverse(self, precision):
        """A^-1 with sites of these precisions; None if A is not positive definite."""
        raise NotImplementedError

    def moments(self, site):
        """Means, variances and log-partition with these sites; None if there is no Gaussian."""
        inverse = self.inverse(site[1])
        return None if inverse is None else inverse.moments(site[0])

    def covariance(self, site, units=slice(None)):
        """The covariance of some units with these sites; None if there is no Gaussian."""
        inverse = self.inverse(site[1])
        return None if inverse is None else inverse.covariance(units)


def cholesky(matrix):
    """Lower factor, and half the log-determinant; (None, -inf) if not positive definite."""
    factor, failed = dpotrf(matrix, lower=1, clean=1, overwrite_a=1)
    if failed or not np.isfinite(diagonal := factor.diagonal()).all():
        return None, -np.inf
    return factor, np.log(diagonal).sum()
