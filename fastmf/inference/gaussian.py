"""The Gaussian side of expectation propagation: what couples the units.

A Gaussian side is a quadratic form -w'Pw/2 + h'w + constant. With sites exp(t1 w - t2 w^2 / 2) in
place of the priors it becomes a Gaussian with precision A = P + diag(t2). All that the solvers ask
of it is

    side.n_units
    side.moments(site)       Moments for sites of shape (2, n_units), None if A is not positive
                             definite
    side.covariance(site, units)   the block of A^-1 of some units

so that a linear model (P = X'X / noise variance) and couplings (P = -J) share every solver.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.linalg.blas import dgemm, dgemv, dsyrk, dtrmm, dtrmv
from scipy.linalg.lapack import dpotrf, dpotri, dpotrs, dtrtri

from fastmf.kernels.sites import column_products

# Up to so many units, matrices of units are cheaper than anything cleverer, and more precise.
SMALL = 64
# Entries of X that are worked on at a time: they and their products stay in the cache.
CHUNK = 1 << 16
# A site of less precision than this share of that of the data is treated as low (see `LowRank`).
# It is given at least so many times that to begin with.
LOW, PROPER = 1e-6, 100


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


def gaussian_side(model):
    """The Gaussian side of a linear model, of the kind that suits its shape."""
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


def cholesky(matrix):
    """Lower factor, and half the log-determinant; (None, -inf) if not positive definite."""
    factor, failed = dpotrf(matrix, lower=1, clean=1, overwrite_a=1)
    if failed or not np.isfinite(diagonal := factor.diagonal()).all():
        return None, -np.inf
    return factor, np.log(diagonal).sum()


class Dense:
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

    def moments(self, site):
        """Means, variances and log-partition with these sites; None if there is no Gaussian."""
        factor, half_log_determinant = self._factor(site)
        if factor is None:
            return None
        linear = self.field + site[0]
        mean = dpotrs(factor, linear, lower=1)[0]
        var = dpotri(factor, lower=1, overwrite_c=1)[0].diagonal()
        log_partition = self.constant + linear @ mean / 2 - half_log_determinant
        log_partition += self.n_units * np.log(2 * np.pi) / 2
        return Moments(np.stack([mean, var]), log_partition)

    def covariance(self, site, units=slice(None)):
        """The covariance of some units with these sites; None if there is no Gaussian."""
        factor, _ = self._factor(site)
        if factor is None:
            return None
        lower = dpotri(factor, lower=1, overwrite_c=1)[0]
        return (lower + np.tril(lower, -1).T)[units][:, units]

    def variance_along(self, site, rows):
        """Variances of r'w for every row r of a matrix."""
        factor, _ = self._factor(site)
        return np.einsum("ij,ji->i", rows, dpotrs(factor, rows.T, lower=1)[0])

    def _factor(self, site):
        precision = np.array(self.precision, order="F")
        precision.flat[:: self.n_units + 1] += site[1]
        return cholesky(precision)


class LowRank:
    """A linear model with fewer rows than units, by the Woodbury identity: O(n_units n_rows^2).

    A = X'X / s2 + diag(t2) has the inverse D - D X' B^-1 X D with D = 1 / t2 and B = s2 I + X D X'.
    Sites with t2 < floor, a millionth of the precision x'x / s2 that the data could give, would
    make B ill-conditioned, or indefinite if negative. Their t2 is replaced by a proper precision p
    and put right by a second update of rank k, their number:

        A^-1 = A0^-1 + C S^-1 C',  C = columns of A0^-1,  S = 1 / (p - t2) - (A0^-1)_kk

    so that A is positive definite if and only if S is, and all factorisations are Cholesky's.
    Memory: X as it is, n_rows^2 numbers, and a few vectors of length n_units.

    Parameters
    ----------
    X : array of shape (n_rows, n_units), float32 or float64
    y : array of shape (n_rows,)
    noise_variance : float
    """

    def __init__(self, X, y, noise_variance):
        self.X, self.y, self.noise_variance = X, y, noise_variance
        self.n_rows, self.n_units = X.shape
        width = max(64, CHUNK // self.n_rows // 64 * 64)
        bounds = [*range(0, self.n_units, width), self.n_units]
        self.chunks = [slice(*ends) for ends in pairwise(bounds)]
        self._room = np.empty((self.n_rows, width))
        squares = np.empty(self.n_units)
        for units in self.chunks:
            chunk = self._chunk(units)
            np.einsum("ij,ij->j", chunk, chunk, out=squares[units])
        self.floor = LOW * squares / noise_variance

    def _chunk(self, units, scale=None):
        """Some columns of X in double precision, scaled."""
        room = self._room[:, : units.stop - units.start]
        if scale is None:
            np.copyto(room, self.X[:, units])
        else:
            np.multiply(self.X[:, units], scale, out=room)
        return room

    def data_covariance(self, precision, linear):
        """B of the proper sites, lower triangle; and what they leave of y in the mean."""
        B = np.zeros((self.n_rows, self.n_rows), order="F")
        B.flat[:: self.n_rows + 1] = self.noise_variance
        scale, rest = 1 / np.sqrt(precision), self.y.copy()
        scaled_mean = linear * scale
        for units in self.chunks:
            chunk = self._chunk(units, scale[units])
            B = dsyrk(1.0, chunk.T, beta=1.0, c=B, trans=1, lower=1, overwrite_c=1)
            rest -= dgemv(1.0, chunk.T, scaled_mean[units], trans=1)
        return B, rest

    def moments(self, site):
        """Means, variances and log-partition with these sites; None if there is no Gaussian."""
        inverse = self._inverse(site)
        if inverse is None:
            return None
        t1, precision, z = site[0], inverse.precision, inverse.z
        log_partition = (t1 * t1 / precision - np.log(precision / (2 * np.pi))).sum() / 2
        log_partition -= z @ z / 2 + inverse.half_log_determinant
        log_partition -= self.n_rows * np.log(2 * np.pi) / 2
        squares, products = np.empty((2, self.n_units))
        low = inverse.low
        for units in self.chunks:
            chunk = self._chunk(units).T
            Y = dtrmm(1.0, inverse.whiten, chunk, side=1, lower=1, trans_a=1, overwrite_b=1).T
            column_products(Y, z, squares[units], products[units])
            if low is not None:
                low.apply(Y, squares[units], products[units])
        var = (1 - squares / precision) / precision
        mean = (t1 + products) / precision
        if low is not None:
            mean[low.units], var[low.units] = low.mean, low.var
            log_partition += low.log_partition
        return Moments(np.stack([mean, var]), log_partition)

    def covariance(self, site, units):
        """The covariance of some units with these sites; None if there is no Gaussian."""
        inverse = self._inverse(site)
        if inverse is None:
            return None
        precision = inverse.precision[units]
        Y = inverse.whiten @ self.X[:, units] / precision
        covariance = np.diag(1 / precision) - Y.T @ Y
        if inverse.low is not None:
            low = inverse.low
            half = -low.columns.T @ Y + (low.units[:, None] == units) / precision
            half = low.whiten @ half
            covariance += half.T @ half
        return covariance

    def variance_along(self, site, rows):
        """Variances of r'w for every row r of a matrix."""
        inverse = self._inverse(site)
        scaled = rows / inverse.precision
        along = inverse.whiten @ (self.X @ scaled.T)
        var = np.einsum("ij,ij->i", rows, scaled) - (along * along).sum(0)
        if inverse.low is not None:
            low = inverse.low
            half = low.whiten @ (scaled[:, low.units].T - low.columns.T @ along)
            var += (half * half).sum(0)
        return var

    def _inverse(self, site):
        """Whatever describes A^-1; None if there is no Gaussian."""
        t1, t2 = site
        units, precision = np.flatnonzero(t2 < self.floor), t2
        if units.size:
            precision = t2.copy()
            precision[units] = np.maximum(abs(t2[units]), PROPER * self.floor[units])
        if not (precision > 0).all():
            return None
        B, rest = self.data_covariance(precision, t1)
        factor, half_log_determinant = cholesky(B)
        if factor is None:
            return None
        whiten = dtrtri(factor, lower=1, overwrite_c=1)[0]
        z, low = dtrmv(whiten, rest, lower=1), None
        if units.size:
            low = self._correction(units, t1, t2, precision, whiten, z)
            if low is None:
                return None
        return _Inverse(precision, whiten, z, half_log_determinant, low)

    def _correction(self, low, t1, t2, precision, whiten, z):
        """What the sites of low precision change; None if they leave no Gaussian."""
        p, gap = precision[low], precision[low] - t2[low]
        columns = np.asarray(self.X[:, low], np.float64, order="F")
        columns = dtrmm(1.0, whiten, columns, lower=1) / p
        inverse = -columns.T @ columns
        inverse.flat[:: low.size + 1] += 1 / p
        S = -inverse
        S.flat[:: low.size + 1] += 1 / gap
        factor, half_log_determinant = cholesky(np.asfortranarray(S))
        if factor is None:
            return None
        whiten_low = dtrtri(factor, lower=1, overwrite_c=1)[0]
        mean = t1[low] / p + columns.T @ z
        pull = dtrmv(whiten_low, mean, lower=1)
        half = whiten_low @ inverse
        return _Correction(
            units=low,
            columns=columns,
            whiten=whiten_low,
            directions=np.asfortranarray(whiten_low @ columns.T),
            pull=pull,
            mean=mean + half.T @ pull,
            var=inverse.diagonal() + (half * half).sum(0),
            log_partition=pull @ pull / 2 - half_log_determinant - np.log(gap).sum() / 2,
        )


class _Inverse(NamedTuple):
    """A^-1 of `LowRank`.

    Parameters
    ----------
    precision : array of shape (n_units,)
        Those of the sites, made proper.
    whiten : array of shape (n_rows, n_rows)
        Inverse Cholesky factor of B.
    z : array of shape (n_rows,)
        What the sites leave of y, whitened.
    half_log_determinant : float
        Of B.
    low : _Correction or None
    """

    precision: np.ndarray
    whiten: np.ndarray
    z: np.ndarray
    half_log_determinant: float
    low: tuple | None


class _Correction(NamedTuple):
    """Update of rank k for the k sites of low precision.

    Parameters
    ----------
    units : int array of shape (k,)
    columns : array of shape (n_rows, k)
        Their columns of X, whitened, over their precisions.
    whiten : array of shape (k, k)
        Inverse Cholesky factor of S.
    directions : array of shape (k, n_rows)
        Products with the whitened columns of X make the update.
    pull : array of shape (k,)
    mean, var : array of shape (k,)
        Of the sites themselves.
    log_partition : float
        To be added.
    """

    units: np.ndarray
    columns: np.ndarray
    whiten: np.ndarray
    directions: np.ndarray
    pull: np.ndarray
    mean: np.ndarray
    var: np.ndarray
    log_partition: float

    def apply(self, Y, squares, products):
        """Change the quadratic forms and products of some other columns."""
        along = dgemm(1.0, self.directions, Y.T, trans_b=1)
        squares -= np.einsum("ij,ij->j", along, along)
        products -= self.pull @ along
