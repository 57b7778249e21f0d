"""Exact averages over an RBM, and given rows that may have missing values.

Given the states h of one layer, the units x of the other are independent: log Z and all averages
are sums over h alone, with the log-partitions and moments of x under the fields W h. With x the
observed visible units and y the missing ones, the derivatives of log sum_(y, h) exp(-energy) are
averages of derivatives of -energy given x, summed over the states of h, given which the units y are
independent; or over the states of y, which complete the row. All units being Gaussian, both have
closed forms.
"""

from functools import partial
from typing import NamedTuple

import numpy as np

from fastmf._common.rows import BLOCK_ENTRIES, blocks
from fastmf.inference.missing.layered import log_prob_of_seen, with_means
from fastmf.inference.sampling.states import batches_of_rows, flat_states, one_hot_states
from fastmf.models.exact import states_of, sums_over_side
from fastmf.priors._groups import column_sizes
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

# Largest number of states that are enumerated; a quarter takes no longer than mean field.
MAX_SUMMED_STATES = 2**14


class ExactAverages(NamedTuple):
    """Log-partition of a machine, and its derivatives by all parameters."""

    log_partition: float
    # Averages of products of coupled units, of the shapes of the couplings.
    pairwise: tuple
    # Derivatives by the parameters of each layer.
    layers: tuple


def enumerated_layer(model):
    """Which layer of an RBM is enumerated, 0 or 1; None if it is deep or both have many states."""
    if model.deep:
        return None
    counts = [number_of_states(layer) for layer in model.layers]
    return int(np.argmin(counts)) if min(counts) <= MAX_SUMMED_STATES else None


def is_exact(model):
    """Whether `exact_averages` exist: a layer is enumerated, or all units are Gaussian."""
    return _only_gaussian(model) or enumerated_layer(model) is not None


def is_cheaply_exact(model):
    """Whether exact averages cost no more than approximate ones."""
    quick = 4 * min(map(number_of_states, model.layers)) <= MAX_SUMMED_STATES
    return not model.deep and (quick or _only_gaussian(model))


def _only_gaussian(model):
    return not model.deep and all(gaussian_units(layer).all() for layer in model.layers)


def exact_averages(model):
    """Exact averages over a machine."""
    side = enumerated_layer(model)
    if side is None:  # Gaussian units: the sum over a row of which nothing was observed
        nothing = np.full((1, model.n_visible), np.nan)
        value, (pairs, *layers) = _of_gaussian_units(model, nothing, np.ones(1))
        return ExactAverages(float(value), (pairs,), tuple(layers))
    summed, independent = model.layers[side], model.layers[1 - side]

    def summands(w, x, fields):
        zero = fields.dtype.type(0)
        mean, var = independent.moments(fields, zero)
        derivatives = (
            log_prob_gradient(summed, x),
            prior_gradient(independent, fields, zero, mean, var),
        )
        fields = (field for layer in derivatives for field in learned_fields(layer))
        return [x.T @ (w[:, None] * mean), *(weighted_sum(w, field) for field in fields)]

    weights = model.weights.T if side else model.weights
    log_partition, (pairs, *fields) = sums_over_side(summed, independent, weights, summands)
    fields = iter(fields)
    layers = [map_parameters(lambda _: next(fields), layer) for layer in (summed, independent)]
    if side:
        pairs, layers = pairs.T, layers[::-1]
    return ExactAverages(log_partition, (pairs,), tuple(layers))


def weighted_sum(weights, x):
    """Sum over the first axis of numbers by unit, or by unit and score."""
    return (weights @ x.reshape(len(x), -1)).reshape(x.shape[1:])


def of_complete(model, x, w):
    """Weighted sum over rows of log sum_h exp(-energy(x, h)), and its derivatives."""
    visible, hidden = model.layers
    b = x @ model.couplings[0]
    zero = b.dtype.type(0)
    mean, var = hidden.moments(b, zero)
    values = (
        w @ mean_log_prob(visible, x).sum(1, dtype=np.float64),
        w @ hidden.log_partition(b, zero).sum(1, dtype=np.float64),
    )
    layers = [
        map_parameters(partial(weighted_sum, w), derivatives)
        for derivatives in (
            log_prob_gradient(visible, x),
            prior_gradient(hidden, b, zero, mean, var),
        )
    ]
    return values, [x.T @ (w[:, None] * mean), *layers]


def of_incomplete(model, X, w):
    """The same for rows with NaN for missing values, summed over these, too."""
    X = np.asarray(X, np.float64)
    if number_of_states(model.layers[1]) <= MAX_SUMMED_STATES:
        return _over_hidden_states(model, X, w)
    if number_of_states(model.layers[0]) <= MAX_SUMMED_STATES:
        return _over_missing_states(model, X, w)
    return _of_gaussian_units(model, X, w)


def added(sums, new):
    """Derivatives by couplings and layers, added; the first may be None."""
    if sums is None:
        return new
    layers = [map_parameters(np.add, *pair) for pair in zip(sums[1:], new[1:], strict=True)]
    return [sums[0] + new[0], *layers]


def _over_hidden_states(model, X, w):
    visible, hidden = model.layers
    h = np.vstack(list(states_of(hidden, sum(model.sizes)))).astype(np.float64)
    fields = h @ model.weights.T.astype(np.float64)
    mean, var = visible.moments(fields, 0.0)
    log_probs, free = hidden.log_prob(h).sum(1), visible.log_partition(fields, 0.0)
    sizes, missing = column_sizes(visible), np.isnan(X)
    columns, x = missing[:, np.cumsum(sizes) - sizes].astype(float), np.where(missing, 0, X)
    value = w @ log_prob_of_seen(visible, X)
    of_states, of_missing, pairs = np.zeros(len(h)), np.zeros_like(fields), 0.0
    for rows in blocks(len(X), len(X) * len(h)):
        logs = x[rows] @ fields.T + columns[rows] @ free.T + log_probs
        of_rows, p = _weighted_states(logs, w[rows])
        value += of_rows
        of_states += p.sum(0)
        of_missing += p.T @ missing[rows]
        pairs = pairs + x[rows].T @ (p @ h)
    pairs = pairs + (of_missing * mean).T @ h
    of_seen = w[:, None] * ~missing
    parts = [
        _weighted(visible, prior_gradient(visible, fields, 0.0, mean, var), of_missing),
        _weighted(visible, log_prob_gradient(visible, with_means(visible, X)), of_seen),
    ]
    above = map_parameters(partial(weighted_sum, of_states), log_prob_gradient(hidden, h))
    return value, [pairs, map_parameters(np.add, *parts), above]


def _weighted_states(logs, w):
    """Weighted sum over rows of log sum_states exp(logs), and probabilities of states times w."""
    top = logs.max(1, keepdims=True)
    p = np.exp(logs - top)
    total = p.sum(1, keepdims=True)
    return w @ (top + np.log(total))[:, 0], p * (w[:, None] / total)


def _weighted(prior, derivatives, weights):
    """Sums over rows of derivatives, with a weight for each row and unit."""
    parts = [
        map_parameters(lambda d, w=w: (w.reshape(*w.shape, *[1] * (d.ndim - 2)) * d).sum(0), part)
        for part, (_, w) in zip(parts_of(derivatives), by_parts(prior, weights), strict=True)
    ]
    return joined(prior, parts)


def _over_missing_states(model, X, w):
    visible, hidden = model.layers
    columns = flat_states(visible)
    values, seen = columns.values.toarray(), np.nan_to_num(X, nan=0.0)
    value, sums = 0.0, None
    for rows, of_states, tables in batches_of_rows(columns.missing(X), columns.offsets):
        candidates = one_hot_states(tables)
        n = max(1, BLOCK_ENTRIES // (len(candidates) * sum(model.sizes)))
        for start in range(0, len(rows), n):
            batch = rows[start : start + n]
            completions = candidates @ values[of_states[start : start + n]]
            x = (seen[batch][:, None] + completions).reshape(-1, X.shape[1])
            logs = mean_log_prob(visible, x).sum(1)
            logs += hidden.log_partition(x @ model.weights, 0.0).sum(1)
            logs = logs.reshape(len(batch), -1)
            of_rows, p = _weighted_states(logs, w[batch])
            value += of_rows
            sums = added(sums, of_complete(model, x, p.ravel())[1])
    return value, sums


def _of_gaussian_units(model, X, w):
    visible, hidden = model.layers
    weights, n = model.weights.astype(np.float64), model.n_visible
    d = np.append(precisions(visible), precisions(hidden))
    f = np.append(fields_of(visible), fields_of(hidden))
    alone = [layer.log_partition(0.0, 0.0).astype(np.float64) for layer in model.layers]
    alone = np.concatenate(alone) - (f * f / d - np.log(d)) / 2
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
        value += v @ (logs + alone[free].sum())
        first += v @ x
        second += x.T @ (v[:, None] * x)
        second[np.ix_(free, free)] += v.sum() * covariance
    moments = np.array([first, np.diag(second), np.full(len(d), w.sum())])
    layers = [
        average_gradient(layer, moments[:, units])
        for layer, units in ((visible, slice(n)), (hidden, slice(n, None)))
    ]
    return value, [second[:n, n:], *layers]
