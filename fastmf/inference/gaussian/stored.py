"""The Gaussian side of a linear model whose features are converted as they are multiplied."""

import numpy as np
from scipy.linalg.blas import dsyrk

from fastmf.inference.gaussian.low_rank import LowRank, LowRankInverse


class StoredLowRank(LowRank):
    """`LowRank` of `StoredColumns`: the same sums, over columns that are converted in between.

    Parameters
    ----------
    X : StoredColumns of shape (n_rows, n_units)
    y : array of shape (n_rows,)
    noise_variance : float
    n_threads : int or None
    """

    def _prepared_squares(self):
        self.chunks = self.X.chunks()
        return self.X.squares()

    def chunk(self, units):
        """Some columns of X in double precision."""
        return self.X[:, units]

    def data_covariance(self, linear, precision):
        """The lower triangle of B, for sites of positive precisions, and X D linear."""
        n, scale = self.n_rows, 1 / np.sqrt(precision)
        B, prediction = np.zeros((n, n), order="F"), np.zeros(n)
        for units in self.chunks:
            columns = self.chunk(units) * scale[units]
            prediction += columns @ (linear[units] * scale[units])
            B = dsyrk(1.0, columns, 1.0, B, lower=1, overwrite_c=1)
        B.flat[:: n + 1] += self.noise_variance
        return np.ascontiguousarray(B), prediction

    def whitened_columns(self, whiten, directions, z, offset):
        """Sums of squares of the whitened columns of X, and their products with z."""
        out = np.empty((2, self.n_units))
        for units in self.chunks:
            columns = self.chunk(units)
            white, along = whiten @ columns, directions @ columns
            squares = np.einsum("ij,ij->j", white, white)
            out[0, units] = squares - np.einsum("ij,ij->j", along, along)
            out[1, units] = z @ white - offset @ along
        return out

    def predict(self, w):
        """X w."""
        return self.X @ w

    def project(self, residual):
        """X' residual."""
        return self.X.T @ residual

    def _inverse_and_prediction(self, linear, precision):
        inverse, prediction = super()._inverse_and_prediction(linear, precision)
        return StoredInverse(*inverse), prediction


class StoredInverse(LowRankInverse):
    """A^-1 of `StoredLowRank`."""

    def covariances(self, blocks):
        """The covariances of blocks of units, some blocks at a time."""
        return [
            np.concatenate([self._covariances(units[part]) for part in self._parts(units)])
            for units in blocks
        ]

    def _parts(self, units):
        """Slices of blocks, of about as many units as a chunk of columns."""
        width = max(1, self.side.chunks[0].stop // units.shape[1])
        return [slice(first, first + width) for first in range(0, len(units), width)]
