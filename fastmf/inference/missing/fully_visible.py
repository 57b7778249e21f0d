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

from fastmf._threads import in_parallel, workers_for
from fastmf.inference.mean_field.tap import tap
from fastmf.inference.sampling.states import batches_of_rows, flat_states, one_hot_states
from fastmf.inference.sampling.trees import strengths
from fastmf.kernels.spanning_tree import TreeProblem
from fastmf.kernels.tree_annealing import TreeSettings, tree_annealing, tree_annealing_work

METHODS = ("auto", "exact", "annealing", "tap")
# Rows whose missing units have up to so many states together are enumerated: 20 binary units.
MAX_EXACT_STATES = 1 << 20
# Numbers in one block of rows.
BLOCK_SIZE = 1 << 21
# Particles of a replicate times missing units, and limits of the first.
MAX_LABELS, MIN_PARTICLES, MAX_PARTICLES = 25_000, 128, 1024
# Standard error of a probability that needs no more replicates, and the largest that is no failure.
TOL, MAX_ERROR = 0.003, 0.01
SETTINGS = {"n_sweeps": 3, "n_last_sweeps": 8, "min_replicates": 8, "max_replicates": 32}


class ConditionalMeans(NamedTuple):
    """What `conditional_means` returns.

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
    """Means of missing units given the others.

    Parameters
    ----------
    model : BoltzmannMachine
        With discrete units.
    X : array of shape (n_rows, n_units)
        With NaN for missing values: of a categorical unit, in all its states.
    method : {"auto", "exact", "annealing", "tap"}
        "auto" enumerates rows whose missing units have up to 2^20 states together, and anneals
        particles (`fastmf.kernels.tree_annealing`) for others.
    seed : int
        Of annealing.
    n_threads : int or None

    Returns
    -------
    ConditionalMeans

    Raises
    ------
    ValueError
        If the missing units of a row have too many states for "exact".
    """
    columns = flat_states(model.prior)
    # Equal rows are computed once.
    _, first, inverse = np.unique(
        np.nan_to_num(X, nan=1 + np.nanmax(abs(X), initial=0)),
        axis=0, return_index=True, return_inverse=True,
    )  # fmt: skip
    X = np.asarray(X[first], float)
    missing = columns.missing(X)
    log_states = missing @ np.log2(np.diff(columns.offsets))
    few = (log_states <= math.log2(MAX_EXACT_STATES)) & (method in ("auto", "exact"))
    if method == "exact" and not few.all():
        raise ValueError(
            "method 'exact' takes rows whose missing values have at most "
            f"2^{math.log2(MAX_EXACT_STATES):g} states together, got 2^{log_states.max():.0f}: "
            "take 'annealing', or 'tap'."
        )
    mean, error, converged = X.copy(), np.zeros(len(X)), np.ones(len(X), bool)
    some = missing.any(1)
    problem = None if method == "tap" else _problem(columns, model.couplings)
    for rows, solve in ((few & some, _enumerated), (~few & some, _annealed)):
        if rows.any() and method == "tap":
            found = tap(model, clamp=X[rows], n_threads=n_threads)
            mean[rows], error[rows], converged[rows] = found.mean, np.nan, found.converged
        elif rows.any():
            seen = np.nan_to_num(X[rows], nan=0.0) @ model.couplings
            fields = (columns.values @ seen.T).T + columns.log_weights
            found, error[rows] = solve(problem, fields, missing[rows], seed, n_threads)
            mean[rows] = np.where(np.isnan(X[rows]), columns.means(found), X[rows])
            converged[rows] = error[rows] <= MAX_ERROR
    inverse = inverse.reshape(-1)
    return ConditionalMeans(mean[inverse], error[inverse], converged[inverse])


def _problem(columns, couplings):
    """Couplings of a machine between states, as the kernel takes them."""
    J = np.ascontiguousarray(couplings, dtype=np.float64)
    if len(columns.log_weights) > len(J):  # otherwise units are states
        J = np.ascontiguousarray(columns.values @ (columns.values @ J).T)
    return TreeProblem(J, strengths(columns, couplings), columns.offsets)


# --- enumeration ----------------------------------------------------------------------------------


def _enumerated(problem, fields, missing, *_):
    """Probabilities of the states of missing columns."""
    out = np.zeros_like(fields)
    for rows, states, sizes in batches_of_rows(missing, problem.offsets):
        halves = _halves(sizes)
        n = max(1, BLOCK_SIZE // max(math.prod(map(int, sizes)), states.shape[1] ** 2))
        for start in range(0, len(rows), n):
            here, of_row = states[start : start + n], rows[start : start + n, None]
            couplings = problem.couplings[here[:, :, None], here[:, None]]
            out[of_row, here] = _probabilities(couplings, fields[of_row, here], *halves)
    return out, 0.0


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
    n_particles = np.clip(MAX_LABELS // n_missing, MIN_PARTICLES, MAX_PARTICLES)
    settings = TreeSettings(seed=np.uint64(seed), tol=TOL, **SETTINGS)
    n_workers = workers_for(len(fields), int((n_particles * n_missing) @ n_missing) * 4, n_threads)
    work = tree_annealing_work(problem, missing, n_particles, settings, n_workers)
    means, errors = np.zeros_like(fields), np.zeros(len(fields))
    arguments = problem, fields, missing, n_particles, settings, means, errors, work
    in_parallel(tree_annealing, arguments, n_workers)
    return means, errors
