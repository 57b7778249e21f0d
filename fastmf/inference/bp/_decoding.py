"""Decoding by restarts and local search, and the bound of Mooij and Kappen on uniqueness."""

import numpy as np

from fastmf._common.arguments import generator
from fastmf._threads.workers import in_parallel, workers_for
from fastmf.kernels.bp.arguments import BPProblem, BPRecord
from fastmf.kernels.bp.local_search import ClimbSettings, climb

# The bound is valid after any number of power iterations.
MAX_POWER_ITERATIONS = 200


def draws_per_row(model, n_restarts):
    """Random numbers that `set_assignments` draws for a row.

    A row can so be given the same random numbers whichever other rows are solved with it.
    """
    return (n_restarts + 1) * len(model.weights)


def set_assignments(units, record, starts, n_starts, rng):
    """Start rows from assignments, except the first of each `n_starts` rows.

    From those in `starts`, the same for each group of rows, or random ones if that is None.
    """
    n_rows, n = record.visible.shape
    if starts is None:
        visible = generator(rng).random((n_rows, n)) < 0.5
    else:
        visible = np.tile(np.vstack([np.zeros((1, n), bool), starts]), (n_rows // n_starts, 1))
    at_assignments = np.arange(n_rows) % n_starts > 0
    set_visible(units, record, at_assignments, visible[at_assignments])


def set_visible(units, record, rows, visible):
    """Start some rows from visible {0, 1} units: one assignment each, or the same for all."""
    weights = units.model.weights
    record.visible[rows] = np.where(visible, 1.0, -1.0)
    sums = visible.astype(weights.dtype) @ weights
    record.hidden[rows, : weights.shape[1]] += sums.astype(np.float64) * units.factor


def polish_rows(options, units, settings, problem, record):
    """Make the best assignment of each row a local maximum, all in float64.

    Returns
    -------
    bool array of shape (n_rows,)
        Whether no flip of one visible unit improves the assignment.
    """
    weights, joint = units.weights(), options.algorithm == "max"
    (n, m), n_rows = weights.shape, len(record.best)
    problem = BPProblem(
        weights=weights,
        exponentials=np.exp(weights[:0] if joint else weights),
        starts=weights[:0],
        row_sums=weights.sum(1),
        visible_field=problem.visible_field,
        hidden_field=np.ascontiguousarray(problem.hidden_field[:, :m]),
    )
    optimal, queue = np.zeros(n_rows, bool), np.zeros(2, np.int64)
    n_workers = workers_for(n_rows, 20 * n_rows * n * m, options.n_threads)
    climbing = ClimbSettings(joint, settings.max_factors, 1 + abs(weights).sum(1))
    workspaces = np.empty((n_workers, 3, m))
    outcome = record.best, record.objective, optimal
    in_parallel(climb, (climbing, problem, workspaces, *outcome, queue), n_workers)
    return optimal


def best_of(record, optimal, n_starts):
    """The record of the best of each `n_starts` rows, and whether it is a local maximum."""
    first = np.arange(0, len(record.objective), n_starts)
    best = first + record.objective.reshape(-1, n_starts).argmax(1)
    record = BPRecord(*(part[best] if len(part) else part for part in record))
    return record, None if optimal is None else optimal[best]


def spectral_radius_bound(weights):
    """Upper bound of the spectral radius of Mooij and Kappen (2007), Corollary 3.

    Below 1, sum-product has one fixed point and converges to it from any messages, whatever the
    fields. By Collatz and Wielandt, max (A x)_i / x_i is an upper bound of the spectral radius of A
    for every positive x; power iteration makes it tight, slowly on trees (whose radius is 0).

    Parameters
    ----------
    weights : array of shape (n_visible, n_hidden)
        Couplings of {0, 1} units: four times those of spins.
    """
    strength = np.tanh(abs(weights.astype(np.float64)) / 4)
    if not strength.size:
        return 0.0
    x, bound = np.ones_like(strength), np.inf
    for _ in range(MAX_POWER_ITERATIONS):
        back = strength * (x.sum(0) - x)
        new = strength * (back.sum(1, keepdims=True) - back)
        ratio = (new / x).max()
        if ratio >= bound * (1 - 1e-9):
            break
        bound = ratio
        # The added multiple of x keeps it positive, and damps oscillations.
        x = new.clip(min=0) + 0.1 * bound * x + 1e-300
        x /= x.max()
        x = x.clip(min=1e-250)
    return float(np.sqrt(min(bound, ratio)))
