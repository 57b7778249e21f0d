"""The Gaussian side of few units, or of any couplings: a full matrix."""

from typing import NamedTuple

import numpy as np
from scipy.linalg.lapack import dpotri, dpotrs

from fastmf.inference.gaussian.side import Moments, Side, cholesky


class Dense(Side):
    """A full matrix of precisions: O(n_units^3).

    Parameters
    ----------
    precision : array of shape (n_units, n_units)
    field : array of shape (n_units,)
    constant : float
    """

    def __init__(self, precision, field, constant):
        self.precision, self.field, self.constant = precision, field, constant
        self.n_units = len(field)

    @classmethod
    def of_regression(cls, X, y, noise_variance):
        """That of a linear model, with matrices of units."""
        X = X.astype(np.float64, copy=False)
        constant = y @ y / noise_variance + len(y) * np.log(2 * np.pi * noise_variance)
        return cls(X.T @ X / noise_variance, X.T @ y / noise_variance, -constant / 2)

    def dense(self):
        """Itself."""
        return self

    def tilted(self, tilt):
        """The same with a tilt exp(b w - a w^2 / 2) of each unit, (b, a), from outside."""
        precision = self.precision + np.diag(tilt[1]) if tilt[1].any() else self.precision
        return Dense(precision, self.field + tilt[0], self.constant)

    def inverse(self, precision):
        """A^-1 with sites of these precisions; None if A is not positive definite."""
        A = np.array(self.precision, order="F")
        A.flat[:: self.n_units + 1] += precision
        factor, half_log_determinant = cholesky(A)
        return None if factor is None else DenseInverse(self, factor, half_log_determinant)


class DenseInverse(NamedTuple):
    """A^-1 of `Dense`.

    Parameters
    ----------
    side : Dense
    factor : array of shape (n_units, n_units)
        Lower Cholesky factor of A.
    half_log_determinant : float
        Of A.
    """

    side: Dense
    factor: np.ndarray
    half_log_determinant: float

    def moments(self, linear):
        """Means, variances and log-partition with sites of these linear coefficients."""
        side, linear = self.side, self.side.field + linear
        mean = self.solve(linear)
        var = dpotri(self.factor, lower=1)[0].diagonal()
        log_partition = side.constant + linear @ mean / 2 - self.half_log_determinant
        log_partition += side.n_units * np.log(2 * np.pi) / 2
        return Moments(np.stack([mean, var]), log_partition)

    def solve(self, right):
        """The product with a vector or matrix."""
        return dpotrs(self.factor, right, lower=1)[0]

    def covariance(self, units):
        """The block of some units."""
        lower = dpotri(self.factor, lower=1)[0]
        whole = lower + lower.T  # the upper triangle of `lower` is zero, as that of `factor`
        whole.flat[:: len(whole) + 1] /= 2
        return whole[units][:, units]

    def variance_along(self, rows):
        """Variances of r'w for every row r of a matrix."""
        return np.einsum("ij,ji->i", rows, self.solve(rows.T))
