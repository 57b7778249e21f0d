"""The Gaussian side of machines of two layers, for one row of sites or many at once.

With couplings W between a large and a small layer of site precisions t2 and s2, everything follows
from the Schur complement of the small layer

    S = diag(s2) - W' diag(1 / t2) W

whose inverse is the covariance of the small layer; A is positive definite if S is and t2 > 0.
"""

import copy
from typing import NamedTuple

import numpy as np
from numpy.linalg import LinAlgError
from scipy.linalg.blas import get_blas_funcs

from fastmf._common.linalg import cholesky
from fastmf.inference.gaussian.dense import Dense
from fastmf.inference.gaussian.side import GaussianMoments, GaussianSide

# Products of pairs of weights, which all rows use, are kept from so many rows on, and up to so many
# numbers: with 784 units up to 140, with 100 units up to 400 in the small layer.
MIN_ROWS, MAX_KEPT_PRODUCTS = 12, 1 << 23
# Units of the small layer whose products make a block, and numbers that hold matrices of rows.
SMALL_UNITS, WORKSPACE = 10, 1 << 22


class Bipartite(GaussianSide):
    """Couplings between two layers, by the Schur complement of the smaller one.

    Parameters
    ----------
    weights : array of shape (n_visible, n_hidden)
        Matrices are computed in their type, single or double precision; moments are doubles.

    Attributes
    ----------
    tilt : array of shape (2, n_units)
        A tilt exp(b w - a w^2 / 2) of each unit from outside, which is added to the sites.
    """

    def __init__(self, weights):
        n_visible, n_hidden = weights.shape
        self.n_units = n_visible + n_hidden
        self.flipped = n_visible < n_hidden
        self.weights = np.ascontiguousarray(weights.T if self.flipped else weights)
        first, second = slice(0, n_visible), slice(n_visible, self.n_units)
        self.large, self.small = (second, first) if self.flipped else (first, second)
        self.dtype = self.weights.dtype
        self.tilt, self._products = np.zeros((2, self.n_units)), _Products(self.weights)

    def tilted(self, tilt):
        """The same couplings with another tilt from outside."""
        other = copy.copy(self)
        other.tilt = tilt
        return other

    def dense(self):
        """The same Gaussian side with a full matrix."""
        precision = np.diag(self.tilt[1])
        precision[self.large, self.small] = -self.weights
        precision[self.small, self.large] = -self.weights.T
        return Dense(precision, self.tilt[0], 0.0)

    def _inverse(self, precision):
        precision = precision + self.tilt[1]
        t2, s2 = precision[self.large], precision[self.small]
        if not (t2 > 0).all():
            raise LinAlgError("a precision of the large layer is not positive.")
        syrk = get_blas_funcs("syrk", dtype=self.dtype)
        scale = (1 / np.sqrt(t2)).astype(self.dtype)
        schur = syrk(-1.0, (self.weights * scale[:, None]).T, lower=1)
        schur.flat[:: len(s2) + 1] += s2
        factor = cholesky(schur, overwrite=True)
        half_log_determinant = factor.half_log_determinant
        return BipartiteInverse(self, t2, factor.inverse_factor(True), half_log_determinant)

    def moments_of_rows(self, sites):
        """Moments of many rows of sites, whose Schur complements are computed together."""
        if (
            len(sites) < MIN_ROWS
            or self.weights.size * self.weights.shape[1] / 2 > MAX_KEPT_PRODUCTS
        ):
            plain = self.tilted(np.zeros_like(self.tilt))
            return [plain.moments(site) for site in sites]
        step = max(MIN_ROWS, WORKSPACE // self.weights.shape[1] ** 2)
        parts = [self._moments_of_rows(sites[k : k + step]) for k in range(0, len(sites), step)]
        return [moments for part in parts for moments in part]

    def _moments_of_rows(self, sites):
        sites = sites.astype(self.dtype, copy=False)
        (t1, t2), (s1, s2) = (
            np.moveaxis(sites[:, :, units], 1, 0) for units in (self.large, self.small)
        )
        proper = (t2 > 0).all(1)
        var = 1 / np.where(proper[:, None], t2, t2.dtype.type(1))
        schur = self._products.weighted(-var)
        diagonal = np.einsum("rii->ri", schur)
        diagonal += s2
        linear = s1 + (t1 * var) @ self.weights
        marginal = np.empty((len(sites), 2, self.n_units))
        mean = np.zeros_like(linear)
        half_log_determinant = np.empty(len(sites))
        for row, matrix in enumerate(schur):
            # In place: the upper triangle of the rows is the lower one of the columns.
            try:
                factor = cholesky(matrix.T, overwrite=True)
            except LinAlgError:
                matrix[:], proper[row], half_log_determinant[row] = 0, False, -np.inf
                continue
            half_log_determinant[row] = factor.half_log_determinant
            mean[row] = factor.solve(linear[row])
            factor.inverse_lower(overwrite=True)
        marginal[:, 0, self.small], marginal[:, 1, self.small] = mean, diagonal
        marginal[:, 0, self.large] = (t1 + mean @ self.weights.T) * var
        diagonal /= 2
        marginal[:, 1, self.large] = (1 + 2 * self._products.summed(schur) * var) * var
        log_partition = (t1 * t1 * var + np.log(var)).sum(1) / 2 + (linear * mean).sum(1) / 2
        log_partition += self.n_units * np.log(2 * np.pi) / 2 - half_log_determinant
        return [
            GaussianMoments(of_row, float(value)) if exist else None
            for of_row, value, exist in zip(marginal, log_partition, proper, strict=True)
        ]

    def mean_covariance(self, sites):
        """Covariances of visible with hidden units, averaged over rows."""
        total, n_rows = np.zeros(self.weights.shape), 0
        plain = self.tilted(np.zeros_like(self.tilt))
        for _, precision in sites:
            inverse = plain.inverse(precision)
            if inverse is not None:
                total += inverse.covariance_of_layers()
                n_rows += 1
        total /= n_rows or np.nan
        return total.T if self.flipped else total


class BipartiteInverse(NamedTuple):
    """A^-1 of `Bipartite`, and of other sides that couple units of two layers.

    Parameters
    ----------
    side : Bipartite or Latent
    precision : array of shape (n_large,)
        Precisions of the units of the larger layer, tilt included.
    whiten : array of shape (n_small, n_small)
        Inverse Cholesky factor of the Schur complement.
    half_log_determinant : float
        Half of the log-determinant of the Schur complement.
    """

    side: Bipartite
    precision: np.ndarray
    whiten: np.ndarray
    half_log_determinant: float

    def moments(self, linear):
        """Means, variances and log-partition with sites of these linear coefficients."""
        side, t2, linear = self.side, self.precision, linear + self.side.tilt[0]
        t1 = linear[side.large]
        mean, whitened = self._solve(linear)
        var = np.empty(side.n_units)
        var[side.small] = np.einsum("ij,ij->j", self.whiten, self.whiten)
        across = self._whitened_weights()
        var[side.large] = (1 + np.einsum("ij,ij->j", across, across) / t2) / t2
        log_partition = (t1 * t1 / t2 - np.log(t2)).sum() / 2 + whitened @ whitened / 2
        log_partition += side.n_units * np.log(2 * np.pi) / 2 - self.half_log_determinant
        return GaussianMoments(np.stack([mean, var]), log_partition + side.constant)

    def solve(self, right):
        """The product with a vector."""
        return self._solve(right)[0]

    def _solve(self, right):
        """The product with a vector, and its whitened half."""
        side, t2, t1 = self.side, self.precision, right[self.side.large]
        solution = np.empty(side.n_units)
        trmv = get_blas_funcs("trmv", dtype=self.whiten.dtype)
        whitened = trmv(self.whiten, right[side.small] + (t1 / t2) @ side.weights, lower=1)
        solution[side.small] = trmv(self.whiten, whitened, lower=1, trans=1)
        solution[side.large] = (t1 + side.weights @ solution[side.small]) / t2
        return solution, whitened

    def _whitened_weights(self):
        trmm = get_blas_funcs("trmm", dtype=self.whiten.dtype)
        return trmm(1.0, self.whiten, self.side.weights.T, lower=1)

    def covariance_of_layers(self):
        """The covariance of the units of the larger layer with those of the smaller."""
        trmm = get_blas_funcs("trmm", dtype=self.whiten.dtype)
        across = trmm(1.0, self.whiten, self._whitened_weights(), lower=1, trans_a=1, overwrite_b=1)
        return across.T / self.precision[:, None]

    def covariance(self, units):
        """The covariance of some units."""
        side, t2 = self.side, self.precision
        half = np.empty((len(self.whiten), side.n_units))
        half[:, side.small] = self.whiten
        half[:, side.large] = (self.whiten @ side.weights.T) / t2
        half, diagonal = half[:, units], np.zeros(side.n_units)
        diagonal[side.large] = 1 / t2
        return half.T @ half + np.diag(diagonal[units])

    def covariances(self, blocks):
        """The covariances of blocks of units of the smaller layer, which comes first."""
        # Few elements are needed of the product of all columns.
        columns = (self.whiten.T[units] for units in blocks)
        return [own @ np.swapaxes(own, 1, 2) for own in columns]

    def variance_along(self, rows):
        """Variances of r'w for every row r of a matrix."""
        side, scaled = self.side, rows[:, self.side.large] / self.precision
        half = self.whiten @ (rows[:, side.small] + scaled @ side.weights).T
        return (scaled * rows[:, side.large]).sum(1) + (half * half).sum(0)


class _Products:
    """Products of pairs of columns of a matrix, which every row of sites sums with its own weights.

    Every pair is taken once, in blocks of columns with all that follow, so that sums over rows of
    the matrix, and over pairs, are products of large matrices.

    Parameters
    ----------
    weights : array of shape (n_large, n_small)
    """

    def __init__(self, weights):
        self.weights, self._blocks = weights, None

    def _of_blocks(self):
        """First and last column of each block, and (n_large, pairs) products."""
        if self._blocks is None:
            w, (n, m) = self.weights, self.weights.shape
            bounds = [slice(k, min(k + SMALL_UNITS, m)) for k in range(0, m, SMALL_UNITS)]
            self._blocks = [
                (columns, (w[:, columns, None] * w[:, None, columns.start :]).reshape(n, -1))
                for columns in bounds
            ]
        return self._blocks

    def weighted(self, scale):
        """W' diag(scale_r) W for every row r of scales, upper triangles (the lower are not set)."""
        n_rows, m = len(scale), self.weights.shape[1]
        out = np.zeros((n_rows, m, m), scale.dtype)
        for columns, products in self._of_blocks():
            shape = n_rows, columns.stop - columns.start, m - columns.start
            out[:, columns, columns.start :] = (scale @ products).reshape(shape)
        return out

    def summed(self, matrices):
        """w_i' M_r w_i for every row i of W and r, summed over the upper triangles alone."""
        out = np.zeros((len(matrices), len(self.weights)), matrices.dtype)
        for columns, products in self._of_blocks():
            pairs = matrices[:, columns, columns.start :].reshape(len(matrices), -1)
            out += pairs @ products.T
        return out
