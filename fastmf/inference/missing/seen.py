"""Rows in which values are missing, NaN: the likelihood of what was seen, and means given it.

Units that were not seen are summed or integrated out, together with the hidden ones: exactly where
`exact_given` does, and else by a mean-field solution in which the units that were seen are clamped.
"""

from typing import NamedTuple

import numpy as np

from fastmf._common.rows import row_blocks
from fastmf.inference.mean_field.tap import tap
from fastmf.inference.missing.layered import exact_given, log_likelihood
from fastmf.priors._groups import groups, has_groups
from fastmf.priors._protocol import by_parts
from fastmf.priors._queries import mean_log_prob, two_values
from fastmf.priors._rows import states


class MeansGivenSeen(NamedTuple):
    """Result of `means_given_seen`.

    Parameters
    ----------
    mean : tuple of arrays of shape (n_rows, n_units)
        Means of the units of each layer.
    log_partition : float64 array of shape (n_rows,)
        See `GivenSeen`.
    converged : bool array of shape (n_rows,)
        Whether means are exact, or their mean-field solution has converged.
    """

    mean: tuple
    log_partition: np.ndarray
    converged: np.ndarray


def incomplete_rows(X):
    """Which rows lack values, bool array of shape (n_rows,)."""
    return np.isnan(X.sum(1))


def with_means(prior, X):
    """Rows in which the means of the units alone stand for missing values."""
    zero = prior.moments(X.dtype.type(0), X.dtype.type(0))[0]
    return np.where(np.isnan(X), zero, X).astype(X.dtype, copy=False)


def log_prob_of_seen(prior, X):
    """Sum of log_prob over the units of each row that were seen, float64 (n_rows,)."""
    log_probs = mean_log_prob(prior, with_means(prior, X))
    return np.where(np.isnan(X), 0, log_probs).sum(1, dtype=np.float64)


def means_given_seen(model, X, *, most=None, **options):
    """Means of all units given those that were seen.

    Parameters
    ----------
    model : RBM or DBM
    X : array of shape (n_rows, n_visible)
        With NaN for missing values: of a categorical unit, in all its states.
    most : int or None
        See `exact_given`.
    **options
        Options of `tap`, for the rows that cannot be enumerated.

    Returns
    -------
    MeansGivenSeen
    """
    exact = exact_given(model, X, most)
    log_partition, converged = exact.log_partition, np.ones(len(X), bool)
    means = _by_layers(model, exact.sides)
    left = np.flatnonzero(~exact.exact)
    if len(left):
        found, log_partition[left] = _solutions(model, X[left], **options)
        converged[left] = found.converged
        for mean, of_left in zip(means, found.mean, strict=True):
            mean[left] = of_left
        means[0][left] = np.where(np.isnan(X[left]), found.mean[0], X[left])
    return MeansGivenSeen(tuple(means), log_partition, converged)


def _by_layers(model, sides):
    """Units of the even and those of the odd layers as units of each layer."""
    parts = [np.split(side, np.cumsum(model.sizes[k::2])[:-1], 1) for k, side in enumerate(sides)]
    return [parts[k % 2][k // 2].copy() for k in range(len(model.sizes))]


def _solutions(model, X, **options):
    """Mean-field solutions given what was seen, and their `GivenSeen.log_partition`.

    Clamped units need states. Means and probabilities are clamped at the nearest states, and the
    difference acts on the units above as a field.
    """
    visible, seen = model.layers[0], ~np.isnan(X)
    start = with_means(visible, X)
    nearest = np.where(seen, _nearest_states(visible, start), start).astype(X.dtype)
    fields = [None] * len(model.layers)
    fields[1] = np.where(seen, start - nearest, 0).astype(X.dtype) @ model.couplings[0]
    clamp = np.where(seen, nearest, np.nan)
    found = tap(model, nearest, clamp=clamp, field=tuple(fields), **options)
    own = mean_log_prob(visible, np.where(seen, nearest, start).astype(np.float64))
    return found, found.log_partition - np.where(seen, own, 0).sum(1)


def _nearest_states(prior, X):
    """The states of two-valued units, and of groups, that are nearest to means of them."""
    parts = []
    for part, x in by_parts(prior, X):
        if has_groups(part):
            nearest = np.zeros_like(x)
            for here in groups(part):
                nearest[np.arange(len(x)), here.start + x[:, here].argmax(1)] = 1
            x = nearest
        elif two_values(part):
            low, high = two_values(part)
            x = np.where(2 * x < low + high, low, high)
        parts.append(x)
    return np.concatenate(parts, axis=1)


def log_likelihood_of_seen(model, X, log_partition, *, most=None, **options):
    """Log-likelihood of what was seen of each row.

    Parameters
    ----------
    model : RBM or DBM
    X : array of shape (n_rows, n_columns)
        With NaN for missing values.
    log_partition : float
    most : int or None
        See `exact_given`.
    **options
        Options of `tap`.

    Returns
    -------
    float64 array of shape (n_rows,)
    """
    X, out = states(model.layers[0], X, model.dtype), np.empty(len(X))
    lacking = incomplete_rows(X)
    if not lacking.all():
        given = options if model.deep else {}
        out[~lacking] = log_likelihood(model, X[~lacking], log_partition, **given)
    for rows in row_blocks(X):
        rows = rows.start + np.flatnonzero(lacking[rows])
        if len(rows):
            found = means_given_seen(model, X[rows], most=most, **options)
            seen = log_prob_of_seen(model.layers[0], X[rows])
            out[rows] = seen + found.log_partition - log_partition
    return out
