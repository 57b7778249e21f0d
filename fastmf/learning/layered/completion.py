"""Draws of missing visible units of layered machines, and units fitted to observed values."""

import numpy as np

from fastmf._common.rows import is_incomplete
from fastmf.inference.missing.layered import incomplete_rows
from fastmf.inference.sampling.gibbs import even_layers, gibbs
from fastmf.learning.training.trainer import FIRST_SWEEPS
from fastmf.priors._groups import column_sizes, columns_by_parts, has_groups
from fastmf.priors._protocol import joined, take
from fastmf.priors._queries import independent_units


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
