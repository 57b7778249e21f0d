"""The Gaussian side of few units, or of any couplings: a full matrix.

With P the couplings, h their linear term and sites (t1, t2), A = P + diag(t2) has the Cholesky
factor L, and

    covariance A^-1,  mean A^-1 (h + t1),  log-partition constant + (h + t1)'mean / 2 - sum ln L_ii
"""

from typing import NamedTuple

import numpy as np

from fastmf._common.linalg import Cholesky, Gram, cholesky
from fastmf.inference.gaussian.side import GaussianMoments, GaussianSide, with_zeros


class Dense(GaussianSide):
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
    def of_regression(cls, X, y, noise_variance, gram=None):
        """The Gaussian side of a linear model, with matrices of units; `gram` is X'X, if known."""
        gram = Gram(X).matrix() if gram is None else gram
        X = X.astype(np.float64, copy=False)
        constant = y @ y / noise_variance + len(y) * np.log(2 * np.pi * noise_variance)
        return cls(gram / noise_variance, X.T @ y / noise_variance, -constant / 2)

    def dense(self):
        """Itself."""
        return self

    def tilted(self, tilt):
        """The same with a tilt exp(b w - a w^2 / 2) of each unit, (b, a), from outside."""
        precision = self.precision + np.diag(tilt[1]) if tilt[1].any() else self.precision
        return Dense(precision, self.field + tilt[0], self.constant)

    def _inverse(self, precision):
        A = np.array(self.precision, order="F")
        A.flat[:: self.n_units + 1] += precision
        return DenseInverse(self, cholesky(A, overwrite=True))


class DenseInverse(NamedTuple):
    """A^-1 of `Dense`.

    Parameters
    ----------
    side : Dense
    factor : Cholesky
        Factor of A.
    """

    side: Dense
    factor: Cholesky

    def moments(self, linear):
        """Means, variances and log-partition with sites of these linear coefficients."""
        side, linear = self.side, self.side.field + linear
        mean = self.solve(linear)
        var = self.factor.inverse_lower().diagonal()
        log_partition = side.constant + linear @ mean / 2 - self.factor.half_log_determinant
        log_partition += side.n_units * np.log(2 * np.pi) / 2
        return GaussianMoments(np.stack([mean, var]), log_partition)

    def solve(self, right):
        """The product with a vector or matrix."""
        return self.factor.solve(right)

    def covariance(self, units):
        """The covariance of some units."""
        return self.factor.inverse()[units][:, units]

    def variance_along(self, rows):
        """Variances of r'w for every row r of a matrix, of all or of the first units."""
        rows = with_zeros(rows, self.side.n_units)
        return np.einsum("ij,ji->i", rows, self.solve(rows.T))
