"""The Gaussian side of expectation propagation: what couples the units.

A Gaussian side is a quadratic form -w'Pw/2 + h'w + constant. With sites exp(t1 w - t2 w^2 / 2) in
place of the priors it becomes a Gaussian with precision A = P + diag(t2). All that the solvers ask
of it is

    side.n_units
    side.inverse(t2)         A^-1, None if A is not positive definite, and of that

        inverse.moments(t1)         Moments of the Gaussian
        inverse.covariance(units)   the block of some units
        inverse.solve(right)        the product with a vector

    side.moments(site), side.covariance(site, units)   both steps in one

so that a linear model (P = X'X / noise variance) and couplings (P = -J) share every solver.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg.lapack import dpotri, dpotrs

from fastmf.inference._normal import Moments, Side, cholesky
from fastmf.inference.bipartite import Bipartite
from fastmf.inference.low_rank import LowRank
from fastmf.models import RBM, SparseLinearModel

# Up to so many units, matrices of units are cheaper than anything cleverer, and more precise.
SMALL = 64


def gaussian_side(model, n_threads=None):
    """The Gaussian side of a model, of the kind that suits its shape."""
    if isinstance(model, SparseLinearModel):
        n, d = model.X.shape
        if n < d and d > SMALL:
            return LowRank(model.X, model.y, model.noise_variance, n_threads)
        X = model.X.astype(np.float64, copy=False)
        return Dense(
            X.T @ X / model.noise_variance,
            X.T @ model.y / model.noise_variance,
            -(model.y @ model.y / model.noise_variance
              + n * np.log(2 * np.pi * model.noise_variance)) / 2,
        )  # fmt: skip
    if isinstance(model, RBM):
        return Bipartite(model.weights.astype(np.float64))
    couplings = model.couplings.astype(np.float64)
    return Dense(-couplings, np.zeros(len(couplings)), 0.0)


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
