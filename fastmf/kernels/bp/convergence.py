"""Convergence and damping of the rows of belief propagation.

There is one rule for all kinds of messages. A row has converged when an undamped sweep changes no
belief, log-odds or message by more than the tolerance; convergence of damped rows is confirmed by
such a sweep. The damping of a row is raised when its changes have not decreased for some sweeps.
"""

from typing import NamedTuple

import numpy as np

from fastmf._jit.intrinsics import larger, smaller
from fastmf._jit.kernel import kernel
from fastmf._outcomes import (
    CONFIRMING,
    CONVERGED,
    INFEASIBLE,
    MAX_DAMPING,
    MIN_LIMIT,
    MIN_LIMIT_FACTOR,
    OUT_OF_ITERATIONS,
    RUNNING,
)
from fastmf._threads.workers import next_task


class ConvergenceSettings(NamedTuple):
    """Criteria by which rows end, and are damped."""

    # Largest change of a row that has converged, and change that rounding may cause (this and the
    # next).
    tol: float
    rounding_error: float
    max_iter: int
    adaptive: bool  # whether to damp rows that do not converge


class ConvergenceRecord(NamedTuple):
    """Progress of rows: fields of every record of belief propagation."""

    status: np.ndarray  # int64 (n_rows,)
    n_iter: np.ndarray  # int64 (n_rows,)
    # float64 (n_rows,): largest change of a belief in the last sweep and, if it was undamped, of
    # its log-odds and, if these are below the tolerance, of a message; damping of all sweeps but
    # the ones that confirm convergence; smallest residual since the damping was last raised
    residual: np.ndarray
    damping: np.ndarray  # float64 (n_rows,)
    min_residual: np.ndarray  # float64 (n_rows,)
    n_stalled: np.ndarray  # int64 (n_rows,): sweeps since `min_residual`
    # float64 (n_rows,): largest change in a damped sweep after which the next one is undamped
    limit: np.ndarray
    history: np.ndarray  # float64 (n_rows, max_iter) or (0, 0): residuals of all sweeps


@kernel(mode="merged")
def sweep_damping(record, r):
    """Return the damping of the next sweep of a row: 0 in a sweep that confirms convergence."""
    return 0.0 if record.status[r] == CONFIRMING else record.damping[r]


@kernel(mode="merged")
def assess_row(settings, record, r, change, damping, patience):
    """Set residual, status and damping of a row after a sweep, given its largest change."""
    change /= 1 - damping
    n_iter, d = record.n_iter[r], record.damping[r]
    if record.history.shape[0] > 0:
        record.history[r, n_iter] = change
    n_iter += 1
    record.residual[r], record.n_iter[r] = change, n_iter
    # Undamped sweeps leave a fixed point that needs damping d to be stable at most this fast.
    limit = larger(settings.tol * (1 - d) / (1 + d), settings.rounding_error)
    confirming, status = damping < d, np.int64(RUNNING)
    if change <= limit and damping == 0:
        status = np.int64(CONVERGED)
    elif n_iter == settings.max_iter:
        status = np.int64(OUT_OF_ITERATIONS)
    elif change <= larger(smaller(limit, record.limit[r]), settings.rounding_error):
        status = np.int64(CONFIRMING)
    elif confirming:
        # Log-odds or messages have changed more than beliefs: confirm later the next time.
        factor = larger(limit / (2 * change), MIN_LIMIT_FACTOR)
        smallest = MIN_LIMIT * limit
        record.limit[r] = larger(smaller(limit, record.limit[r]) * factor, smallest)
        record.n_stalled[r], record.min_residual[r] = 0, np.inf
    else:
        n_stalled, smallest = record.n_stalled[r] + 1, record.min_residual[r]
        if change < smallest:
            smallest, n_stalled = change, np.int64(0)
        if settings.adaptive and n_stalled == patience:
            record.damping[r] = smaller((1 + d) / 2, MAX_DAMPING)
            smallest, n_stalled = np.inf, np.int64(0)
        record.n_stalled[r], record.min_residual[r] = n_stalled, smallest
    record.status[r] = status


@kernel
def assess_rows(settings, record, rows, change, damping, patience, queue):
    """Set residual, status and damping of some rows after a sweep."""
    k = next_task(queue)
    while k < len(rows):
        assess_row(settings, record, rows[k], change[k], damping[k], patience)
        if change[k] == np.inf:
            record.status[rows[k]] = INFEASIBLE
        k = next_task(queue)
