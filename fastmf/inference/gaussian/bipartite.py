"""The Gaussian sides of machines of two layers, and of linear models with latent variables.

With couplings W between a large and a small layer of site precisions t2 and s2, everything follows
from the Schur complement of the small layer

    S = diag(s2) - W' diag(1 / t2) W

whose inverse is the covariance of the small layer; A is positive definite if S is and t2 > 0.

A linear model y = X w - u + noise, with a latent variable u of each row and fewer features, couples
w and u like two layers, by W = X / s2. With s and t2 the site precisions of w and u, the Schur
complement of w is

    S = diag(s) + X' diag(t2 / (1 + s2 t2)) X

A row x of weight w counts as w equal rows, each with its latent variable and noise. All their
latent variables u have the site exp(t1 u - t2 u^2 / 2). With the fit s = x'b for coefficients b,
one of these rows has the factor

    f(s) = integral N(s - u; s2) exp(t1 u - t2 u^2 / 2) du

and together they have f(s)^w, which is (1 + s2 t2)^((1 - w) / 2) times the factor of the single row
x sqrt(w) with the site (t1 sqrt(w), t2). The moments of u follow from the moments of the latent
variable of this row: its mean over sqrt(w), and its variance over w, plus the excess variance of
one u over the mean of w of them.
"""

import copy
from typing import NamedTuple

import numpy as np
from numpy.linalg import LinAlgError
from scipy.linalg.blas import dsyrk, get_blas_funcs

from fastmf._common.linalg import cholesky
from fastmf.inference.gaussian.dense import Dense, GaussianMoments, GaussianSide
from fastmf.inference.gaussian.low_rank import LowRank


class Bipartite(GaussianSide):
    """Couplings between two layers, by the Schur complement of the smaller one.

    Matrices have the type of the weights, single or double precision; moments are doubles. `tilt`
    is the external tilt exp(b w - a w^2 / 2) of each unit, which is added to the sites.
    """

    def __init__(self, weights):
        n_visible, n_hidden = weights.shape
        self.n_units = n_visible + n_hidden
        self.flipped = n_visible < n_hidden
        self.weights = np.ascontiguousarray(weights.T if self.flipped else weights)
        first, second = slice(0, n_visible), slice(n_visible, self.n_units)
        self.large, self.small = (second, first) if self.flipped else (first, second)
        self.dtype = self.weights.dtype
        self.tilt = np.zeros((2, self.n_units))

    def tilted(self, tilt):
        """Replace the external tilt."""
        tilted = copy.copy(self)
        tilted.tilt = tilt
        return tilted

    def among(self, units):
        """Return the side without the couplings and tilts of the units outside a mask."""
        side = self.tilted(self.tilt * units)
        side.weights = self.weights * units[self.large, None] * units[self.small]
        return side

    def dense(self):
        """Return the Gaussian side with a full matrix."""
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

    def mean_covariance(self, sites):
        """Compute the covariances of visible with hidden units, averaged over rows."""
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
    """A^-1 of `Bipartite`, and of `Latent`."""

    side: GaussianSide
    precision: np.ndarray  # (n_large,), of the units of the larger layer, including the tilt
    whiten: np.ndarray  # (n_small, n_small), inverse Cholesky factor of the Schur complement
    half_log_determinant: float  # half the log-determinant of the Schur complement

    def moments(self, linear):
        """Compute means, variances and log-partition with these linear site coefficients."""
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
        """Multiply by a vector."""
        return self._solve(right)[0]

    def _solve(self, right):
        """Multiply by a vector; return the product and its whitened half."""
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
        """Compute the covariance of the larger with the smaller layer."""
        trmm = get_blas_funcs("trmm", dtype=self.whiten.dtype)
        across = trmm(1.0, self.whiten, self._whitened_weights(), lower=1, trans_a=1, overwrite_b=1)
        return across.T / self.precision[:, None]

    def covariance(self, units):
        """Return the covariance of some units."""
        side, t2 = self.side, self.precision
        half = np.empty((len(self.whiten), side.n_units))
        half[:, side.small] = self.whiten
        half[:, side.large] = (self.whiten @ side.weights.T) / t2
        half, diagonal = half[:, units], np.zeros(side.n_units)
        diagonal[side.large] = 1 / t2
        return half.T @ half + np.diag(diagonal[units])

    def moments_and_covariances(self, linear, blocks):
        """Compute the moments, and covariances of blocks in the smaller layer, which is first."""
        of_blocks = (self.whiten.T[units] for units in blocks)
        return self.moments(linear), [W @ np.swapaxes(W, 1, 2) for W in of_blocks]

    def variance_along(self, rows):
        """Compute variances of r'w for the rows r of a matrix."""
        side, scaled = self.side, rows[:, self.side.large] / self.precision
        half = self.whiten @ (rows[:, side.small] + scaled @ side.weights).T
        return (scaled * rows[:, side.large]).sum(1) + (half * half).sum(0)


def with_latent_columns(X):
    """Append the columns of the latent variables, -1 times the identity, to the features."""
    return np.concatenate([X, -np.eye(len(X), dtype=X.dtype)], axis=1)


class Latent(GaussianSide):
    """A linear model with a latent variable for each row: O(n_rows n_features^2)."""

    def __init__(self, X, y, noise_variance, n_threads=None):
        self._model = X, y, noise_variance
        self._n_threads = n_threads
        n_rows, n_features = X.shape
        self.n_units = n_features + n_rows
        self.small, self.large = slice(0, n_features), slice(n_features, self.n_units)
        self.noise_variance = noise_variance
        self.weights = X.astype(np.float64) / noise_variance
        self.tilt = np.zeros((2, self.n_units))
        self.tilt[0, self.small] = y @ self.weights
        self.tilt[0, self.large] = -y / noise_variance
        self.tilt[1, self.large] = 1 / noise_variance
        self.constant = -(y @ y / noise_variance + n_rows * np.log(2 * np.pi * noise_variance)) / 2

    def dense(self):
        """Return the Gaussian side with a full matrix."""
        return Dense.of_regression(*self._with_columns())

    def low_rank(self):
        """Return the Gaussian side that uses the Woodbury identity."""
        return LowRank(*self._with_columns(), self._n_threads)

    def _with_columns(self):
        X, y, noise_variance = self._model
        return with_latent_columns(X), y, noise_variance

    def _inverse(self, precision, add=None):
        """Return A^-1; add(matrix) adds sites of blocks of features to its lower triangle."""
        t2 = precision[self.large]
        total = t2 + self.tilt[1, self.large]
        if not (total > 0).all():
            raise LinAlgError("a precision of the latent variables is not positive.")
        scale = self.noise_variance * t2 / total
        if (scale >= 0).all():
            schur = dsyrk(1.0, (self.weights * np.sqrt(scale)[:, None]).T, lower=1)
        else:
            schur = np.asfortranarray((self.weights * scale[:, None]).T @ self.weights)
        schur.flat[:: schur.shape[0] + 1] += precision[self.small]
        if add is not None:
            add(schur)
        factor = cholesky(schur, overwrite=True)
        half_log_determinant = factor.half_log_determinant
        return LatentInverse(self, total, factor.inverse_factor(True), half_log_determinant)


class LatentInverse(BipartiteInverse):
    """A^-1 of `Latent`."""

    def variance_along(self, rows):
        """Compute variances of r'w for the rows r of a matrix, of all units or coefficients."""
        if rows.shape[1] == self.side.n_units:
            return super().variance_along(rows)
        half = self.whiten @ rows.T
        return (half * half).sum(0)


class RepeatedRows:
    """A linear model with latent variables, with a weight for each row.

    `side` has the rows multiplied by the roots of their weights, and the latent variables last;
    `blocks` is the layout of the vectors of a `BlockSide`.
    """

    def __init__(self, side, weights, noise_variance, blocks=None):
        self.side, self.noise_variance, self.blocks = side, noise_variance, blocks
        self.n_units = side.n_units
        self.weights = np.atleast_1d(weights)
        self._n_rows = len(self.weights)

    def moments(self, site):
        """Compute moments as the unweighted side does; latent variables are of one equal row."""
        site = site.copy()
        linear, precision = self._latent(site)
        linear *= np.sqrt(self.weights)
        relative = 1 + self.noise_variance * precision
        result = self.side.moments(site) if (relative > 0).all() else None
        if result is None:
            return None
        moments, log_partition = result
        mean, var = self._latent(moments)
        mean /= np.sqrt(self.weights)
        var /= self.weights
        var += (1 - 1 / self.weights) * self.noise_variance / relative
        log_partition -= (self.weights - 1) @ np.log(relative) / 2
        return GaussianMoments(moments, log_partition)

    def _latent(self, values):
        """Return views of linear terms and precisions, or moments, of latent variables."""
        first, second = values if self.blocks is None else self.blocks.parts(values)[:2]
        return first[-self._n_rows :], second[-self._n_rows :]
