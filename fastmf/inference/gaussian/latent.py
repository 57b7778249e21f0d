"""The Gaussian side of a linear model whose rows have latent variables, with fewer features.

y = X w - u + noise, with a latent variable u of each row, couples w and u like two layers, by
W = X / s2. With s and t2 the site precisions of w and u, the Schur complement of w is

    S = diag(s) + X' diag(t2 / (1 + s2 t2)) X

A row x of weight w counts as w equal rows, each with a latent variable and noise of its own. All
their latent variables u have the site exp(t1 u - t2 u^2 / 2). Without noise let s = x'w; one of
these rows then has the factor

    f(s) = integral N(s - u; s2) exp(t1 u - t2 u^2 / 2) du

and all have f(s)^w, which is (1 + s2 t2)^((1 - w) / 2) times the factor of the one row x sqrt(w)
with the site of coefficients t1 sqrt(w) and t2. The moments of u follow from the moments of its
latent variable: the mean by sqrt(w), and the variance by w, with the excess of one u over the mean
of w of them.
"""

import numpy as np
from numpy.linalg import LinAlgError
from scipy.linalg.blas import dsyrk

from fastmf._common.linalg import cholesky
from fastmf.inference.gaussian.bipartite import BipartiteInverse
from fastmf.inference.gaussian.dense import Dense, GaussianMoments, GaussianSide
from fastmf.inference.gaussian.low_rank import LowRank


def with_latent_columns(X):
    """The columns of the features, and -1 of the latent variables."""
    return np.concatenate([X, -np.eye(len(X), dtype=X.dtype)], axis=1)


class Latent(GaussianSide):
    """A linear model with a latent variable of each row: O(n_rows n_features^2)."""

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
        """The same Gaussian side with a matrix of units."""
        return Dense.of_regression(*self._with_columns())

    def low_rank(self):
        """The same Gaussian side by the Woodbury identity."""
        return LowRank(*self._with_columns(), self._n_threads)

    def _with_columns(self):
        X, y, noise_variance = self._model
        return with_latent_columns(X), y, noise_variance

    def _inverse(self, precision, add=None):
        """A^-1; `add` adds other sites of the features to the lower triangle of a matrix."""
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
        """Variances of r'w for every row r of a matrix, of all units or of the coefficients."""
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
        """As of the side without weights, with the moments of one of the equal rows."""
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
        """Linear terms and precisions, or means and variances, of latent variables: views."""
        first, second = values if self.blocks is None else self.blocks.parts(values)[:2]
        return first[-self._n_rows :], second[-self._n_rows :]
