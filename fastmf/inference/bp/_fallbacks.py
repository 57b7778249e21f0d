"""Rows that do not converge: recognising cycles, and other searches for a fixed point.

The searches find stationary points of the Bethe free energy, which are the fixed points of
sum-product: its direct minimisation (`bethe`), sum-product from decoded assignments, and Newton
steps on the messages (`newton_messages`).
"""

import numpy as np

from fastmf._outcomes import (
    CONVERGED,
    CYCLING,
    MINIMISED,
    OUT_OF_ITERATIONS,
    RESTARTED,
    SOLVED,
    UNSOLVED,
)
from fastmf._threads.workers import one_blas_thread
from fastmf.inference.bp.bethe import minimise_bethe
from fastmf.inference.bp.newton_messages import confirmed, newton_fixed_point
from fastmf.kernels.bp.arguments import DAMPING_WINDOW

# Log-odds of a unit that is certain. What a field exceeds the sum of all couplings and this by
# changes no other unit; in the searches the others would be lost in rounding beside it.
CERTAIN_LOG_ODDS = 100.0
# A minimum at which a sweep changes beliefs by less than this is refined by Newton steps first.
MAX_REFINED_RESIDUAL = 1e-3


def mark_cycles(record):
    """Tell rows that cycle from rows that approach a fixed point slowly.

    A row cycles if its residual has not halved in the second half of the sweeps, and did not fall
    in more than an eighth of them: in a slow approach it falls in all.
    """
    for row in np.flatnonzero(record.status == OUT_OF_ITERATIONS):
        residuals = record.history[row, : record.n_iter[row]]
        if len(residuals) < 2 * DAMPING_WINDOW:
            continue
        early, late = np.array_split(residuals, 2)
        rises = late[1:] >= late[:-1] * (1 - 1e-9)
        if np.median(late) > np.median(early) / 2 and rises.mean() > 1 / 8:
            record.status[row] = CYCLING


@one_blas_thread()
def minimise(units, record, messages, tol, from_assignments):
    """Replace rows that have not converged by stationary points of the Bethe free energy.

    Parameters
    ----------
    units : BinaryUnits
    record : BPRecord
    messages : array of shape (n_rows or n_workspaces, n_visible, n_padded)
        Replaced too if there is one entry for each row.
    tol : float
    from_assignments : callable
        from_assignments(weights, visible_field, hidden_field, tol): a `StationaryPoint`.
    """
    weights = units.weights()
    m = weights.shape[1]
    limits = [abs(weights).sum(axis) + CERTAIN_LOG_ODDS for axis in (1, 0)]
    for row in np.flatnonzero(record.status != CONVERGED):
        total = [f[min(row, len(f) - 1)] for f in units.fields]
        fields = [np.clip(f, -limit, limit) for f, limit in zip(total, limits, strict=True)]
        found, record.status[row] = _stationary_point(weights, *fields, tol, from_assignments)
        excess = [f - clipped for f, clipped in zip(total, fields, strict=True)]
        record.visible[row], record.hidden[row, :m] = map(np.add, found.log_odds, excess)
        record.bethe[row] = found.log_partition + sum(x.clip(min=0).sum() for x in excess)
        record.residual[row] = found.residual
        if len(messages) == len(record.status):
            messages[row, :, :m] = found.messages


def _stationary_point(weights, visible_field, hidden_field, tol, from_assignments):
    """The first point that an undamped sweep confirms, or that of smallest residual; its status."""
    parts = weights, visible_field, hidden_field
    # From beliefs of 1/2: those of a cycle are no closer, and saturated ones are a worse start.
    start = tuple(map(np.zeros, weights.shape))
    minimum = minimise_bethe(*parts, start, tol)
    found = best = confirmed(*parts, minimum)
    at_minimum = np.log(found.messages)
    searches = [
        (RESTARTED, lambda: from_assignments(*parts, tol)),
        (SOLVED, lambda: newton_fixed_point(*parts, tol, at_minimum)),
        (SOLVED, lambda: newton_fixed_point(*parts, tol)),
    ]
    if minimum.residual <= tol and found.residual < MAX_REFINED_RESIDUAL:
        searches.insert(0, (MINIMISED, searches.pop(1)[1]))
    status = MINIMISED
    for next_status, search in searches:
        if found.residual <= tol:
            return found, status
        found, status = confirmed(*parts, search()), next_status
        best = min(found, best, key=lambda point: point.residual)
    return best, status if best.residual <= tol else UNSOLVED
