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
from scipy.linalg.blas import dsyrk, dtrmm, dtrmv
from scipy.linalg.lapack import dpotri, dpotrs, dtrtri

from fastmf.inference._normal import Moments, Side, cholesky
from fastmf.inference.low_rank import LowRank
from fastmf.models import RBM, SparseLinearModel

# Up to so many units, matrices of units are cheaper than anything cleverer, and more precise.
SMALL = 64


def gaussian_side(model):
    """The Gaussian side of a model, of the kind that suits its shape."""
    if isinstance(model, SparseLinearModel):
        n, d = model.X.shape
        if n < d and d > SMALL:
            return LowRank(model.X, model.y, model.noise_variance)
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
        return (lower + np.tril(lower, -1).T)[units][:, units]

    def variance_along(self, rows):
        """Variances of r'w for every row r of a matrix."""
        return np.einsum("ij,ji->i", rows, self.solve(rows.T))


class Bipartite(Side):
    """Couplings between two layers, by the Schur complement of the smaller one.

    Parameters
    ----------
    weights : array of shape (n_visible, n_hidden)
    """

    def __init__(self, weights):
        n_visible, n_hidden = weights.shape
        self.n_units = n_visible + n_hidden
        self.flipped = n_visible < n_hidden
        self.weights = np.ascontiguousarray(weights.T if self.flipped else weights)
        first, second = slice(0, n_visible), slice(n_visible, self.n_units)
        self.large, self.small = (second, first) if self.flipped else (first, second)

    def inverse(self, precision):
        """A^-1 with sites of these precisions; None if A is not positive definite."""
        t2, s2 = precision[self.large], precision[self.small]
        if not (t2 > 0).all():
            return None
        schur = dsyrk(-1.0, (self.weights / np.sqrt(t2)[:, None]).T, lower=1)
        schur.flat[:: len(s2) + 1] += s2
        factor, half_log_determinant = cholesky(schur)
        if factor is None:
            return None
        whiten = dtrtri(factor, lower=1, overwrite_c=1)[0]
        return BipartiteInverse(self, t2, whiten, half_log_determinant)


class BipartiteInverse(NamedTuple):
    """A^-1 of `Bipartite`.

    Parameters
    ----------
    side : Bipartite
    precision : array of shape (n_large,)
        Those of the sites of the larger layer.
    whiten : array of shape (n_small, n_small)
        Inverse Cholesky factor of the Schur complement.
    half_log_determinant : float
        Of the Schur complement.
    """

    side: Bipartite
    precision: np.ndarray
    whiten: np.ndarray
    half_log_determinant: float

    def moments(self, linear):
        """Means, variances and log-partition with sites of these linear coefficients."""
        side, t2, t1 = self.side, self.precision, linear[self.side.large]
        mean, pull = self._solve(linear)
        var = np.empty(side.n_units)
        var[side.small] = np.einsum("ij,ij->j", self.whiten, self.whiten)
        across = dtrmm(1.0, self.whiten, side.weights.T, lower=1)
        var[side.large] = (1 + np.einsum("ij,ij->j", across, across) / t2) / t2
        log_partition = (t1 * t1 / t2 - np.log(t2)).sum() / 2 + pull @ pull / 2
        log_partition += side.n_units * np.log(2 * np.pi) / 2 - self.half_log_determinant
        return Moments(np.stack([mean, var]), log_partition)

    def solve(self, right):
        """The product with a vector."""
        return self._solve(right)[0]

    def _solve(self, right):
        """The product with a vector, and its whitened half."""
        side, t2, t1 = self.side, self.precision, right[self.side.large]
        solution = np.empty(side.n_units)
        pull = dtrmv(self.whiten, right[side.small] + (t1 / t2) @ side.weights, lower=1)
        solution[side.small] = dtrmv(self.whiten, pull, lower=1, trans=1)
        solution[side.large] = (t1 + side.weights @ solution[side.small]) / t2
        return solution, pull

    def covariance(self, units):
        """The block of some units."""
        side, t2 = self.side, self.precision
        half = np.empty((len(self.whiten), side.n_units))
        half[:, side.small] = self.whiten
        half[:, side.large] = (self.whiten @ side.weights.T) / t2
        half, own = half[:, units], np.zeros(side.n_units)
        own[side.large] = 1 / t2
        return half.T @ half + np.diag(own[units])
