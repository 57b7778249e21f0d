"""The rows that a worker sweeps: coming aboard, being judged after a sweep, leaving."""

from typing import NamedTuple

import numpy as np

from fastmf._numba import kernel, not_inlined
from fastmf._outcomes import CONVERGED, CYCLING, DIVERGED, OUT_OF_ITERATIONS, RUNNING
from fastmf.kernels.mean_field_types import MOMENTUM, ONSET, STRONGEST_DAMPING, WINDOW

# What a worker knows of a row that it holds.
SLOT = np.dtype(
    [
        ("row", np.int64),
        ("sweep", np.int64),  # sweeps that it has had
        ("finite", np.int64),  # whether its new moments exist
        ("certain", np.int64),  # whether no neighbour of the first layer has a variance yet
        ("fresh", np.int64),  # whether its Onsager terms are computed anew in this sweep
        ("accelerated", np.int64),
        ("oscillating", np.int64),  # whether it was seen to
        ("damping", np.float64),
        ("momentum", np.float64),
        ("residual", np.float64),  # largest change of a mean in this sweep
        ("scale", np.float64),  # largest mean
        ("size", np.float64),  # squared change of the means
        ("along", np.float64),  # product of this change with the last step
        ("last_size", np.float64),  # squared last step
        ("swing", np.float64),  # running mean of the cosine between the two
        ("best", np.float64),  # smallest residual of this window of sweeps
        ("best_before", np.float64),  # and of the one before
    ]
)


class Flight(NamedTuple):
    """The rows that a worker holds, one per slot, and its scratch space.

    Parameters
    ----------
    slots : SLOT array of shape (n_slots,)
    state : array of shape (4, n_slots, n_units), or (5, n_slots, n_units) for order 3
        Mean and variance; the last step of the mean; the tilt a without the part from outside;
        the third cumulant. The tilt b goes straight into the record.
    products : array of shape (3, n_slots, block)
        Mean, variance and third cumulant times one block of couplings, their squares and cubes.
    scratch : array of shape (4, block)
    """

    slots: np.ndarray
    state: np.ndarray
    products: np.ndarray
    scratch: np.ndarray


# Planes of the state of a record, and what is in the place of B in that of a flight.
MEAN, VAR, B, A, THIRD = range(5)
STEP = B


@kernel(inner=True)
def board(flight, s, row, settings, record):
    """Put a row into slot s."""
    not_inlined()
    state = flight.state
    spread = 0
    for i in range(state.shape[2]):
        # Not a sum: that of floats would keep the loop from being vectorised.
        spread |= record.state[VAR, row, i] != 0
        state[MEAN, s, i] = record.state[MEAN, row, i]
        state[VAR, s, i] = record.state[VAR, row, i]
        if not settings.begun:
            record.state[B, row, i] = 0
        state[A, s, i] = 0
        state[STEP, s, i] = 0
    slot = flight.slots[s]
    slot["row"] = row
    slot["sweep"] = 0
    slot["certain"] = settings.begun or spread == 0
    slot["accelerated"] = 0
    slot["oscillating"] = 0
    slot["damping"] = settings.damping
    slot["momentum"] = 0
    slot["last_size"] = 0
    slot["swing"] = 0
    slot["best"] = np.inf
    slot["best_before"] = np.inf


@kernel(inner=True)
def leave(flight, s, status, tilt, record):
    """Write the row of slot s to the record."""
    not_inlined()
    slot = flight.slots[s]
    row = slot["row"]
    state = flight.state
    for k in (MEAN, VAR, A):
        for i in range(state.shape[2]):
            record.state[k, row, i] = state[k, s, i]
    if tilt.precision.shape[0] > 0:
        precision = tilt.precision[min(row, tilt.precision.shape[0] - 1)]
        for i in range(state.shape[2]):
            record.state[A, row, i] += precision[i]
    record.status[row] = status
    record.n_iter[row] = slot["sweep"]
    record.residual[row] = slot["residual"]


@kernel(inner=True)
def move(flight, source, target):
    """Put the row of one slot into another one."""
    not_inlined()
    if source == target:
        return
    state = flight.state
    flight.slots[target] = flight.slots[source]
    for k in range(state.shape[0]):
        for i in range(state.shape[2]):
            state[k, target, i] = state[k, source, i]


@kernel(inner=True)
def start_sweep(flight, n_active, all_fresh):
    """Forget what was measured in the last sweep, and say which Onsager terms are due.

    Returns the first slot that is due, the number of slots up to the last one, and whether no row
    has variances.
    """
    not_inlined()
    first, last = n_active, np.int64(0)
    certain = True
    for s in range(n_active):
        slot = flight.slots[s]
        slot["finite"] = 1
        slot["residual"] = 0
        slot["scale"] = 0
        slot["size"] = 0
        slot["along"] = 0
        # The second sweep too: in the first one the variances may still have been zero, and rows
        # swept on without any Onsager term would go astray to other fixed points.
        slot["fresh"] = all_fresh or slot["sweep"] == 1
        if slot["fresh"] == 1:
            first, last = min(first, s), s + 1
        certain = certain and slot["certain"] == 1
    return first, max(last - first, 0), certain


@kernel(inner=True)
def judge(flight, s, settings, record):
    """Status of the row in slot s after a sweep; damped if it oscillates, accelerated if it may be.

    An accelerated row has momentum (Nesterov): it goes on by a part of its last step before the
    next sweep, a growing part until it turns.
    """
    not_inlined()
    slot = flight.slots[s]
    slot["certain"] = 0
    slot["sweep"] += 1
    sweep = slot["sweep"]
    residual, fresh = slot["residual"], slot["fresh"] == 1
    if settings.begun and sweep == 1:
        residual = np.inf  # of a part of the units
    if record.history.shape[0] > 0:
        record.history[slot["row"], sweep - 1] = residual
    if slot["finite"] == 0:
        return DIVERGED
    if fresh and residual <= settings.tol:
        return CONVERGED
    # No change smaller than a few last digits can be told from rounding.
    if fresh and residual <= 4 * settings.resolution * slot["scale"]:
        return CONVERGED

    lengths = np.sqrt(slot["size"] * slot["last_size"])
    cosine = slot["along"] / lengths if lengths > 0 else 0.0
    slot["swing"] += 0.1 * (cosine - slot["swing"])
    slot["best"] = min(slot["best"], residual)
    falling = slot["best"] <= slot["best_before"] / 2 or slot["swing"] >= 0.9
    if sweep >= settings.max_iter:
        return OUT_OF_ITERATIONS if falling else CYCLING
    if sweep % WINDOW == 0:
        # Momentum turns now and then without going in circles.
        straight = 0.5 if slot["accelerated"] == 1 else 0.9
        stuck = slot["best"] > 0.95 * slot["best_before"] and slot["swing"] < straight
        swinging = slot["best"] > 0.5 * slot["best_before"] and slot["swing"] < 0
        if settings.adaptive and (stuck or swinging):
            # Without Onsager terms there is nothing but damping.
            if slot["oscillating"] == 1 or settings.order < 2:
                slot["damping"] = min((1 + slot["damping"]) / 2, STRONGEST_DAMPING)
            slot["oscillating"] = 1
        slot["best_before"] = slot["best"]
        slot["best"] = np.inf

    momentum = slot["momentum"]
    slot["last_size"] = slot["size"] + momentum * (2 * slot["along"] + momentum * slot["last_size"])
    slot["accelerated"] = sweep >= settings.accelerate_after and residual < ONSET
    slot["momentum"] = 0
    if slot["accelerated"] == 1 and cosine > 0:
        slot["momentum"] = (momentum + MOMENTUM) / 2
        mean, step = flight.state[MEAN, s], flight.state[STEP, s]
        part = mean.dtype.type(slot["momentum"])
        for i in range(mean.shape[0]):
            mean[i] += part * step[i]
    return RUNNING
