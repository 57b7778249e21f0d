"""Means of the missing units of a fully visible machine given the others.

Enumeration of the states of all missing units, in two halves A and B between which only one matrix
of couplings is left,

    p(a, b) ~ exp(f_A(a) + f_B(b) + a' J_AB b)

so that a row costs a matrix product and an exponential of each state; or particles that are
annealed from a spanning tree, with standard errors; or TAP.
"""

import math
from typing import NamedTuple

import numpy as np

from fastmf._common.rows import BLOCK_ENTRIES
from fastmf.inference.mean_field.tap import tap
from fastmf.inference.sampling.discrete import (
    MAX_ENUMERATED_STATES,
    Columns,
    annealed_probabilities,
)
from fastmf.inference.sampling.states import batches_of_rows, flat_states, one_hot_states
from fastmf.models.boltzmann import dense_machine

METHODS = ("auto", "exact", "annealing", "tap")
# Standard error of a probability that needs no more replicates, and the largest that is no failure.
GOAL_ERROR, WORST_ERROR = 0.003, 0.01


class ConditionalMeans(NamedTuple):
    """Result of `conditional_means`."""

    mean: np.ndarray  # (n_rows, n_units): observed values are unchanged
    # (n_rows,): largest standard error of the probability of a state: 0 where the means are exact,
    # NaN where that is not known (TAP)
    error: np.ndarray
    converged: np.ndarray  # bool (n_rows,)


def conditional_means(model, X, method="auto", *, seed=0, n_threads=None):
    """Means of missing units given the others."""
    model = dense_machine("conditional_means", model)
    states, X = flat_states(model.prior), np.asarray(X, float)
    incomplete = np.flatnonzero(states.missing(X).any(1))
    mean, error, converged = X.copy(), np.zeros(len(X)), np.ones(len(X), bool)
    if not len(incomplete):
        return ConditionalMeans(mean, error, converged)
    # Equal rows are computed once.
    marked = np.nan_to_num(X[incomplete], nan=1 + np.nanmax(abs(X), initial=0))
    _, first, inverse = np.unique(marked, axis=0, return_index=True, return_inverse=True)
    solve = _tap if method == "tap" else _summed
    distinct = solve(model, states, X[incomplete[first]], method, seed, n_threads)
    for out, part in zip((mean, error, converged), distinct, strict=True):
        out[incomplete] = part[inverse.reshape(-1)]
    return ConditionalMeans(mean, error, converged)


def _tap(model, states, X, method, seed, n_threads):
    """Means of distinct rows by mean field."""
    solved = tap(model, clamp=X, n_threads=n_threads)
    return ConditionalMeans(solved.mean, np.full(len(X), np.nan), solved.converged)


def _summed(model, states, X, method, seed, n_threads):
    """Means of distinct rows by enumeration or annealing."""
    missing = states.missing(X)
    log_states = missing @ np.log2(np.diff(states.offsets))
    enumerable = (log_states <= math.log2(MAX_ENUMERATED_STATES)) & (method != "annealing")
    if method == "exact" and not enumerable.all():
        raise ValueError(
            "method 'exact' takes rows whose missing values have at most "
            f"2^{math.log2(MAX_ENUMERATED_STATES):g} states together, got "
            f"2^{log_states.max():.0f}: take 'annealing', or 'tap'."
        )
    columns = Columns.of(states, model.couplings)
    fields = (states.values @ (np.nan_to_num(X, nan=0.0) @ model.couplings).T).T
    fields += states.log_weights
    p, error = np.zeros_like(fields), np.zeros(len(X))
    if enumerable.any():
        p[enumerable] = _enumerated(columns, fields[enumerable], missing[enumerable])
    for row in np.flatnonzero(~enumerable):
        chosen, rng = missing[row], np.random.default_rng(seed)
        numbers, part = columns.chosen(chosen, fields[row])
        p[row, numbers], error[row] = annealed_probabilities(
            part, rng, GOAL_ERROR, n_threads=n_threads
        )
    mean = np.where(np.isnan(X), states.means(p), X)
    return ConditionalMeans(mean, error, error <= WORST_ERROR)


# --- enumeration ----------------------------------------------------------------------------------


def _enumerated(columns, fields, missing):
    """Probabilities of the states of missing columns."""
    out = np.zeros_like(fields)
    for rows, states, sizes in batches_of_rows(missing, columns.offsets):
        halves = _halves(sizes)
        n = max(1, BLOCK_ENTRIES // max(math.prod(map(int, sizes)), states.shape[1] ** 2))
        for start in range(0, len(rows), n):
            of_rows, of_row = states[start : start + n], rows[start : start + n, None]
            couplings = columns.couplings[of_rows[:, :, None], of_rows[:, None]]
            out[of_row, of_rows] = _probabilities(couplings, fields[of_row, of_rows], *halves)
    return out


def _halves(sizes):
    """One-hot states of the first and of the other columns, about as many of each."""
    middle = np.searchsorted(np.cumsum(np.log(sizes)), np.log(sizes).sum() / 2) + 1
    return one_hot_states(sizes[:middle]), one_hot_states(sizes[middle:])


def _probabilities(couplings, field, first, second):
    """Probabilities of the states of each column, for a block of rows."""
    n = first.shape[1]
    logs = first @ couplings[:, :n, n:] @ second.T
    logs += _log_weights(couplings[:, :n, :n], field[:, :n], first)[:, :, None]
    logs += _log_weights(couplings[:, n:, n:], field[:, n:], second)[:, None]
    logs -= logs.max((1, 2), keepdims=True)
    weights = np.exp(logs, out=logs)
    sums = weights.sum(2) @ first, weights.sum(1) @ second
    return np.hstack(sums) / weights.sum((1, 2))[:, None]


def _log_weights(couplings, field, states):
    return field @ states.T + ((states @ couplings) * states).sum(2) / 2
