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

from fastmf._threads.workers import in_parallel, workers_for
from fastmf.inference.mean_field.tap import tap
from fastmf.inference.missing.layered import BLOCK_SIZE
from fastmf.inference.sampling.states import batches_of_rows, flat_states, one_hot_states
from fastmf.inference.sampling.trees import strengths
from fastmf.kernels.sampling.spanning_tree import TreeProblem
from fastmf.kernels.sampling.tree_annealing import TreeSettings, tree_annealing, tree_annealing_work
from fastmf.models._couplings import dense_machine

METHODS = ("auto", "exact", "annealing", "tap")
# Rows whose missing units have up to so many states together are enumerated: 20 binary units.
MAX_EXACT_STATES = 1 << 20
# Particles of a replicate times missing units, and limits of the first.
MAX_PARTICLE_LABELS, MIN_PARTICLES, MAX_PARTICLES = 25_000, 128, 1024
# Standard error of a probability that needs no more replicates, and the largest that is no failure.
GOAL_ERROR, WORST_ERROR = 0.003, 0.01
# Log-weight of states that do not occur.
LOG_WEIGHT_OF_NO_STATE = -1e300
ANNEALING_SETTINGS = {"n_sweeps": 3, "n_last_sweeps": 8, "min_replicates": 8, "max_replicates": 32}


class ConditionalMeans(NamedTuple):
    """Result of `conditional_means`.

    Parameters
    ----------
    mean : array of shape (n_rows, n_units)
        Observed values are unchanged.
    error : array of shape (n_rows,)
        Largest standard error of the probability of a state: 0 where the means are exact, NaN where
        that is not known (TAP).
    converged : bool array of shape (n_rows,)
    """

    mean: np.ndarray
    error: np.ndarray
    converged: np.ndarray


def conditional_means(model, X, method="auto", *, seed=0, n_threads=None):
    """Means of missing units given the others."""
    model = dense_machine("conditional_means", model)
    columns, X = flat_states(model.prior), np.asarray(X, float)
    incomplete = np.flatnonzero(columns.missing(X).any(1))
    mean, error, converged = X.copy(), np.zeros(len(X)), np.ones(len(X), bool)
    if not len(incomplete):
        return ConditionalMeans(mean, error, converged)
    # Equal rows are computed once.
    marked = np.nan_to_num(X[incomplete], nan=1 + np.nanmax(abs(X), initial=0))
    _, first, inverse = np.unique(marked, axis=0, return_index=True, return_inverse=True)
    solve = _tap if method == "tap" else _summed
    found = solve(model, columns, X[incomplete[first]], method, seed, n_threads)
    for whole, part in zip((mean, error, converged), found, strict=True):
        whole[incomplete] = part[inverse.reshape(-1)]
    return ConditionalMeans(mean, error, converged)


def _tap(model, columns, X, method, seed, n_threads):
    """Means of distinct rows by mean field."""
    found = tap(model, clamp=X, n_threads=n_threads)
    return ConditionalMeans(found.mean, np.full(len(X), np.nan), found.converged)


def _summed(model, columns, X, method, seed, n_threads):
    """Means of distinct rows by enumeration or annealing."""
    missing = columns.missing(X)
    log_states = missing @ np.log2(np.diff(columns.offsets))
    few = (log_states <= math.log2(MAX_EXACT_STATES)) & (method != "annealing")
    if method == "exact" and not few.all():
        raise ValueError(
            "method 'exact' takes rows whose missing values have at most "
            f"2^{math.log2(MAX_EXACT_STATES):g} states together, got 2^{log_states.max():.0f}: "
            "take 'annealing', or 'tap'."
        )
    fields = (columns.values @ (np.nan_to_num(X, nan=0.0) @ model.couplings).T).T
    # States that do not occur have a finite field, whose products with zero are zero.
    fields = np.ascontiguousarray(fields + np.maximum(columns.log_weights, LOG_WEIGHT_OF_NO_STATE))
    problem, p, error = _problem(columns, model.couplings), np.empty_like(fields), np.zeros(len(X))
    if few.any():
        p[few] = _enumerated(problem, fields[few], missing[few])
    if not few.all():
        others = fields[~few], missing[~few]
        p[~few], error[~few] = _annealed(problem, *others, seed, n_threads)
    never = np.isneginf(columns.log_weights)
    if never.any():
        p[:, never] = 0  # annealed probabilities are averages with errors
        totals = np.add.reduceat(p, columns.offsets[:-1], axis=1)
        p /= np.repeat(np.where(totals > 0, totals, 1), np.diff(columns.offsets), axis=1)
    mean = np.where(np.isnan(X), columns.means(p), X)
    return ConditionalMeans(mean, error, error <= WORST_ERROR)


def _problem(columns, couplings):
    """Couplings of a machine between states, as the kernel takes them."""
    J = np.ascontiguousarray(couplings, dtype=np.float64)
    if len(columns.log_weights) > len(J):  # otherwise units are states
        J = np.ascontiguousarray(columns.values @ (columns.values @ J).T)
    return TreeProblem(J, strengths(columns, couplings), columns.offsets)


# --- enumeration ----------------------------------------------------------------------------------


def _enumerated(problem, fields, missing):
    """Probabilities of the states of missing columns."""
    out = np.zeros_like(fields)
    for rows, states, sizes in batches_of_rows(missing, problem.offsets):
        halves = _halves(sizes)
        n = max(1, BLOCK_SIZE // max(math.prod(map(int, sizes)), states.shape[1] ** 2))
        for start in range(0, len(rows), n):
            here, of_row = states[start : start + n], rows[start : start + n, None]
            couplings = problem.couplings[here[:, :, None], here[:, None]]
            out[of_row, here] = _probabilities(couplings, fields[of_row, here], *halves)
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


# --- annealing ------------------------------------------------------------------------------------


def _annealed(problem, fields, missing, seed, n_threads):
    """Probabilities of the states of missing columns, and their largest standard errors."""
    n_missing = missing.sum(1)
    n_particles = np.clip(MAX_PARTICLE_LABELS // n_missing, MIN_PARTICLES, MAX_PARTICLES)
    settings = TreeSettings(seed=np.uint64(seed), tol=GOAL_ERROR, **ANNEALING_SETTINGS)
    n_workers = workers_for(len(fields), int((n_particles * n_missing) @ n_missing) * 4, n_threads)
    work = tree_annealing_work(problem, missing, n_particles, settings, n_workers)
    means, errors = np.zeros_like(fields), np.zeros(len(fields))
    arguments = problem, fields, missing, n_particles, settings, means, errors, work
    in_parallel(tree_annealing, arguments, n_workers)
    return means, errors
