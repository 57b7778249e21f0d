"""Gaussian sides: the base class, and the side with a full matrix, for few units or couplings.

With the quadratic form P, its linear term h, sites (t1, t2) and the Cholesky factor L of
A = P + diag(t2),

    covariance A^-1,  mean A^-1 (h + t1),  log-partition constant + (h + t1)'mean / 2 - sum ln L_ii
"""

from typing import NamedTuple

import numpy as np
from numpy.linalg import LinAlgError

from fastmf._common.linalg import Cholesky, Gram, cholesky


class GaussianMoments(NamedTuple):
    """Moments of the Gaussian, and the log of its integral, including sites and constant."""

    marginal: np.ndarray  # means and variances, (2, n_units); with blocks a vector of `Blocks`
    log_partition: float


def with_zeros(rows, n_units):
    """Pad rows of the first units with zeros for all later units."""
    if rows.shape[1] == n_units:
        return rows
    return np.concatenate([rows, np.zeros((len(rows), n_units - rows.shape[1]))], axis=1)


class GaussianSide:
    """A quadratic form that couples units; subclasses define its inverse with sites, `_inverse`."""

    # Added to the log-partition; a large constant means a large rounding error.
    constant = 0.0

    def _inverse(self, precision):
        """Return A^-1 with these site precisions; LinAlgError if A is not positive definite."""
        raise NotImplementedError

    def inverse(self, precision):
        """Return A^-1 with these site precisions; None if A is not positive definite."""
        try:
            return self._inverse(precision)
        except LinAlgError:
            return None

    def moments(self, site):
        """Compute moments and log-partition with sites; None if A is not positive definite."""
        inverse = self.inverse(site[1])
        return None if inverse is None else inverse.moments(site[0])

    def covariance(self, site, units=slice(None)):
        """Compute the covariance of some units with sites; None if A is not positive definite."""
        inverse = self.inverse(site[1])
        return None if inverse is None else inverse.covariance(units)


class Dense(GaussianSide):
    """A full matrix of precisions: O(n_units^3)."""

    def __init__(self, precision, field, constant):
        self.precision, self.field, self.constant = precision, field, constant
        self.n_units = len(field)

    @classmethod
    def of_regression(cls, X, y, noise_variance, gram=None):
        """Make the Gaussian side of a linear model; `gram` is X'X, if known."""
        gram = Gram(X).matrix() if gram is None else gram
        X = X.astype(np.float64, copy=False)
        constant = y @ y / noise_variance + len(y) * np.log(2 * np.pi * noise_variance)
        return cls(gram / noise_variance, X.T @ y / noise_variance, -constant / 2)

    def dense(self):
        """Return the side itself."""
        return self

    def among(self, units):
        """Return the side without the couplings and fields of the units outside a mask."""
        return Dense(self.precision * np.outer(units, units), self.field * units, self.constant)

    def tilted(self, tilt):
        """Add an external tilt exp(b w - a w^2 / 2) of each unit, given as (b, a)."""
        precision = self.precision + np.diag(tilt[1]) if tilt[1].any() else self.precision
        return Dense(precision, self.field + tilt[0], self.constant)

    def _inverse(self, precision):
        A = np.array(self.precision, order="F")
        A.flat[:: self.n_units + 1] += precision
        return DenseInverse(self, cholesky(A, overwrite=True))


class DenseInverse(NamedTuple):
    """A^-1 of `Dense`, by the factor of A."""

    side: Dense
    factor: Cholesky

    def moments(self, linear):
        """Compute means, variances and log-partition with these linear site coefficients."""
        return self._moments(linear, self.factor.inverse_lower().diagonal())

    def _moments(self, linear, var):
        side, linear = self.side, self.side.field + linear
        mean = self.solve(linear)
        log_partition = side.constant + linear @ mean / 2 - self.factor.half_log_determinant
        log_partition += side.n_units * np.log(2 * np.pi) / 2
        return GaussianMoments(np.stack([mean, var]), log_partition)

    def moments_and_covariances(self, linear, blocks):
        """Compute the moments, and the covariances of blocks of units, a part of the inverse."""
        columns = self.factor.inverse_factor().T  # A^-1 = W'W
        moments = self._moments(linear, np.einsum("ij,ij->i", columns, columns))
        of_blocks = (columns[units] for units in blocks)
        return moments, [W @ np.swapaxes(W, 1, 2) for W in of_blocks]

    def solve(self, right):
        """Multiply by a vector or matrix."""
        return self.factor.solve(right)

    def covariance(self, units):
        """Return the covariance of some units."""
        return self.factor.inverse()[units][:, units]

    def variance_along(self, rows):
        """Compute variances of r'w for the rows r of a matrix, of all or of the first units."""
        rows = with_zeros(rows, self.side.n_units)
        return np.einsum("ij,ji->i", rows, self.solve(rows.T))
