"""Data of layered machines: standardised columns and missing values.

For real-valued visible units x = offset + scale y, learning uses y. Real-valued hidden units with
bounds are scaled as well, so that units on [0, 1] and on [0, 100] learn as fast as binary units.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array, diags_array

from fastmf._common.rows import is_incomplete, is_sparse
from fastmf.inference.missing.layered import incomplete_rows
from fastmf.inference.sampling.gibbs import Walks, even_layers
from fastmf.learning.training.trainer import FIRST_SWEEPS
from fastmf.priors._groups import as_states, column_sizes, columns_by_parts, has_groups
from fastmf.priors._protocol import as_dtype, joined, take
from fastmf.priors._queries import bounds, has_tilts, independent_units, with_shifted_field
from fastmf.priors._scaling import (
    FARTHEST_MEAN,
    log_volume,
    rescaled,
    scale_of_hidden,
    units_of_measurement,
    with_fixed_fields_of,
)


class Scaling(NamedTuple):
    """Offsets of the visible units, and scales of all units."""

    offset: np.ndarray
    scale: np.ndarray
    hidden_scales: tuple
    # Units of x and of the hidden layers, with their original bounds.
    layers: tuple

    @property
    def of_data(self):
        """Whether data are transformed."""
        return bool(self.offset.any() or (self.scale != 1).any())

    def data(self, X, dtype):
        """Convert rows of x to rows of y; integers that are not transformed keep their type."""
        if not self.of_data:
            return X if X.dtype.kind in "iub" else X.astype(dtype, copy=False)
        if is_sparse(X):
            offsets = csr_array(np.ones((X.shape[0], 1))) @ csr_array(self.offset[None])
            return csr_array((X - offsets) @ diags_array(1 / self.scale)).astype(dtype)
        X = self._within_bounds(as_states("X", self.layers[0], X))
        return ((X - self.offset) / self.scale).astype(dtype)

    def values(self, Y, dtype):
        """Convert rows of y to rows of x."""
        return self._within_bounds(self.offset + self.scale * Y).astype(dtype)

    def _within_bounds(self, X):
        """Move values of centred units that rounding errors put beyond their bounds."""
        return np.clip(X, *np.where(self.offset, bounds(self.layers[0]), [[-np.inf], [np.inf]]))

    def units(self, visible):
        """Convert units of x to units of y."""
        return rescaled(visible, self.offset, self.scale)

    def of_layers(self, layers):
        """Convert layers to scaled units, without fields of the first hidden layer by offsets."""
        hidden = zip(layers[1:], self.hidden_scales, strict=True)
        return self.units(layers[0]), *(rescaled(unit, 0 * scale, scale) for unit, scale in hidden)

    def model(self, model, dtype=None):
        """Convert a machine of x to the equivalent machine of y, of its or another type."""
        dtype = dtype or model.dtype
        layers = [as_dtype(unit, dtype) for unit in model.layers]
        if self.offset.any():
            first = np.asarray(model.couplings[0], np.float64)
            layers[1] = with_shifted_field(layers[1], self.offset @ first)
        scales = pairwise((self.scale, *self.hidden_scales))
        couplings = tuple(
            (w * below[:, None] * above).astype(dtype)
            for w, (below, above) in zip(model.couplings, scales, strict=True)
        )
        return model.rebuilt(couplings, self.of_layers(layers))

    def undone(self, model):
        """Convert a machine of y to the equivalent machine of x."""
        hidden = tuple(1 / scale for scale in self.hidden_scales)
        back = Scaling(-self.offset / self.scale, 1 / self.scale, hidden, self.layers)
        model = back.model(model)
        layers = zip(model.layers, self.layers, strict=True)
        return model.rebuilt(model.couplings, tuple(with_fixed_fields_of(*two) for two in layers))

    def log_volume(self, visible, Y, weights=None):
        """Compute the difference of the log-densities of y and x, averaged over rows of y."""
        Y = Y.toarray() if is_sparse(Y) else Y
        volumes = log_volume(visible, self.scale, Y)
        if is_incomplete(Y):  # missing values do not contribute
            volumes -= np.isnan(Y) @ np.log(self.scale)
        return float(np.average(volumes, weights=weights))


def scaling_of(independent, model, sparse=False, centred=True):
    """Make the scaling of data, given independent units that were fitted to them.

    For sparse rows, means are subtracted from columns far from zero alone, whose terms field x and
    precision x^2 / 2 cancel. Without `centred`, the data are not transformed.
    """
    offset, scale = units_of_measurement(independent)
    subtracted = (abs(offset) > FARTHEST_MEAN * scale) | (not sparse)
    offset = np.where(subtracted & (centred and has_tilts(model.layers[1])), offset, 0.0)
    scales = scale, *map(scale_of_hidden, model.layers[1:])
    scale, *hidden = scales if centred else map(np.ones_like, scales)
    return Scaling(offset, scale, tuple(hidden), model.layers)


def completed(model, X, missing, n_sweeps, rng, n_threads=None):
    """Draw missing values from the model given the observed ones, by Gibbs sampling from `X`."""
    zero = model.dtype.type(0)
    means = model.layers[0].moments(zero, zero)[0]
    x = np.where(np.isnan(X), means, X).astype(model.dtype)
    even_states, pair = even_layers(model, x, rng), model.bipartite()
    walks = Walks(np.ones(2), n_threads)
    for _ in range(n_sweeps):
        even_states, _ = walks.sample(pair, even_states, rng)
        even_states[:, : x.shape[1]] = np.where(missing, even_states[:, : x.shape[1]], x)
    return even_states[:, : x.shape[1]].copy()


def completed_once(model, X, seed, n_threads=None):
    """Return the rows with missing values drawn from the model given the observed ones."""
    if not is_incomplete(X):
        return X
    X, rows = X.copy(), incomplete_rows(X)
    rng, missing = np.random.default_rng([*seed, 5]), np.isnan(X[rows])
    X[rows] = completed(model, X[rows], missing, FIRST_SWEEPS, rng, n_threads)
    return X


def with_values_of_columns(X):
    """Fill in missing values by the values of their column, each about equally often."""
    X = X.copy()
    for j in np.flatnonzero(np.isnan(X).any(0)):
        missing = np.isnan(X[:, j])
        values, n = X[~missing, j], np.count_nonzero(missing)
        X[missing, j] = values[np.arange(n) * len(values) // n]
    return X


def independent_of_seen(prior, X):
    """Return the prior of independent units, each fitted to its observed values."""
    if not is_incomplete(X):
        return independent_units(prior, X)
    return joined(prior, [_fitted_to_seen(*part) for part in columns_by_parts(prior, X)])


def _fitted_to_seen(prior, X):
    if has_groups(prior):  # groups count observed values only
        return independent_units(prior, X)
    prior, n = independent_units(prior, with_values_of_columns(X)), len(column_sizes(prior))
    fields = [np.array(field) for field in prior]
    for j in np.flatnonzero(np.isnan(X).any(0)):
        column = X[~np.isnan(X[:, j]), j : j + 1]
        unit = independent_units(take(prior, slice(j, j + 1)), column)
        for field, value in zip(fields, unit, strict=True):
            if field.shape == (n,):
                field[j] = np.ravel(value)[0]
    return prior._make(fields)
