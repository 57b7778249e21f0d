"""The rows that a worker sweeps: coming aboard, being judged after a sweep, leaving."""

from typing import NamedTuple

import numpy as np

from fastmf._numba import kernel, not_inlined
from fastmf.kernels.vocabulary import (
    CONVERGED,
    CYCLING,
    DIVERGED,
    OUT_OF_SWEEPS,
    RUNNING,
    STRONGEST_DAMPING,
    WINDOW,
    start_third,
)

# One slot: which row it holds, how many sweeps the row has had; whether its new moments exist, and
# whether it has no variance yet; sweeps to wait before the next extrapolation; its damping; the
# largest change, squared step and step . last step of this sweep, the squared step of the last one;
# the running mean of the cosine of successive steps; and the smallest residual of this window and
# of the one before.
SLOT = np.dtype(
    [
        ("row", np.int64),
        ("sweep", np.int64),
        ("finite", np.int64),
        ("certain", np.int64),
        ("wait", np.int64),
        ("damping", np.float64),
        ("residual", np.float64),
        ("size", np.float64),
        ("along", np.float64),
        ("last_size", np.float64),
        ("swing", np.float64),
        ("best", np.float64),
        ("best_before", np.float64),
    ]
)


class Flight(NamedTuple):
    """The rows that a worker holds, one per slot, and its scratch space.

    Parameters
    ----------
    slots : SLOT array of shape (n_slots,)
    state : array of shape (6, n_slots, n_units)
        Mean and variance; the tilts b and a that gave them (a without the tilt from outside); the
        last change of the mean; the third cumulant (for order 3).
    products : array of shape (3, n_slots, block)
        Mean, variance and third cumulant times one block of couplings, their squares and cubes.
    scratch : array of shape (4, block)
    """

    slots: np.ndarray
    state: np.ndarray
    products: np.ndarray
    scratch: np.ndarray


MEAN, VAR, B, A, STEP, THIRD = range(6)


@kernel(inner=True)
def board(layers, flight, s, row, settings, record):
    """Put a row into slot s."""
    not_inlined()
    state = flight.state
    spread = 0.0
    for i in range(state.shape[2]):
        spread += record.state[VAR, row, i]
        state[MEAN, s, i] = record.state[MEAN, row, i]
        state[VAR, s, i] = record.state[VAR, row, i]
        state[B, s, i] = 0
        state[A, s, i] = 0
        state[STEP, s, i] = 0
    if settings.order == 3:
        start_third(layers, state[MEAN, s], state[THIRD, s], flight.scratch[0])
    slot = flight.slots[s]
    slot["row"] = row
    slot["sweep"] = 0
    slot["certain"] = spread == 0
    slot["wait"] = 3
    slot["damping"] = settings.damping
    slot["last_size"] = 0
    slot["swing"] = 0
    slot["best"] = np.inf
    slot["best_before"] = np.inf


@kernel(inner=True)
def leave(flight, s, last, status, tilt, record):
    """Write the row of slot s to the record, and move the row of the last slot there."""
    not_inlined()
    slot = flight.slots[s]
    row = slot["row"]
    state = flight.state
    for k in range(record.state.shape[0]):
        for i in range(state.shape[2]):
            record.state[k, row, i] = state[k, s, i]
    if tilt.precision.shape[0] > 0:
        precision = tilt.precision[min(row, tilt.precision.shape[0] - 1)]
        for i in range(state.shape[2]):
            record.state[A, row, i] += precision[i]
    record.status[row] = status
    record.n_iter[row] = slot["sweep"]
    record.residual[row] = slot["residual"]
    if s != last:
        flight.slots[s] = flight.slots[last]
        for k in range(state.shape[0]):
            for i in range(state.shape[2]):
                state[k, s, i] = state[k, last, i]


@kernel(inner=True)
def _magnitude(values):
    largest = values[0] * 0
    for i in range(values.shape[0]):
        largest = max(largest, abs(values[i]))
    return largest


@kernel(inner=True)
def judge(flight, s, fresh, settings, record):
    """Status of the row in slot s after a sweep; damped if it oscillates, hurried if it crawls."""
    not_inlined()
    slot = flight.slots[s]
    slot["certain"] = 0
    slot["sweep"] += 1
    sweep = slot["sweep"]
    residual = slot["residual"]
    if record.history.shape[0] > 0:
        record.history[slot["row"], sweep - 1] = residual
    if slot["finite"] == 0:
        return DIVERGED
    if fresh and residual <= settings.tol:
        return CONVERGED
    # No change smaller than a few last digits can be told from rounding.
    if fresh and residual <= 4 * settings.resolution * _magnitude(flight.state[MEAN, s]):
        return CONVERGED

    lengths = np.sqrt(slot["size"] * slot["last_size"])
    cosine = slot["along"] / lengths if lengths > 0 else 0.0
    slot["swing"] += 0.1 * (cosine - slot["swing"])
    slot["best"] = min(slot["best"], residual)
    if sweep >= settings.max_iter:
        return (
            CYCLING
            if slot["swing"] < 0 and slot["best"] > slot["best_before"] / 2
            else OUT_OF_SWEEPS
        )
    if sweep % WINDOW == 0:
        stuck = slot["best"] > 0.95 * slot["best_before"] and slot["swing"] < 0.9
        swinging = slot["best"] > 0.5 * slot["best_before"] and slot["swing"] < 0
        if settings.adaptive and (stuck or swinging):
            slot["damping"] = min((1 + slot["damping"]) / 2, STRONGEST_DAMPING)
        slot["best_before"] = slot["best"]
        slot["best"] = np.inf

    slot["wait"] -= 1
    if settings.accelerate and slot["wait"] <= 0 and residual < 1e-2 and cosine > 0.9:
        ratio = np.sqrt(slot["size"] / slot["last_size"])
        if 0.2 < ratio < 0.995 and residual * ratio / (1 - ratio) < 0.1:
            mean, step = flight.state[MEAN, s], flight.state[STEP, s]
            stretch = mean.dtype.type(ratio / (1 - ratio))
            for i in range(mean.shape[0]):
                mean[i] += stretch * step[i]
            slot["wait"] = 3
    slot["last_size"] = slot["size"]
    return RUNNING
