"""How rows of belief propagation end that do not converge: cycles, and a convergent fallback."""

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
from fastmf.inference.bp.bethe import minimise_bethe
from fastmf.inference.bp.newton_messages import confirmed, newton
from fastmf.kernels.bp_types import WINDOW

# What a field has beyond the reach of all couplings, and these log-odds, changes no other unit; in
# the searches for stationary points it would hide all else in rounding.
CERTAIN = 100.0
# A minimum of which a sweep changes beliefs by less is refined by Newton steps on its messages.
NEAR = 1e-3


def mark_cycles(record):
    """Tell rows that cycle from rows that still approach a fixed point.

    A row cycles if its residual has not halved in the second half of the sweeps, and did not fall
    in a good many of them: where it creeps, it falls in all.
    """
    for row in np.flatnonzero(record.status == OUT_OF_ITERATIONS):
        residuals = record.history[row, : record.n_iter[row]]
        if len(residuals) < 2 * WINDOW:
            continue
        early, late = np.array_split(residuals, 2)
        stays = late[1:] >= late[:-1] * (1 - 1e-9)
        if np.median(late) > np.median(early) / 2 and stays.mean() > 1 / 8:
            record.status[row] = CYCLING


def minimise(model, bits, record, messages, tol, from_assignments):
    """Replace what did not converge by a stationary point of the Bethe free energy.

    Parameters
    ----------
    model, bits
    record : Record
    messages : array of shape (n_seats, n_visible, n_padded)
        Replaced too if there is a seat for every row.
    tol : float
    from_assignments : callable
        from_assignments(weights, visible_field, hidden_field, tol): a `StationaryPoint`.
    """
    m = model.weights.shape[1]
    weights = model.weights.astype(np.float64) * bits.factor
    reach = [abs(weights).sum(axis) + CERTAIN for axis in (1, 0)]
    for row in np.flatnonzero(record.status != CONVERGED):
        whole = [f[min(row, len(f) - 1)] for f in bits.fields]
        fields = [np.clip(f, -r, r) for f, r in zip(whole, reach, strict=True)]
        found, record.status[row] = _stationary_point(weights, *fields, tol, from_assignments)
        beyond = [f - near for f, near in zip(whole, fields, strict=True)]
        record.visible[row], record.hidden[row, :m] = map(np.add, found.log_odds, beyond)
        record.bethe[row] = found.log_partition + sum(x.clip(min=0).sum() for x in beyond)
        record.residual[row] = found.residual
        if len(messages) == len(record.status):
            messages[row, :, :m] = found.messages


def _stationary_point(weights, visible_field, hidden_field, tol, from_assignments):
    """The first point that an undamped sweep confirms, or what comes closest; and its status."""
    parts = weights, visible_field, hidden_field
    # From beliefs of 1/2: a cycle is no better start, and where it is saturated a worse one.
    start = tuple(map(np.zeros, weights.shape))
    minimum = minimise_bethe(*parts, start, tol)
    found = best = confirmed(*parts, minimum)
    at_minimum = np.log(found.messages)
    searches = [
        (RESTARTED, lambda: from_assignments(*parts, tol)),
        (SOLVED, lambda: newton(*parts, tol, at_minimum)),
        (SOLVED, lambda: newton(*parts, tol)),
    ]
    if minimum.residual <= tol and found.residual < NEAR:
        searches.insert(0, (MINIMISED, searches.pop(1)[1]))
    status = MINIMISED
    for next_status, search in searches:
        if found.residual <= tol:
            return found, status
        found, status = confirmed(*parts, search()), next_status
        best = min(found, best, key=lambda point: point.residual)
    return best, status if best.residual <= tol else UNSOLVED
