"""Features in units of their deviations, and models of such features in their own units."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from fastmf._common.rows import is_sparse, row_blocks
from fastmf.estimators.common.rows import check_variances, mean_and_deviation


class FeatureScale(NamedTuple):
    """Units of features: x becomes (x - offset) / scale, in float64."""

    offset: np.ndarray
    scale: np.ndarray

    @classmethod
    def of(cls, X, weights=None):
        """Means and standard deviations of columns; in sparse rows deviations from 0.

        Constant columns have the scale 1, or in sparse rows their absolute value.
        """
        if is_sparse(X):
            of_rows = np.ones(X.shape[0]) if weights is None else weights
            squares = X.astype(np.float64)
            with np.errstate(over="ignore"):
                squares.data = squares.data**2
            offset, scale = np.zeros(X.shape[1]), np.sqrt(of_rows @ squares / of_rows.sum())
            check_variances("X", scale)
        else:
            offset, scale = mean_and_deviation("X", X, True, weights)
        return cls(offset, np.where(scale == 0, 1.0, scale))

    def standardised(self, X):
        """Rows in these units, of the same type."""
        if is_sparse(X):
            out = X.copy()
            out.data /= self.scale[X.indices].astype(X.dtype)
            return out
        out = np.empty_like(X)
        for rows in row_blocks(X):
            out[rows] = (X[rows] - self.offset) / self.scale
        return out

    def of_raw(self, model):
        """The same model of features in their own units, given one of standardised features."""
        return self._rescaled(model, 1 / self.scale, -self.offset)

    def of_standardised(self, model):
        """The same model of standardised features, given one of features in their own units."""
        return self._rescaled(model, self.scale, self.offset / self.scale)

    def _rescaled(self, model, factor, shift):
        """The model whose weights are multiplied by a factor, and then by a shift for biases."""
        parameters = {}
        for layer in ("visible", "hidden"):
            weights = getattr(model, f"{layer}_weights") * factor
            bias = getattr(model, f"{layer}_bias") + weights @ shift
            parameters |= {f"{layer}_weights": weights, f"{layer}_bias": bias}
        cast = {name: value.astype(model.dtype) for name, value in parameters.items()}
        return replace(model, **cast)
