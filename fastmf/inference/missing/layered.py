"""Means of the missing visible units of a layered machine given the others.

Exactly, by enumeration of one side of the machine as an RBM of two sides v and h, for rows that
lack any of the units v:

    log p(h | seen) = log p(h) + sum over seen v_i (W h)_i + sum over missing log Z_i((W h)_i)

for all states h, which are two matrix products for all rows at once; or log p(v | seen) for all
states of the missing units, with the units h summed out. Else from several mean-field solutions,
each with its weight.
"""

from typing import NamedTuple

import numpy as np

from fastmf._common.rows import BLOCK_ENTRIES
from fastmf.inference.mean_field.likelihood import log_likelihood as mean_field_log_likelihood
from fastmf.inference.sampling.states import batches_of_rows, flat_states, one_hot_states
from fastmf.models.exact import MAX_LAYER_STATES, MAX_LAYER_UNITS, states_of
from fastmf.priors._groups import column_sizes, has_groups
from fastmf.priors._protocol import as_dtype, by_parts
from fastmf.priors._queries import number_of_states
from fastmf.priors._rows import log_prob_of_rows, states

# Largest enumeration of a row, states times units of the other side.
MAX_WORK_OF_ROW = 1 << 22
# A log-partition of a unit takes about as long as this many terms of a product.
LOG_PARTITION_COST = 8


class GivenSeen(NamedTuple):
    """Result of `exact_given`."""

    # float64 (n_rows, n_visible): means of the visible units; those that were seen are unchanged
    mean: np.ndarray
    # float64 (n_rows,): log of the sum over all unobserved units; without constants, log
    # p(observed)
    log_partition: np.ndarray
    # bool (n_rows,): false, and NaN in the others, where either side has too many states
    exact: np.ndarray
    # tuple of two arrays of shape (n_rows, n_units): means of the units of all even layers, and of
    # all odd layers
    sides: tuple


def enumerable(model, most=MAX_LAYER_STATES):
    """Whether the states of one side of an RBM or DBM, times units of the other, are few."""
    pair = model.bipartite()
    return any(_work(*sides) <= most for sides in (pair.layers, pair.layers[::-1]))


def _work(summed, other):
    """States of one side times units of the other; infinite if there are too many."""
    if len(column_sizes(summed)) > MAX_LAYER_UNITS:
        return np.inf
    return number_of_states(summed) * int(column_sizes(other).sum())


def exact_given(model, X, most=None):
    """Means and log-partitions given the visible units of rows that are not missing."""
    pair, most = model.bipartite(), MAX_WORK_OF_ROW if most is None else most
    n_rows, n = X.shape
    X = np.hstack([np.asarray(X, float), np.full((n_rows, pair.n_visible - n), np.nan)])
    of_missing = LOG_PARTITION_COST * _work_of_missing(pair, X)
    of_hidden = _work(pair.hidden, pair.visible)
    even, odd = (np.full((n_rows, size), np.nan) for size in pair.sizes)
    log_partition = np.full(n_rows, np.nan)
    for solve, rows in (
        (_sum_over_missing, (of_missing <= of_hidden) & (of_missing <= most)),
        (_sum_over_hidden, (of_missing > of_hidden) & (of_hidden <= most)),
    ):
        if rows.any():
            even[rows], odd[rows], log_partition[rows] = solve(pair, X[rows])
    even = np.where(np.isnan(X), even, X)
    return GivenSeen(even[:, :n], log_partition, ~np.isnan(log_partition), (even, odd))


def _work_of_missing(pair, X):
    """States of the missing units of each row, times hidden units; infinite if not discrete."""
    columns = flat_states(pair.visible)
    if columns is None:
        return np.full(len(X), np.inf)
    log_states = columns.missing(X) @ np.log2(np.diff(columns.offsets))
    return pair.n_hidden * 2.0 ** np.minimum(log_states, 1000)


def _sum_over_hidden(pair, X):
    """Sums over all states of the hidden side."""
    visible, hidden = (as_dtype(layer, np.float64) for layer in pair.layers)
    weights, seen = pair.weights.astype(float), np.nan_to_num(X, nan=0.0)
    sizes = column_sizes(visible)
    missing = np.isnan(X[:, np.cumsum(sizes) - sizes]).astype(float)
    top, total, sums = np.full(len(X), -np.inf), np.zeros(len(X)), np.zeros(X.shape)
    of_hidden = np.zeros((len(X), pair.n_hidden))
    for h in states_of(hidden, max(pair.n_visible, pair.n_hidden, 512)):
        fields = h @ weights.T
        log_prior = hidden.log_prob(h).sum(1)
        free = visible.log_partition(fields, 0.0)
        mean = visible.moments(fields, 0.0)[0]
        n_rows = max(1, BLOCK_ENTRIES // len(h))
        for start in range(0, len(X), n_rows):
            block = slice(start, start + n_rows)
            logs = seen[block] @ fields.T + missing[block] @ free.T + log_prior
            largest = np.maximum(top[block], logs.max(1))
            scale = np.exp(top[block] - largest)
            w = np.exp(logs - largest[:, None])
            total[block] = scale * total[block] + w.sum(1)
            sums[block] = scale[:, None] * sums[block] + w @ mean
            of_hidden[block] = scale[:, None] * of_hidden[block] + w @ h
            top[block] = largest
    return sums / total[:, None], of_hidden / total[:, None], top + np.log(total)


def _sum_over_missing(pair, X):
    """Sums over all states of the missing units, the hidden side summed analytically."""
    weights, columns = pair.weights.astype(float), flat_states(pair.visible)
    hidden = as_dtype(pair.hidden, np.float64)  # as kernels take them
    given, table = np.nan_to_num(X, nan=0.0) @ weights, columns.values @ weights
    means, log_partition = np.zeros((len(X), len(table))), np.empty(len(X))
    of_hidden = np.empty((len(X), pair.n_hidden))
    for rows, of_states, sizes in batches_of_rows(columns.missing(X), columns.offsets):
        candidates = one_hot_states(sizes)
        n = max(1, BLOCK_ENTRIES // (len(candidates) * pair.n_hidden))
        for start in range(0, len(rows), n):
            numbers, block = rows[start : start + n], of_states[start : start + n]
            b = given[numbers][:, None] + candidates @ table[block]
            fields = b.reshape(-1, pair.n_hidden)
            free = hidden.log_partition(fields, 0.0).sum(1)
            logs = columns.log_weights[block] @ candidates.T + free.reshape(len(numbers), -1)
            top = logs.max(1, keepdims=True)
            w = np.exp(logs - top)
            means[numbers[:, None], block] = w @ candidates / w.sum(1, keepdims=True)
            given_state = hidden.moments(fields, 0.0)[0].reshape(b.shape)
            of_hidden[numbers] = np.einsum("rs,rsu->ru", w / w.sum(1, keepdims=True), given_state)
            log_partition[numbers] = top[:, 0] + np.log(w.sum(1))
    return columns.means(means), of_hidden, log_partition


def log_likelihood(model, X, log_partition, **options):
    """Compute the log-likelihood of rows, summing few hidden units of deep machines exactly."""
    if model.deep:
        exact = exact_given(model, states(model.layers[0], X, np.float64))
        if exact.exact.all():
            visible = log_prob_of_rows(model.layers[0], X, model.dtype)
            return visible + exact.log_partition - log_partition
    return mean_field_log_likelihood(model, X, log_partition, **options)


# --- mean-field solutions -------------------------------------------------------------------------


def promising_starts(prior, X, solutions, rows, n_starts):
    """Means of solutions that are probable given what was seen, and rows of data nearest to it."""
    logs = _log_likelihoods(prior, X, solutions) + solutions.log_partition
    first = np.argsort(-logs, axis=1, kind="stable")[:, : max(1, n_starts - 2)]
    seen = ~np.isnan(X)
    distances = seen @ np.square(rows).T - 2 * np.where(seen, X, 0) @ rows.T
    nearest = np.argsort(distances, axis=1, kind="stable")[:, : n_starts - first.shape[1]]
    return np.concatenate([solutions.mean[0][first], rows[nearest]], axis=1)


def _log_likelihoods(prior, X, solutions):
    """Log-probabilities of what was seen under each solution, up to a constant of the row."""
    parts = (by_parts(prior, array[0]) for array in (solutions.mean, solutions.b, solutions.a))
    total = 0.0
    for (part, x), (_, mean), (_, b), (_, a) in zip(by_parts(prior, X), *parts, strict=True):
        seen, x = ~np.isnan(x), np.nan_to_num(x, nan=0.0)
        if has_groups(part):
            total = total + x @ np.log(np.maximum(mean, np.finfo(mean.dtype).tiny)).T
        else:
            total = total + x @ b.T - np.square(x) @ a.T / 2 - seen @ part.log_partition(b, a).T
    return total


def average_of_phases(means, log_partition, converged, merge_tol=1e-2):
    """Means of several solutions of each row, weighted as phases of their own."""
    any_converged = converged.any(1)
    counts = (converged | ~any_converged[:, None]) & np.isfinite(log_partition)
    for k in range(means.shape[1]):
        for earlier in range(k):
            is_equal = abs(means[:, k] - means[:, earlier]).max(1) <= merge_tol
            counts[:, k] &= ~(is_equal & counts[:, earlier])
    nothing = ~counts.any(1)
    counts[nothing] = True
    logs = np.where(counts, np.where(nothing[:, None], 0.0, log_partition), -np.inf)
    weights = np.exp(logs - logs.max(1, keepdims=True))
    weights /= weights.sum(1, keepdims=True)
    return np.einsum("rs,rsu->ru", weights.astype(means.dtype), means), any_converged
