"""Features in units of their deviations, and models of such features in their own units."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from fastmf._common.rows import blocks, is_sparse, row_blocks

# Standard deviations beyond, and below one over it, are not divided by: weights would be no numbers
# in single precision.
MAX_SCALE = 1e30


class FeatureScale(NamedTuple):
    """Units of features: x becomes (x - offset) / scale, in float64."""

    offset: np.ndarray
    scale: np.ndarray

    @classmethod
    def of(cls, X, weights=None):
        """Means and standard deviations of columns; in sparse rows deviations from 0.

        Constant columns have the scale 1, or in sparse rows their absolute value.
        """
        n_features = X.shape[1]
        offset, scale = np.zeros((2, n_features))
        if is_sparse(X):
            of_rows = np.ones(X.shape[0]) if weights is None else weights
            squares = X.astype(np.float64)
            with np.errstate(over="ignore"):
                squares.data = squares.data**2
            return cls(offset, _positive(np.sqrt(of_rows @ squares / of_rows.sum())))
        for part in blocks(n_features, X.size):
            differences = np.subtract(X[:, part], X[0, part], dtype=np.float64)
            mean = np.average(differences, 0, weights)
            with np.errstate(over="ignore"):
                square = np.average((differences - mean) ** 2, 0, weights)
            offset[part], scale[part] = X[0, part] + mean, np.sqrt(square)
        scale[scale <= 10 * np.finfo(X.dtype).eps * abs(offset)] = 0
        return cls(offset, _positive(scale))

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


def _positive(scale):
    """Standard deviations, with 1 for those that are 0."""
    scale = np.where(scale == 0, 1.0, scale)
    fits = (scale >= 1 / MAX_SCALE) & (scale <= MAX_SCALE)
    if not fits.all():
        column = int(np.argmin(fits))
        small = scale[column] < 1
        raise ValueError(
            f"X must have values {'that differ by more than' if small else 'below'} "
            f"{1 / MAX_SCALE if small else MAX_SCALE:.0e}, got {'smaller' if small else 'larger'} "
            f"ones in column {column}: {'multiply' if small else 'divide'} it by a constant."
        )
    return scale
