"""The rows that a worker iterates: loaded from the record, assessed after a sweep, stored."""

from typing import NamedTuple

import numpy as np

from fastmf._numba import kernel, not_inlined
from fastmf._outcomes import CONVERGED, CYCLING, DIVERGED, OUT_OF_ITERATIONS, RUNNING
from fastmf.kernels.mean_field_types import (
    ACCELERATION_RESIDUAL,
    MAX_DAMPING,
    MAX_MOMENTUM,
    WINDOW_SWEEPS,
)

# Per active row: its position in the record, options that adapt, and measures of its last sweep.
SLOT = np.dtype(
    [
        ("row", np.int64),
        ("sweep", np.int64),  # number of sweeps done
        ("finite", np.int64),  # whether its new moments exist
        ("zero_variance", np.int64),  # whether all variances are zero, as in a start from data
        ("fresh", np.int64),  # whether its Onsager terms are recomputed in this sweep
        ("accelerated", np.int64),
        ("oscillating", np.int64),  # whether oscillations have been detected
        ("damping", np.float64),
        ("momentum", np.float64),
        ("residual", np.float64),  # largest change of a mean in this sweep
        ("scale", np.float64),  # largest absolute mean
        ("squared_change", np.float64),  # squared norm of the change of the means
        ("step_dot", np.float64),  # inner product of this change and the last step
        ("squared_step", np.float64),  # squared norm of the last step
        ("mean_cosine", np.float64),  # running mean of the cosine between the two
        ("min_residual", np.float64),  # smallest residual of this window of sweeps
        ("last_min_residual", np.float64),  # and of the window before
    ]
)


class ActiveRows(NamedTuple):
    """The rows that a worker iterates, one per slot, and its scratch space.

    Parameters
    ----------
    slots : SLOT array of shape (n_slots,)
    state : array of shape (4, n_slots, n_units), or (5, n_slots, n_units) for order 3
        Mean, variance, last step of the mean, tilt a without the external precision, and third
        cumulant. The tilt b is written straight into the record.
    products : array of shape (3, n_slots, max_columns)
        Means, variances and third cumulants times one block of couplings, their squares and cubes.
    scratch : array of shape (4, max_columns)
    """

    slots: np.ndarray
    state: np.ndarray
    products: np.ndarray
    scratch: np.ndarray


# Planes of the state of a record; in that of ActiveRows the last step takes the place of B.
MEAN, VAR, B, A, THIRD = range(5)
STEP = B


@kernel(inner=True)
def load_row(active, s, row, settings, record):
    """Copy a row of the record into slot s."""
    not_inlined()
    state = active.state
    nonzero = 0
    for i in range(state.shape[2]):
        # Not a sum: that of floats would keep the loop from being vectorised.
        nonzero |= record.state[VAR, row, i] != 0
        state[MEAN, s, i] = record.state[MEAN, row, i]
        state[VAR, s, i] = record.state[VAR, row, i]
        if not settings.half_sweep_done:
            record.state[B, row, i] = 0
        state[A, s, i] = 0
        state[STEP, s, i] = 0
    slot = active.slots[s]
    slot["row"] = row
    slot["sweep"] = 0
    slot["zero_variance"] = settings.half_sweep_done or nonzero == 0
    slot["accelerated"] = 0
    slot["oscillating"] = 0
    slot["damping"] = settings.damping
    slot["momentum"] = 0
    slot["squared_step"] = 0
    slot["mean_cosine"] = 0
    slot["min_residual"] = np.inf
    slot["last_min_residual"] = np.inf


@kernel(inner=True)
def store_row(active, s, status, tilt, record):
    """Copy the row of slot s, which has ended with this status, to the record."""
    not_inlined()
    slot = active.slots[s]
    row = slot["row"]
    state = active.state
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
def move_row(active, source, target):
    """Copy the row of one slot into another slot."""
    not_inlined()
    if source == target:
        return
    state = active.state
    active.slots[target] = active.slots[source]
    for k in range(state.shape[0]):
        for i in range(state.shape[2]):
            state[k, target, i] = state[k, source, i]


@kernel(inner=True)
def start_sweep(active, n_active, all_fresh):
    """Reset the measures of the last sweep and choose the rows whose Onsager terms are recomputed.

    Returns the first slot due, the number of slots up to the last one due, and whether the
    variances of all rows are zero.
    """
    not_inlined()
    first, last = n_active, np.int64(0)
    zero_variance = True
    for s in range(n_active):
        slot = active.slots[s]
        slot["finite"] = 1
        slot["residual"] = 0
        slot["scale"] = 0
        slot["squared_change"] = 0
        slot["step_dot"] = 0
        # The second sweep too: in the first the variances may have been zero, and rows iterated
        # without any Onsager term may reach other fixed points.
        slot["fresh"] = all_fresh or slot["sweep"] == 1
        if slot["fresh"] == 1:
            first, last = min(first, s), s + 1
        zero_variance = zero_variance and slot["zero_variance"] == 1
    return first, max(last - first, 0), zero_variance


@kernel(inner=True)
def assess_row(active, s, settings, record):
    """Status of the row in slot s after a sweep; adapts its damping and momentum.

    An accelerated row has momentum (Nesterov): before the next sweep its mean moves on by a part of
    its last step, which grows as long as consecutive steps point the same way.
    """
    not_inlined()
    slot = active.slots[s]
    slot["zero_variance"] = 0
    slot["sweep"] += 1
    sweep = slot["sweep"]
    residual, fresh = slot["residual"], slot["fresh"] == 1
    if settings.half_sweep_done and sweep == 1:
        residual = np.inf  # that of one layer is no residual of a sweep
    if record.history.shape[0] > 0:
        record.history[slot["row"], sweep - 1] = residual
    if slot["finite"] == 0:
        return DIVERGED
    if fresh and residual <= settings.tol:
        return CONVERGED
    # Changes of a few units in the last place are rounding errors.
    if fresh and residual <= 4 * settings.resolution * slot["scale"]:
        return CONVERGED

    lengths = np.sqrt(slot["squared_change"] * slot["squared_step"])
    cosine = slot["step_dot"] / lengths if lengths > 0 else 0.0
    slot["mean_cosine"] += 0.1 * (cosine - slot["mean_cosine"])
    slot["min_residual"] = min(slot["min_residual"], residual)
    falling = slot["min_residual"] <= slot["last_min_residual"] / 2 or slot["mean_cosine"] >= 0.9
    if sweep >= settings.max_iter:
        return OUT_OF_ITERATIONS if falling else CYCLING
    if sweep % WINDOW_SWEEPS == 0:
        # With momentum, steps turn now and then without oscillating.
        straight = 0.5 if slot["accelerated"] == 1 else 0.9
        stagnant = (
            slot["min_residual"] > 0.95 * slot["last_min_residual"]
            and slot["mean_cosine"] < straight
        )
        alternating = (
            slot["min_residual"] > 0.5 * slot["last_min_residual"] and slot["mean_cosine"] < 0
        )
        if settings.adaptive and (stagnant or alternating):
            # Without Onsager terms damping is the only remedy.
            if slot["oscillating"] == 1 or settings.order < 2:
                slot["damping"] = min((1 + slot["damping"]) / 2, MAX_DAMPING)
            slot["oscillating"] = 1
        slot["last_min_residual"] = slot["min_residual"]
        slot["min_residual"] = np.inf

    momentum = slot["momentum"]
    slot["squared_step"] = slot["squared_change"] + momentum * (
        2 * slot["step_dot"] + momentum * slot["squared_step"]
    )
    slot["accelerated"] = (
        slot["sweep"] >= settings.accelerate_after and residual < ACCELERATION_RESIDUAL
    )
    slot["momentum"] = 0
    if slot["accelerated"] == 1 and cosine > 0:
        slot["momentum"] = (momentum + MAX_MOMENTUM) / 2
        mean, step = active.state[MEAN, s], active.state[STEP, s]
        factor = mean.dtype.type(slot["momentum"])
        for i in range(mean.shape[0]):
            mean[i] += factor * step[i]
    return RUNNING
