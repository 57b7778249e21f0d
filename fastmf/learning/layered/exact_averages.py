"""Exact averages over an RBM, and over hidden and missing units given rows of data.

Given the states h of one layer, the units x of the other layer are independent: log Z and all
averages are sums over h, with the log-partitions and moments of x under the fields W h. Let x be
the observed visible units of a row, and y its missing ones. The derivatives of log sum_(y, h)
exp(-energy) are averages of derivatives of -energy given x, which are summed over the states of h,
given which the units y are independent, or over the states of y, which complete the row. If all
units are Gaussian, there are closed forms.
"""

from functools import partial
from typing import NamedTuple

import numpy as np

from fastmf._common.rows import blocks
from fastmf.inference.missing.layered import completions, log_prob_of_seen, with_means
from fastmf.inference.sampling.states import flat_states
from fastmf.models.exact import missing_columns, normalized, states_of, sums_over_side
from fastmf.priors._protocol import (
    by_parts,
    joined,
    learned_fields,
    log_prob_gradient,
    map_parameters,
    parts_of,
)
from fastmf.priors._protocol import gradient as prior_gradient
from fastmf.priors._queries import (
    average_gradient,
    fields_of,
    gaussian_units,
    mean_log_prob,
    number_of_states,
    precisions,
)

# Largest number of enumerated states; a quarter of this number takes no longer than mean field.
MAX_SUMMED_STATES = 2**14


class ExactAverages(NamedTuple):
    """Log-partition of a machine, and its derivatives by all parameters."""

    log_partition: float
    # Averages of products of coupled units, of the shapes of the couplings.
    pairwise: tuple
    # Derivatives by the parameters of each layer.
    layers: tuple


def is_exact(model, max_states=MAX_SUMMED_STATES):
    """Whether exact averages are possible: a layer is enumerated, or all units are Gaussian."""
    if model.deep:
        return False
    is_small = min(map(number_of_states, model.layers)) <= max_states
    return is_small or all(gaussian_units(layer).all() for layer in model.layers)


def is_cheaply_exact(model):
    """Whether exact averages cost no more than approximate ones."""
    return is_exact(model, MAX_SUMMED_STATES // 4)


def exact_averages(model):
    """Compute exact averages over a machine."""
    counts = [number_of_states(layer) for layer in model.layers]
    if min(counts) > MAX_SUMMED_STATES:
        # Gaussian units: integrate over a row without observed values.
        nothing = np.full((1, model.n_visible), np.nan)
        value, (pairs, *layers) = _of_gaussian_units(model, nothing, np.ones(1))
        return ExactAverages(float(value), (pairs,), tuple(layers))
    side = int(np.argmin(counts))
    summed, independent = model.layers[side], model.layers[1 - side]

    def summands(w, x, fields):
        pairs, *layers = weighted_derivatives(summed, independent, x, fields, w)
        return [pairs, *(field for layer in layers for field in learned_fields(layer))]

    weights = model.weights.T if side else model.weights
    log_partition, (pairs, *fields) = sums_over_side(summed, independent, weights, summands)
    fields = iter(fields)
    layers = [map_parameters(lambda _: next(fields), layer) for layer in (summed, independent)]
    if side:
        pairs, layers = pairs.T, layers[::-1]
    return ExactAverages(float(log_partition), (pairs,), tuple(layers))


def weighted_sum(weights, x):
    """Compute the weighted sum over the first axis of values by unit, or by unit and score."""
    return (weights @ x.reshape(len(x), -1)).reshape(x.shape[1:])


def weighted_derivatives(visible, hidden, x, b, w):
    """Sum derivatives of log sum_h exp(-energy(x, h)) over states `x` with fields `b`."""
    zero = b.dtype.type(0)
    mean, var = hidden.moments(b, zero)
    layers = log_prob_gradient(visible, x), prior_gradient(hidden, b, zero, mean, var)
    sums = (map_parameters(partial(weighted_sum, w), of_layer) for of_layer in layers)
    return [x.T @ (w[:, None] * mean), *sums]


def of_complete(model, x, w):
    """Compute the weighted sum over rows of log sum_h exp(-energy(x, h)), and its derivatives."""
    visible, hidden = model.layers
    b = x @ model.couplings[0]
    values = (
        w @ mean_log_prob(visible, x).sum(1, dtype=np.float64),
        w @ hidden.log_partition(b, b.dtype.type(0)).sum(1, dtype=np.float64),
    )
    return values, weighted_derivatives(visible, hidden, x, b, w)


def of_incomplete(model, X, w):
    """Compute the same sum and derivatives for rows with NaN, summed over missing values, too."""
    X = np.asarray(X, np.float64)
    if number_of_states(model.layers[1]) <= MAX_SUMMED_STATES:
        return _over_hidden_states(model, X, w)
    if number_of_states(model.layers[0]) <= MAX_SUMMED_STATES:
        return _over_missing_states(model, X, w)
    return _of_gaussian_units(model, X, w)


def added(sums, new):
    """Add derivatives by couplings and layers; the first may be None."""
    if sums is None:
        return new
    layers = [map_parameters(np.add, *pair) for pair in zip(sums[1:], new[1:], strict=True)]
    return [sums[0] + new[0], *layers]


def _over_hidden_states(model, X, w):
    visible, hidden = model.layers
    h = np.vstack(list(states_of(hidden, sum(model.sizes)))).astype(np.float64)
    fields = h @ model.weights.T.astype(np.float64)
    mean, var = visible.moments(fields, 0.0)
    log_probs, log_partitions = hidden.log_prob(h).sum(1), visible.log_partition(fields, 0.0)
    missing, columns = np.isnan(X), missing_columns(visible, X).astype(float)
    x = np.where(missing, 0, X)
    value = w @ log_prob_of_seen(visible, X)
    state_weights, missing_weights, pairs = np.zeros(len(h)), np.zeros_like(fields), 0.0
    for rows in blocks(len(X), len(X) * len(h)):
        logs = x[rows] @ fields.T + columns[rows] @ log_partitions.T + log_probs
        row_values, p = normalized(logs)
        value, p = value + w[rows] @ row_values, p * w[rows, None]
        state_weights += p.sum(0)
        missing_weights += p.T @ missing[rows]
        pairs = pairs + x[rows].T @ (p @ h)
    pairs = pairs + (missing_weights * mean).T @ h
    observed_weights = w[:, None] * ~missing
    parts = [
        _weighted(visible, prior_gradient(visible, fields, 0.0, mean, var), missing_weights),
        _weighted(visible, log_prob_gradient(visible, with_means(visible, X)), observed_weights),
    ]
    hidden_sums = map_parameters(partial(weighted_sum, state_weights), log_prob_gradient(hidden, h))
    return value, [pairs, map_parameters(np.add, *parts), hidden_sums]


def _weighted(prior, derivatives, weights):
    """Sum derivatives over rows, with a weight for each row and unit."""
    parts = [
        map_parameters(partial(_sum_of_units, w), part)
        for part, (_, w) in zip(parts_of(derivatives), by_parts(prior, weights), strict=True)
    ]
    return joined(prior, parts)


def _sum_of_units(weights, derivatives):
    """Sum derivatives by a field, or by the scores of each unit, over rows."""
    if derivatives.ndim == 3:
        weights = weights[:, :, None]
    return (weights * derivatives).sum(0)


def _over_missing_states(model, X, w):
    columns, seen = flat_states(model.visible), np.nan_to_num(X, nan=0.0)
    values, value, sums = columns.values.toarray(), w @ log_prob_of_seen(model.visible, X), None
    for rows, of_states, candidates, fields, logs in completions(model, columns, X):
        row_values, p = normalized(logs)
        value += w[rows] @ row_values
        x = (seen[rows][:, None] + candidates @ values[of_states]).reshape(-1, X.shape[1])
        p = (p * w[rows, None]).ravel()
        sums = added(sums, weighted_derivatives(*model.layers, x, fields, p))
    return value, sums


def _of_gaussian_units(model, X, w):
    visible, hidden = model.layers
    weights, n = model.weights.astype(np.float64), model.n_visible
    d = np.append(precisions(visible), precisions(hidden))
    f = np.append(fields_of(visible), fields_of(hidden))
    constants = [layer.log_partition(0.0, 0.0).astype(np.float64) for layer in model.layers]
    constants = np.concatenate(constants) - (f * f / d - np.log(d)) / 2
    couplings = np.zeros((len(d), len(d)))
    couplings[:n, n:], couplings[n:, :n] = weights, weights.T
    first, second = np.zeros(len(d)), np.zeros((len(d), len(d)))
    value = w @ log_prob_of_seen(visible, X)
    patterns, pattern = np.unique(np.isnan(X), axis=0, return_inverse=True)
    pattern = pattern.reshape(-1)
    for k, missing in enumerate(patterns):
        rows = np.flatnonzero(pattern == k)
        free = np.append(missing, np.ones(len(d) - n, bool))
        x, v = np.zeros((len(rows), len(d))), w[rows]
        x[:, ~free] = X[rows][:, ~missing]
        covariance = np.linalg.inv(np.diag(d[free]) - couplings[np.ix_(free, free)])
        b = (f + x @ couplings)[:, free]
        x[:, free] = b @ covariance
        logs = (b * x[:, free]).sum(1) / 2 + np.linalg.slogdet(covariance)[1] / 2
        value += v @ (logs + constants[free].sum())
        first += v @ x
        second += x.T @ (v[:, None] * x)
        second[np.ix_(free, free)] += v.sum() * covariance
    moments = np.array([first, np.diag(second), np.full(len(d), w.sum())])
    layers = [
        average_gradient(layer, moments[:, units])
        for layer, units in ((visible, slice(n)), (hidden, slice(n, None)))
    ]
    return value, [second[:n, n:], *layers]
