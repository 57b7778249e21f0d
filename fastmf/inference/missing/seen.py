"""Rows in which values are missing, NaN: the likelihood of what was seen, and means given it.

Units that were not seen are summed or integrated out, together with the hidden ones: exactly where
`exact_given` does, and else by a mean-field solution in which the units that were seen are clamped,
or chains that are annealed from there.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from fastmf._common.rows import blocks, row_blocks
from fastmf.inference.mean_field.gaussian_layers import collapsed_tap
from fastmf.inference.missing.layered import exact_given, log_likelihood
from fastmf.inference.sampling.annealing import MATCHING, log_mean, neutral_base
from fastmf.priors._groups import column_sizes, groups, has_groups
from fastmf.priors._protocol import by_parts, can_draw, draw
from fastmf.priors._queries import gaussian_units, mean_log_prob, two_values
from fastmf.priors._rows import states

# Chains of a row that are annealed, and steps.
ROW_CHAINS, ROW_STEPS = 16, 128


class MeansGivenSeen(NamedTuple):
    """Result of `means_given_seen`."""

    mean: tuple  # tuple of arrays of shape (n_rows, n_units): means of the units of each layer
    log_partition: np.ndarray  # float64 (n_rows,): see `GivenSeen`
    # bool (n_rows,): whether means are exact, or their mean-field solution has converged
    converged: np.ndarray


def incomplete_rows(X):
    """Which rows lack values, bool array of shape (n_rows,)."""
    return np.isnan(X.sum(1))


def with_means(prior, X):
    """Rows in which missing values are the means of uncoupled units."""
    zero = prior.moments(X.dtype.type(0), X.dtype.type(0))[0]
    return np.where(np.isnan(X), zero, X).astype(X.dtype, copy=False)


def log_prob_of_seen(prior, X):
    """Sum of log_prob over the units of each row that were seen, float64 (n_rows,)."""
    log_probs = mean_log_prob(prior, with_means(prior, X))
    return np.where(np.isnan(X), 0, log_probs).sum(1, dtype=np.float64)


def means_given_seen(model, X, *, most=None, **options):
    """Means of all units given those that were seen."""
    exact = exact_given(model, X, most)
    log_partition, converged = exact.log_partition, np.ones(len(X), bool)
    means = _by_layers(model, exact.sides)
    remaining = np.flatnonzero(~exact.exact)
    if len(remaining):
        solved, log_partition[remaining] = _solutions(model, X[remaining], **options)
        converged[remaining] = solved.converged
        for mean, of_left in zip(means, solved.mean, strict=True):
            mean[remaining] = of_left
        means[0][remaining] = np.where(np.isnan(X[remaining]), solved.mean[0], X[remaining])
    return MeansGivenSeen(tuple(means), log_partition, converged)


def _by_layers(model, sides):
    """Units of the even and of the odd layers as units of each layer."""
    parts = [np.split(side, np.cumsum(model.sizes[k::2])[:-1], 1) for k, side in enumerate(sides)]
    return [parts[k % 2][k // 2].copy() for k in range(len(model.sizes))]


def _solutions(model, X, **options):
    """Mean-field solutions given what was seen, and their `GivenSeen.log_partition`.

    Clamped units need states. Means and probabilities are clamped at the nearest states, and the
    difference acts on the units above as a field.
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
    """The states of two-valued units, and of groups, that are nearest to means of them."""
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
    """Logs of the sums over units that were not seen, by annealing, and their standard errors.

    The fields of the independent units from which the chains of a row start are between none and
    those of its mean-field solution, which is one of many phases where little was seen. All rows
    have the same random numbers, so that the value of a row does not depend on the others.
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
    """Logs of the sums over missing and hidden units of rows, and their standard errors.

    Chains start with the tilts `base`, which are zero for the given units, and end with `fields`.
    """
    seen, sizes, zero = ~np.isnan(X), column_sizes(pair.visible), pair.dtype.type(0)
    alone = pair.visible.log_partition(base[0], zero).astype(np.float64)
    alone = np.where(seen[:, np.cumsum(sizes) - sizes], 0, alone).sum(1)
    alone += pair.hidden.log_partition(base[1], zero).sum(1, dtype=np.float64)
    added = [-c if fields is None else f - c for c, f in zip(base, fields or base, strict=True)]
    parts = [
        [log_mean(logs) for logs in _annealed(pair, *(x[rows, None] for x in (X, *base, *added)))]
        for rows in blocks(len(X), len(X) * ROW_CHAINS * sum(pair.sizes))
    ]
    means, errors = np.concatenate(parts).T
    return alone + means, errors


def _annealed(pair, X, c_v, c_h, d_v, d_h):
    """Log-weights of the chains of rows whose tilts move from c to c + d, (n_rows, ROW_CHAINS)."""
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


def log_likelihood_of_seen(model, X, log_partition, *, most=None, anneal=False, **options):
    """Log-likelihoods of what was seen of rows, and errors: 0 of exact ones, NaN of mean field."""
    X, out = states(model.layers[0], X, model.dtype), np.empty(len(X))
    lacking, errors = incomplete_rows(X), np.zeros(len(X))
    only_gaussian = all(gaussian_units(layer).all() for layer in model.layers)  # TAP is exact
    anneal = anneal and all(map(can_draw, model.layers)) and not only_gaussian
    if not lacking.all():
        given = options if model.deep else {}
        out[~lacking] = log_likelihood(model, X[~lacking], log_partition, **given)
    for rows in row_blocks(X):
        rows = rows.start + np.flatnonzero(lacking[rows])
        if not len(rows):
            continue
        solved = exact_given(model, X[rows], most)
        values, remaining = solved.log_partition, ~solved.exact
        if remaining.any() and anneal:
            annealed = annealed_given_seen(model, X[rows[remaining]], options.get("n_threads"))
            values[remaining], errors[rows[remaining]] = annealed
        elif remaining.any():
            values[remaining] = _solutions(model, X[rows[remaining]], **options)[1]
            errors[rows[remaining]] = 0 if only_gaussian else np.nan
        out[rows] = log_prob_of_seen(model.layers[0], X[rows]) + values - log_partition
    return out, errors
