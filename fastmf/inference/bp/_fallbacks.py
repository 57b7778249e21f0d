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
from fastmf.inference.bp.newton_messages import newton
from fastmf.kernels.bp_types import WINDOW

# What a field has beyond the reach of all couplings, and these log-odds, changes no other unit; in
# the searches for stationary points it would hide all else in rounding.
CERTAIN = 100.0


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
    n, m = model.weights.shape
    weights = model.weights.astype(np.float64) * bits.factor
    reach = [abs(weights).sum(axis) + CERTAIN for axis in (1, 0)]
    # From beliefs of 1/2: a cycle is no better start, and where it is saturated a worse one.
    start = np.zeros(n), np.zeros(m)
    for row in np.flatnonzero(record.status != CONVERGED):
        whole = [f[min(row, len(f) - 1)] for f in bits.fields]
        fields = [np.clip(f, -r, r) for f, r in zip(whole, reach, strict=True)]
        found, status = minimise_bethe(weights, *fields, start, tol), MINIMISED
        searches = (
            (RESTARTED, from_assignments, ()),
            (SOLVED, newton, (np.log(found.messages),)),
            (SOLVED, newton, ()),
        )
        for of_search, search, start_of_search in searches:
            if found.residual > tol:
                solved = search(weights, *fields, tol, *start_of_search)
                if solved.residual <= tol:
                    found, status = solved, of_search
        beyond = [f - near for f, near in zip(whole, fields, strict=True)]
        record.visible[row], record.hidden[row, :m] = map(np.add, found.log_odds, beyond)
        record.bethe[row] = found.log_partition + sum(x.clip(min=0).sum() for x in beyond)
        record.residual[row] = found.residual
        record.status[row] = status if found.residual <= tol else UNSOLVED
        if len(messages) == len(record.status):
            messages[row, :, :m] = found.messages
