"""NumPy twin of `fastmf.kernels.bp.convergence`."""

import numpy as np

from fastmf._outcomes import (
    CONFIRMING,
    CONVERGED,
    INFEASIBLE,
    MAX_DAMPING,
    MIN_LIMIT,
    MIN_LIMIT_FACTOR,
    OUT_OF_ITERATIONS,
    RUNNING,
    WINDOW_SWEEPS,
)


def sweep_damping(record, r):
    """Return the damping of the next sweep of a row: 0 in a sweep that confirms convergence."""
    return 0.0 if record.status[r] == CONFIRMING else record.damping[r]


def assess_row(settings, record, r, change, damping, patience=WINDOW_SWEEPS):
    """Set residual, status and damping of a row after a sweep, given its largest change."""
    change /= 1 - damping
    if record.history.size:
        record.history[r, record.n_iter[r]] = change
    record.residual[r] = change
    record.n_iter[r] += 1
    # Undamped sweeps leave a fixed point that needs damping d to be stable at most this fast.
    d = record.damping[r]
    limit = max(settings.tol * (1 - d) / (1 + d), settings.rounding_error)
    if change <= limit and damping == 0:
        record.status[r] = CONVERGED
    elif record.n_iter[r] == settings.max_iter:
        record.status[r] = OUT_OF_ITERATIONS
    elif change <= max(min(limit, record.limit[r]), settings.rounding_error):
        record.status[r] = CONFIRMING
    elif damping < d:
        record.status[r] = RUNNING
        factor = max(limit / (2 * change), MIN_LIMIT_FACTOR)
        record.limit[r] = max(min(limit, record.limit[r]) * factor, MIN_LIMIT * limit)
        record.min_residual[r], record.n_stalled[r] = np.inf, 0
    else:
        record.status[r] = RUNNING
        if change < record.min_residual[r]:
            record.min_residual[r], record.n_stalled[r] = change, 0
        else:
            record.n_stalled[r] += 1
        if settings.adaptive and record.n_stalled[r] == patience:
            record.damping[r] = min((1 + d) / 2, MAX_DAMPING)
            record.min_residual[r], record.n_stalled[r] = np.inf, 0


def assess_rows(settings, record, rows, change, damping, patience, queue):
    """Set residual, status and damping of some rows after a sweep."""
    for r, largest, damped in zip(rows, change, damping, strict=True):
        assess_row(settings, record, r, largest, damped, patience)
        if largest == np.inf:
            record.status[r] = INFEASIBLE
