"""The Gaussian side of a linear model whose rows have latent variables, with fewer features.

y = X w - u + noise, with a latent variable u of each row, couples w and u like two layers, by
W = X / s2. With s and t2 the site precisions of w and u, the Schur complement of w is

    S = diag(s) + X' diag(t2 / (1 + s2 t2)) X
"""

import numpy as np
from numpy.linalg import LinAlgError
from scipy.linalg.blas import dsyrk

from fastmf._common.linalg import cholesky
from fastmf.inference.gaussian.bipartite import BipartiteInverse
from fastmf.inference.gaussian.dense import Dense
from fastmf.inference.gaussian.low_rank import LowRank
from fastmf.inference.gaussian.side import GaussianSide


def with_latent_columns(X):
    """The columns of the features, and -1 of the latent variables."""
    return np.concatenate([X, -np.eye(len(X), dtype=X.dtype)], axis=1)


class Latent(GaussianSide):
    """A linear model with a latent variable of each row: O(n_rows n_features^2).

    Parameters
    ----------
    X : array of shape (n_rows, n_features), float32 or float64
    y : array of shape (n_rows,)
    noise_variance : float
    n_threads : int or None
        Threads, as of the same side without its structure.
    """

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
        whole = t2 + self.tilt[1, self.large]
        if not (whole > 0).all():
            raise LinAlgError("a precision of the latent variables is not positive.")
        scale = self.noise_variance * t2 / whole
        if (scale >= 0).all():
            schur = dsyrk(1.0, (self.weights * np.sqrt(scale)[:, None]).T, lower=1)
        else:
            schur = np.asfortranarray((self.weights * scale[:, None]).T @ self.weights)
        schur.flat[:: schur.shape[0] + 1] += precision[self.small]
        if add is not None:
            add(schur)
        factor = cholesky(schur, overwrite=True)
        half_log_determinant = factor.half_log_determinant
        return LatentInverse(self, whole, factor.inverse_factor(True), half_log_determinant)


class LatentInverse(BipartiteInverse):
    """A^-1 of `Latent`."""

    def variance_along(self, rows):
        """Variances of r'w for every row r of a matrix, of all units or of the coefficients."""
        if rows.shape[1] == self.side.n_units:
            return super().variance_along(rows)
        half = self.whiten @ rows.T
        return (half * half).sum(0)
