"""Data of layered machines: standardised columns and missing values.

Real-valued visible units x = offset + scale y are learned as y. Real-valued hidden units between
bounds are scaled, too: units on [0, 1] and on [0, 100] learn as fast as binary ones.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array, diags_array

from fastmf._common.rows import is_incomplete, is_sparse
from fastmf.inference.missing.layered import incomplete_rows
from fastmf.inference.sampling.gibbs import even_layers, gibbs
from fastmf.learning.training.trainer import FIRST_SWEEPS
from fastmf.priors._groups import column_sizes, columns_by_parts, has_groups
from fastmf.priors._protocol import joined, take
from fastmf.priors._queries import has_tilts, independent_units, with_shifted_field
from fastmf.priors._scaling import (
    log_volume,
    rescaled,
    scale_of_hidden,
    units_of_measurement,
    with_fixed_fields_of,
)


class Scaling(NamedTuple):
    """Offset of each visible unit, and scale of each unit."""

    offset: np.ndarray
    scale: np.ndarray
    hidden_scales: tuple
    # Units of x and of the hidden layers, with the bounds that they are given.
    layers: tuple

    @property
    def of_data(self):
        """Whether data change."""
        return self.offset.any() or (self.scale != 1).any()

    def data(self, X, dtype):
        """Rows of x as rows of y."""
        if not self.of_data:
            return X
        if is_sparse(X):
            return csr_array(X @ diags_array(1 / self.scale)).astype(dtype)
        return ((X - self.offset) / self.scale).astype(dtype)

    def units(self, visible):
        """Units of y that units of x are."""
        return rescaled(visible, self.offset, self.scale)

    def of_layers(self, layers):
        """Layers of a machine of y, but for the fields that offsets give the first hidden one."""
        hidden = zip(layers[1:], self.hidden_scales, strict=True)
        return self.units(layers[0]), *(rescaled(unit, 0 * scale, scale) for unit, scale in hidden)

    def model(self, model):
        """The machine of y that a machine of x is."""
        layers = list(model.layers)
        if self.offset.any():
            first = np.asarray(model.couplings[0], np.float64)
            layers[1] = with_shifted_field(layers[1], self.offset @ first)
        scales = pairwise((self.scale, *self.hidden_scales))
        couplings = tuple(
            (w * below[:, None] * above).astype(model.dtype)
            for w, (below, above) in zip(model.couplings, scales, strict=True)
        )
        return model.rebuilt(couplings, self.of_layers(layers))

    def undone(self, model):
        """The machine of x that a machine of y is."""
        hidden = tuple(1 / scale for scale in self.hidden_scales)
        back = Scaling(-self.offset / self.scale, 1 / self.scale, hidden, self.layers)
        model = back.model(model)
        layers = zip(model.layers, self.layers, strict=True)
        return model.rebuilt(model.couplings, tuple(with_fixed_fields_of(*two) for two in layers))

    def log_volume(self, visible, Y, weights=None):
        """Difference of the log-densities of y and x, on average over rows of y."""
        Y = Y.toarray() if is_sparse(Y) else Y
        volumes = log_volume(visible, self.scale, Y)
        if is_incomplete(Y):  # a missing value has no density
            volumes -= np.isnan(Y) @ np.log(self.scale)
        return float(np.average(volumes, weights=weights))


def scaling_of(independent, model, sparse, centred=True):
    """Make the scaling for data fitted by independent units.

    Steps that are not `centred` are steps of the parameters of the data as they are.
    """
    offset, scale = units_of_measurement(independent)
    if sparse or not centred or not has_tilts(model.layers[1]):
        offset = 0 * offset
    hidden = tuple(map(scale_of_hidden, model.layers[1:]))
    if not centred:
        scale, *hidden = (np.ones_like(part) for part in (scale, *hidden))
    return Scaling(offset, scale, tuple(hidden), model.layers)


def completed(model, X, missing, n_sweeps, rng, n_threads=None):
    """Rows with missing values drawn from the model given the observed ones, by Gibbs sampling."""
    zero = model.dtype.type(0)
    means = model.layers[0].moments(zero, zero)[0]
    x = np.where(np.isnan(X), means, X).astype(model.dtype)
    even, pair = even_layers(model, x, rng), model.bipartite()
    for _ in range(n_sweeps):
        even = gibbs(pair, even, 1, rng, n_threads)[0]
        even[:, : x.shape[1]] = np.where(missing, even[:, : x.shape[1]], x)
    return even[:, : x.shape[1]].copy()


def completed_once(model, X, seed, n_threads=None):
    """The rows, with missing values drawn from the model given the observed ones."""
    if not is_incomplete(X):
        return X
    X, rows = X.copy(), incomplete_rows(X)
    rng, missing = np.random.default_rng([*seed, 5]), np.isnan(X[rows])
    X[rows] = completed(model, X[rows], missing, FIRST_SWEEPS, rng, n_threads)
    return X


def with_values_of_columns(X):
    """Rows in which missing values are values of their column, all of them about as often."""
    X = X.copy()
    for j in np.flatnonzero(np.isnan(X).any(0)):
        missing = np.isnan(X[:, j])
        values, n = X[~missing, j], np.count_nonzero(missing)
        X[missing, j] = values[np.arange(n) * len(values) // n]
    return X


def independent_of_seen(prior, X):
    """The prior of independent units, each fitted to its observed values."""
    if not is_incomplete(X):
        return independent_units(prior, X)
    return joined(prior, [_fitted_to_seen(*part) for part in columns_by_parts(prior, X)])


def _fitted_to_seen(prior, X):
    if has_groups(prior):  # which count the observed values
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
