"""Common parts of all Gaussian sides of expectation propagation."""

from typing import NamedTuple

import numpy as np
from numpy.linalg import LinAlgError


class GaussianMoments(NamedTuple):
    """Moments of the Gaussian.

    Parameters
    ----------
    marginal : array of shape (2, n_units)
        Means and variances.
    log_partition : float
        Log of the integral of the Gaussian, sites and constant included.
    """

    marginal: np.ndarray
    log_partition: float


def with_zeros(rows, n_units):
    """Rows of the first units, with zeros for the others."""
    if rows.shape[1] == n_units:
        return rows
    return np.concatenate([rows, np.zeros((len(rows), n_units - rows.shape[1]))], axis=1)


class GaussianSide:
    """A quadratic form that couples units; subclasses define its inverse with sites, `_inverse`."""

    # Added to the log-partition: where it is large, so is the rounding error.
    constant = 0.0

    def dense(self):
        """The same Gaussian side with a full matrix of couplings."""
        raise NotImplementedError

    def _inverse(self, precision):
        """A^-1 with sites of these precisions; LinAlgError if A is not positive definite."""
        raise NotImplementedError

    def inverse(self, precision):
        """A^-1 with sites of these precisions; None if A is not positive definite."""
        try:
            return self._inverse(precision)
        except LinAlgError:
            return None

    def moments(self, site):
        """Moments and log-partition with these sites; None if A is not positive definite."""
        inverse = self.inverse(site[1])
        return None if inverse is None else inverse.moments(site[0])

    def covariance(self, site, units=slice(None)):
        """The covariance of some units with these sites; None if A is not positive definite."""
        inverse = self.inverse(site[1])
        return None if inverse is None else inverse.covariance(units)
