"""Likelihood of the observed values of rows with missing values (NaN), and conditional means.

Missing units are summed or integrated out, together with the hidden units, in a layered machine
written as an RBM with the sides v and h. Rows may lack any of the units v. Exact sums enumerate one
side: either

    log p(h | seen) = log p(h) + sum over seen v_i (W h)_i + sum over missing log Z_i((W h)_i)

up to a constant, for all states h, which takes two matrix products for all rows; or log p(v | seen)
for all states of the missing units, with h summed out. Otherwise observed units are clamped in a
mean-field solution, or in chains that are annealed from its fields.
"""

from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from fastmf._common.rows import BLOCK_ENTRIES, blocks, is_incomplete, row_blocks
from fastmf.inference.mean_field.gaussian_layers import collapsed_tap
from fastmf.inference.mean_field.likelihood import log_likelihood as mean_field_log_likelihood
from fastmf.inference.sampling.gibbs import MATCHING, log_mean, neutral_base
from fastmf.inference.sampling.states import batches_of_rows, flat_states, one_hot_states
from fastmf.models.exact import (
    MAX_LAYER_STATES,
    MAX_LAYER_UNITS,
    missing_columns,
    normalized,
    sums_over_side,
)
from fastmf.models.layered import places_on_sides
from fastmf.priors._groups import column_sizes, groups, has_groups
from fastmf.priors._protocol import as_dtype, by_parts, can_draw, draw
from fastmf.priors._queries import gaussian_units, mean_log_prob, number_of_states, two_values
from fastmf.priors._values import log_prob_of_rows, states

# Maximum work of an enumeration for one row: states times units of the other side.
MAX_WORK_OF_ROW = 1 << 22
# Cost of the log-partition of a unit, in terms of a matrix product.
LOG_PARTITION_COST = 8


class GivenSeen(NamedTuple):
    """Result of `exact_given`."""

    # float64 (n_rows, n_visible): means of the visible units; observed values are unchanged
    mean: np.ndarray
    # float64 (n_rows,): log of the sum over all unobserved units, without the priors of observed
    # units
    log_partition: np.ndarray
    # bool (n_rows,): False if both sides have too many states; then the other fields are NaN
    exact: np.ndarray
    # tuple of two arrays of shape (n_rows, n_units): means of the units of all even layers, and of
    # all odd layers
    sides: tuple


def enumerable(model, max_work=MAX_LAYER_STATES):
    """Whether one side of an RBM or DBM can be enumerated: states times units of the other."""
    pair = model.bipartite()
    return any(_work(*sides) <= max_work for sides in (pair.layers, pair.layers[::-1]))


def _work(summed, other):
    """Return the states of one side times units of the other; infinite for too many units."""
    if len(column_sizes(summed)) > MAX_LAYER_UNITS:
        return np.inf
    return number_of_states(summed) * int(column_sizes(other).sum())


def exact_given(model, X, max_work=None):
    """Compute means and log-partitions given the observed visible units of rows."""
    pair, max_work = model.bipartite(), MAX_WORK_OF_ROW if max_work is None else max_work
    n_rows, n = X.shape
    X = np.hstack([np.asarray(X, float), np.full((n_rows, pair.n_visible - n), np.nan)])
    of_missing = LOG_PARTITION_COST * _work_of_missing(pair, X)
    of_hidden = _work(pair.hidden, pair.visible)
    even, odd = (np.full((n_rows, size), np.nan) for size in pair.sizes)
    log_partition = np.full(n_rows, np.nan)
    for solve, rows in (
        (_sum_over_missing, (of_missing <= of_hidden) & (of_missing <= max_work)),
        (partial(_sum_over_hidden, of_hidden), (of_missing > of_hidden) & (of_hidden <= max_work)),
    ):
        if rows.any():
            even[rows], odd[rows], log_partition[rows] = solve(pair, X[rows])
    even = np.where(np.isnan(X), even, X)
    return GivenSeen(even[:, :n], log_partition, ~np.isnan(log_partition), (even, odd))


def _work_of_missing(pair, X):
    """Return states of the missing units times hidden units; infinite if not discrete."""
    columns = flat_states(pair.visible)
    if columns is None:
        return np.full(len(X), np.inf)
    log_states = columns.missing(X) @ np.log2(np.diff(columns.offsets))
    return pair.n_hidden * 2.0 ** np.minimum(log_states, 1000)


def _sum_over_hidden(work, pair, X):
    """Sum over all states of the hidden side, which takes this work for one row."""
    visible, hidden = (as_dtype(layer, np.float64) for layer in pair.layers)

    def summands(w, h, fields):
        return visible.moments(fields, 0.0)[0].T @ w.T, h.T @ w.T

    parts, n_states = [], min(work, BLOCK_ENTRIES // 4) / max(pair.n_visible, 1)
    for rows in blocks(len(X), len(X) * n_states):
        log_partition, sums = sums_over_side(
            hidden, visible, pair.weights.T.astype(float), summands, X[rows]
        )
        parts.append((*(means.T for means in sums), log_partition))
    return map(np.concatenate, zip(*parts, strict=True))


def _sum_over_missing(pair, X):
    """Sum over all states of the missing units; the hidden side is summed analytically."""
    hidden, columns = as_dtype(pair.hidden, np.float64), flat_states(pair.visible)
    means, log_partition = np.zeros((len(X), len(columns.log_weights))), np.empty(len(X))
    of_hidden = np.empty((len(X), pair.n_hidden))
    for rows, of_states, candidates, fields, logs in completions(pair, columns, X):
        log_partition[rows], w = normalized(logs)
        means[rows[:, None], of_states] = w @ candidates
        given_state = hidden.moments(fields, 0.0)[0].reshape(*w.shape, -1)
        of_hidden[rows] = np.einsum("rs,rsu->ru", w, given_state)
    return columns.means(means), of_hidden, log_partition


def completions(pair, columns, X):
    """Yield blocks of rows, and the log-weights of all states of their missing units.

    Yields numbers of rows, (n_rows,), and of states of their missing columns, (n_rows, n_numbers);
    the joint states, (n_states, n_numbers), one-hot; the fields of the hidden units,
    (n_rows * n_states, n_hidden); and the log-weights, (n_rows, n_states).
    """
    weights, hidden = pair.weights.astype(float), as_dtype(pair.hidden, np.float64)
    given, table = np.nan_to_num(X, nan=0.0) @ weights, columns.values @ weights
    for rows, of_states, sizes in batches_of_rows(columns.missing(X), columns.offsets):
        candidates = one_hot_states(sizes)
        for block in blocks(len(rows), len(rows) * len(candidates) * sum(pair.sizes)):
            numbers, states_of_rows = rows[block], of_states[block]
            fields = given[numbers][:, None] + candidates @ table[states_of_rows]
            fields = fields.reshape(-1, pair.n_hidden)
            free = hidden.log_partition(fields, 0.0).sum(1).reshape(len(numbers), -1)
            logs = columns.log_weights[states_of_rows] @ candidates.T + free
            yield numbers, states_of_rows, candidates, fields, logs


def log_likelihood(model, X, log_partition, max_work=None, **options):
    """Compute the log-likelihood of rows, for deep machines by exact sums if they are small."""
    if model.deep:
        exact = exact_given(model, states(model.layers[0], X, np.float64), max_work)
        if exact.exact.all():
            visible = log_prob_of_rows(model.layers[0], X, model.dtype)
            return visible + exact.log_partition - log_partition
    return mean_field_log_likelihood(model, X, log_partition, **options)


# --- mean-field solutions -------------------------------------------------------------------------


def promising_starts(prior, X, solutions, rows, n_starts):
    """Return means of solutions that are probable given the observed units, and nearest rows."""
    logs = _log_likelihoods(prior, X, solutions) + solutions.log_partition
    first = np.argsort(-logs, axis=1, kind="stable")[:, : max(1, n_starts - 2)]
    seen = ~np.isnan(X)
    distances = seen @ np.square(rows).T - 2 * np.where(seen, X, 0) @ rows.T
    nearest = np.argsort(distances, axis=1, kind="stable")[:, : n_starts - first.shape[1]]
    return np.concatenate([solutions.mean[0][first], rows[nearest]], axis=1)


def _log_likelihoods(prior, X, solutions):
    """Compute log-probabilities of observed units under each solution, up to a row's constant."""
    parts = (by_parts(prior, array[0]) for array in (solutions.mean, solutions.b, solutions.a))
    total = 0.0
    for (part, x), (_, mean), (_, b), (_, a) in zip(by_parts(prior, X), *parts, strict=True):
        seen, x = ~np.isnan(x), np.nan_to_num(x, nan=0.0)
        if has_groups(part):
            total = total + x @ np.log(np.maximum(mean, np.finfo(mean.dtype).tiny)).T
        else:
            total = total + x @ b.T - np.square(x) @ a.T / 2 - seen @ part.log_partition(b, a).T
    return total


def average_of_phases(means, compared, log_partition, converged, merge_tol=1e-2):
    """Average the solutions of each row that differ in `compared`, weighted as separate phases."""
    any_converged = converged.any(1)
    counts = (converged | ~any_converged[:, None]) & np.isfinite(log_partition)
    for k in range(means.shape[1]):
        for earlier in range(k):
            is_equal = abs(compared[:, k] - compared[:, earlier]).max(1) <= merge_tol
            counts[:, k] &= ~(is_equal & counts[:, earlier])
    nothing = ~counts.any(1)
    counts[nothing] = True
    logs = np.where(counts, np.where(nothing[:, None], 0.0, log_partition), -np.inf)
    weights = normalized(logs)[1].astype(means.dtype)
    return np.einsum("rs,rsu->ru", weights, means), any_converged


# Number of annealed chains of a row, and of steps.
ROW_CHAINS, ROW_STEPS = 16, 128


class MeansGivenSeen(NamedTuple):
    """Result of `means_given_seen`."""

    mean: tuple  # tuple of arrays of shape (n_rows, n_units): means of the units of each layer
    log_partition: np.ndarray  # float64 (n_rows,): see `GivenSeen`
    # bool (n_rows,): whether means are exact, or the mean-field solution has converged
    converged: np.ndarray


def incomplete_rows(X):
    """Return which rows lack values, bool array of shape (n_rows,)."""
    return np.isnan(X.sum(1))


def with_means(prior, X):
    """Replace missing values by the means of uncoupled units."""
    zero = prior.moments(X.dtype.type(0), X.dtype.type(0))[0]
    return np.where(np.isnan(X), zero, X).astype(X.dtype, copy=False)


def log_prob_of_seen(prior, X):
    """Sum log_prob over the observed units of each row, float64 (n_rows,)."""
    log_probs = mean_log_prob(prior, with_means(prior, X))
    return np.where(np.isnan(X), 0, log_probs).sum(1, dtype=np.float64)


def means_given_seen(model, X, *, max_work=None, **options):
    """Compute means of all units given the observed units."""
    exact = exact_given(model, X, max_work)
    log_partition, converged = exact.log_partition, np.ones(len(X), bool)
    places = enumerate(places_on_sides(model.sizes))
    means = [exact.sides[k % 2][:, units].copy() for k, units in places]
    remaining = np.flatnonzero(~exact.exact)
    if len(remaining):
        solved, log_partition[remaining] = _solutions(model, X[remaining], **options)
        converged[remaining] = solved.converged
        for mean, solved_mean in zip(means, solved.mean, strict=True):
            mean[remaining] = solved_mean
        means[0][remaining] = np.where(np.isnan(X[remaining]), solved.mean[0], X[remaining])
    return MeansGivenSeen(tuple(means), log_partition, converged)


def _solutions(model, X, **options):
    """Solve rows by mean field given observed units; also return `GivenSeen.log_partition`.

    Clamped units need states. Means and probabilities are clamped at the nearest states, and the
    difference acts on the next layer as a field.
    """
    visible, seen = model.layers[0], ~np.isnan(X)
    start = with_means(visible, X)
    nearest = np.where(seen, nearest_states(visible, start), start).astype(X.dtype)
    fields = [None] * len(model.layers)
    fields[1] = np.where(seen, start - nearest, 0).astype(X.dtype) @ model.couplings[0]
    clamp = np.where(seen, nearest, np.nan)
    solved = collapsed_tap(model, nearest, clamp=clamp, field=tuple(fields), **options)
    clamped_terms = mean_log_prob(visible, np.where(seen, nearest, start).astype(np.float64))
    return solved, solved.log_partition - np.where(seen, clamped_terms, 0).sum(1)


def nearest_states(prior, X):
    """Round means of two-valued units, and of groups, to the nearest states."""
    parts = []
    for part, x in by_parts(prior, X):
        if has_groups(part):
            nearest = np.zeros_like(x)
            for group in groups(part):
                nearest[np.arange(len(x)), group.start + x[:, group].argmax(1)] = 1
            x = nearest
        elif two_values(part):
            low, high = two_values(part)
            x = np.where(2 * x < low + high, low, high)
        parts.append(x)
    return np.concatenate(parts, axis=1)


def annealed_given_seen(model, X, n_threads=None):
    """Estimate logs of the sums over unobserved units by annealing, and their standard errors.

    The chains of a row start from independent units, with a fraction of the fields of its
    mean-field solution: a small one if little was observed, as that is one of many phases. All rows
    use the same random numbers, so that the value of a row does not depend on other rows.
    """
    pair = model.bipartite()
    solved, _ = _solutions(model, X, order=1, n_threads=n_threads, tol=1e-3, max_iter=100)
    share = (MATCHING * (1 - np.isnan(X).mean(1, keepdims=True))).astype(X.dtype)
    neutral = neutral_base(pair, all(map(two_values, pair.layers)))
    tilts = (np.hstack(solved.b[side::2]) for side in (0, 1))
    c_v, c_h = (
        c + share * np.nan_to_num(b - c, posinf=0, neginf=0)
        for c, b in zip(neutral, tilts, strict=True)
    )
    X = np.hstack([X, np.full((len(X), pair.n_visible - X.shape[1]), np.nan, X.dtype)])
    return annealed_rows(pair, X, (np.where(np.isnan(X), c_v, 0), c_h))


def annealed_rows(pair, X, base, fields=None):
    """Estimate logs of the sums over missing and hidden units of rows, and standard errors.

    Chains start with the tilts `base`, which are zero for observed units, and end with `fields`.
    """
    zero = pair.dtype.type(0)
    start = pair.visible.log_partition(base[0], zero).astype(np.float64)
    start = np.where(missing_columns(pair.visible, X), start, 0).sum(1)
    start += pair.hidden.log_partition(base[1], zero).sum(1, dtype=np.float64)
    added = [-c if fields is None else f - c for c, f in zip(base, fields or base, strict=True)]
    parts = [
        [log_mean(logs) for logs in _annealed(pair, *(x[rows, None] for x in (X, *base, *added)))]
        for rows in blocks(len(X), len(X) * ROW_CHAINS * sum(pair.sizes))
    ]
    means, errors = np.concatenate(parts).T
    return start + means, errors


def _annealed(pair, X, c_v, c_h, d_v, d_h):
    """Anneal tilts of rows from c to c + d; return log-weights of chains, (n_rows, ROW_CHAINS)."""
    rng, zero, (n_v, n_h) = np.random.default_rng(0), pair.dtype.type(0), pair.sizes
    X, seen = np.nan_to_num(X), ~np.isnan(X)
    v = np.where(seen, X, draw(pair.visible, c_v, zero, rng.random((ROW_CHAINS, n_v))))
    logs, transposed = 0.0, pair.weights.T
    for old, new in pairwise(np.linspace(0, 1, ROW_STEPS + 1).tolist()):
        tilts = [c_h + beta * (v @ pair.weights + d_h) for beta in (old, new)]
        before, after = (pair.hidden.log_partition(b, zero) for b in tilts)
        logs = logs + (after - before).sum(-1, dtype=np.float64) + (new - old) * (v * d_v).sum(-1)
        h = draw(pair.hidden, tilts[1], zero, rng.random((ROW_CHAINS, n_h)))
        b = c_v + new * (h @ transposed + d_v)
        v = np.where(seen, X, draw(pair.visible, b, zero, rng.random((ROW_CHAINS, n_v))))
    return logs


def log_likelihood_of_seen(model, X, log_partition, *, max_work=None, anneal=False, **options):
    """Compute log-likelihoods of observed values, and errors: 0 if exact, NaN for mean field."""
    X, out = states(model.layers[0], X, model.dtype), np.empty(len(X))
    lacking, errors = incomplete_rows(X), np.zeros(len(X))
    only_gaussian = all(gaussian_units(layer).all() for layer in model.layers)  # TAP is exact
    anneal = anneal and all(map(can_draw, model.layers)) and not only_gaussian
    if not lacking.all():
        given = options if model.deep else {}
        out[~lacking] = log_likelihood(model, X[~lacking], log_partition, **given)
    incomplete = np.flatnonzero(lacking)
    for block in blocks(len(incomplete), len(incomplete) * X.shape[1]):
        rows = incomplete[block]
        solved = exact_given(model, X[rows], max_work)
        values, remaining = solved.log_partition, ~solved.exact
        if remaining.any() and anneal:
            annealed = annealed_given_seen(model, X[rows[remaining]], options.get("n_threads"))
            values[remaining], errors[rows[remaining]] = annealed
        elif remaining.any():
            values[remaining] = _solutions(model, X[rows[remaining]], **options)[1]
            errors[rows[remaining]] = 0 if only_gaussian else np.nan
        out[rows] = log_prob_of_seen(model.layers[0], X[rows]) + values - log_partition
    return out, errors


def log_likelihoods(model, X, log_partition, **options):
    """Compute log-likelihoods of the observed values of rows, in blocks."""
    if is_incomplete(X):
        return log_likelihood_of_seen(model, X, log_partition, **options)[0]
    parts = [log_likelihood(model, X[rows], log_partition, **options) for rows in row_blocks(X)]
    return np.concatenate(parts)
