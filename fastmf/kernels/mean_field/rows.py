"""The rows that a worker iterates, and how each is assessed after a sweep."""

from functools import cache
from typing import NamedTuple

import numpy as np

from fastmf._jit.argument_types import Float64, Real, argument_types
from fastmf._jit.intrinsics import larger, row, smaller
from fastmf._jit.kernel import address_of, call, calls, kernel
from fastmf._outcomes import (
    CONFIRMING,
    CONVERGED,
    CYCLING,
    DIVERGED,
    LATE_SWEEPS,
    MAX_DAMPING,
    MAX_MOMENTUM,
    MEAN_ROUNDING,
    OUT_OF_ITERATIONS,
    RUNNING,
    STEEPNESS,
    VAR_ROUNDING,
    WINDOW_SWEEPS,
)
from fastmf.kernels.linear.copies import add_multiple, copy, set_to_zero
from fastmf.kernels.mean_field.arguments import TapSettings

# The state of an active row: the entries of its slot, where yes is 1 and no is 0.
# Position in the record, number of sweeps done, and options that adapt.
ROW, SWEEP, DAMPING, MOMENTUM = range(4)
# Whether it has momentum, whether oscillations have been detected, whether means have converged, so
# that variances are not damped any more, and whether the row is stored and this sweep confirms it.
ACCELERATED, OSCILLATING, SETTLED, CONFIRMS = range(4, 8)
# Measures of this sweep: whether moments are missing, largest change of a mean and of a variance,
# largest effects of these on the log-partition, and largest absolute mean, or variance up to 1;
# squared norm of the change of the means, and its inner product with the last step.
INFINITE, RESIDUAL, VAR_RESIDUAL, EFFECT, VAR_EFFECT, SCALE = range(8, 14)
SQUARED_CHANGE, STEP_DOT = range(14, 16)
# In a sweep that measures: the log-partition.
MEASURED = STEP_DOT
# Squared norm of the last step, and running mean of the cosine between it and the change.
SQUARED_STEP, MEAN_COSINE = range(16, 18)
# Smallest residuals of this window of sweeps and of the one before.
WINDOW_RESIDUAL, LAST_WINDOW_RESIDUAL = range(18, 20)
# Factor by which changes must be smaller than `tol` before a row is stored and confirmed; how the
# row has ended, and whether it continues from where it was stored; number of entries.
STRICTNESS, STATUS, RETRACTED, SLOT_SIZE = range(20, 24)


class ActiveRows(NamedTuple):
    """The rows that a worker iterates, one per slot, and its scratch space."""

    slots: Float64[3]  # (1, n_slots, SLOT_SIZE)
    # (5, n_slots, n_units), or (6, n_slots, n_units) for order 3: mean, variance, tilt b, tilt a
    # without the external precision, last step of the mean, and third cumulant
    state: Real[3]
    # (3, n_slots, max_columns), or (4, n_slots, max_columns) with groups: means, variances and
    # third cumulants times one block of couplings, their squares and cubes; with groups of states
    # see `fastmf.kernels.mean_field.groups`
    products: Real[3]
    scratch: Real[2]  # (5, max(max_columns, n_units))
    # (1, n_slots, n_group_fields): with groups of states, the fields of single groups, and after
    # them the shifted means of the units that a group is coupled to; otherwise empty
    group_fields: Real[3]


# Planes of a state; a record has the first four.
MEAN, VAR, B, A, STEP, THIRD = range(6)
# Planes of products: fields, their variances, and products with third cumulants, or of one source
# of groups of states; fields with the effect of a group on its neighbours.
FIELD, ONSAGER, CUBIC, WHOLE_FIELD = range(4)
ONE_SOURCE = CUBIC


def worker_shapes(settings, n_units, max_columns, n_group_fields=0):
    """Shapes of the arrays of the `ActiveRows` of a worker, slots left out."""
    n_slots, n_planes = settings.rows_per_worker, 6 if settings.order == 3 else 5
    width = max(max_columns, n_units)
    return (
        (n_planes, n_slots, n_units),
        (4 if n_group_fields else 3, n_slots, max_columns),
        (5, width),
        (1, n_slots, n_group_fields),
    )


@kernel(mode="merged")
def copy_row(old, source, new, target, n_planes):
    """Copy the first planes of a row of one state to a row of another of the same width."""
    n = old.shape[2]
    for plane in range(n_planes):
        copy(row(old, (plane, source, 0), n), row(new, (plane, target, 0), n))


@kernel(mode="merged")
def _has_converged(slot, settings):
    """Whether means, and whether all of a row has converged; the rule is stated in `FixedPoint`.

    Changes of a few units in the last place are rounding errors.
    """
    tol, unit = settings.tol / slot[STRICTNESS], settings.resolution
    if slot[CONFIRMS] == 1:
        tol, unit = settings.tol, STEEPNESS * unit
    rounding, var_tol = MEAN_ROUNDING * unit * slot[SCALE], larger(tol, VAR_ROUNDING * unit)
    settled = slot[RESIDUAL] <= larger(tol, rounding)
    still = slot[VAR_RESIDUAL] <= var_tol and slot[VAR_EFFECT] <= var_tol
    small = slot[RESIDUAL] <= rounding or slot[EFFECT] <= var_tol
    return settled, settled and still and small


@kernel(mode="merged")
def _verdict(slot, settings):
    """How a row has ended, RUNNING if it has not.

    If it was damped, or oscillates, it is to be stored (CONFIRMING), and a sweep without damping
    decides: if that moves it, it continues from where it was.
    """
    confirms = slot[CONFIRMS] == 1
    settled, converged = _has_converged(slot, settings)
    slot[SETTLED] = settled
    if slot[INFINITE] == 1 and not confirms:
        return DIVERGED
    if confirms and (slot[INFINITE] == 1 or not converged):
        slot[STRICTNESS], slot[CONFIRMS], slot[RETRACTED] = 4 * slot[STRICTNESS], 0, 1
        # There is no momentum from here.
        slot[SQUARED_CHANGE] = slot[STEP_DOT] = 0
        return RUNNING
    if converged and (confirms or (slot[DAMPING] == 0 and slot[OSCILLATING] == 0)):
        return CONVERGED
    if converged and slot[SWEEP] < settings.max_iter:
        slot[CONFIRMS], slot[MOMENTUM] = 1, 0
        return CONFIRMING
    return RUNNING


@kernel(mode="merged")
def _adapt(slot, residual, settings):
    """Whether a row continues, and with which damping and momentum."""
    sweep = np.int64(slot[SWEEP])
    lengths = np.sqrt(slot[SQUARED_CHANGE] * slot[SQUARED_STEP])
    cosine = slot[STEP_DOT] / lengths if lengths > 0 else 0.0
    slot[MEAN_COSINE] += 0.1 * (cosine - slot[MEAN_COSINE])
    smallest, before = smaller(slot[WINDOW_RESIDUAL], residual), slot[LAST_WINDOW_RESIDUAL]
    slot[WINDOW_RESIDUAL] = smallest
    if sweep >= settings.max_iter:
        falling = smallest <= before / 2 or slot[MEAN_COSINE] >= 0.9
        return OUT_OF_ITERATIONS if falling else CYCLING
    if sweep % WINDOW_SWEEPS == 0:
        # With momentum, steps turn now and then without oscillating.
        straight = 0.5 if slot[ACCELERATED] == 1 else 0.9
        stagnant = smallest > 0.95 * before and slot[MEAN_COSINE] < straight
        alternating = smallest > 0.5 * before and slot[MEAN_COSINE] < 0
        if settings.adaptive and slot[SETTLED] == 0 and (stagnant or alternating):
            # Without Onsager terms damping is the only remedy.
            if slot[OSCILLATING] == 1 or settings.order < 2:
                slot[DAMPING] = smaller((1 + slot[DAMPING]) / 2, MAX_DAMPING)
            slot[OSCILLATING] = 1
        slot[LAST_WINDOW_RESIDUAL], slot[WINDOW_RESIDUAL] = smallest, np.inf

    momentum = slot[MOMENTUM]
    slot[SQUARED_STEP] = slot[SQUARED_CHANGE] + momentum * (
        2 * slot[STEP_DOT] + momentum * slot[SQUARED_STEP]
    )
    limit = settings.late_residual if sweep >= LATE_SWEEPS else settings.early_residual
    accelerated = sweep >= 2 and residual < limit
    slot[ACCELERATED] = accelerated
    slot[MOMENTUM] = (momentum + MAX_MOMENTUM) / 2 if accelerated and cosine > 0 else 0.0
    return RUNNING


@kernel(mode="by_address", views=True)
def _assess_slot(slot, settings):
    """The part of `assess_row` in which no floating type but the type of slots occurs."""
    residual = slot[RESIDUAL]
    slot[SWEEP] += 1
    status = _verdict(slot, settings)
    if status == RUNNING:
        status = _adapt(slot, residual, settings)
    if status <= RUNNING:
        set_to_zero(row(slot, (INFINITE,), SQUARED_STEP - INFINITE))
    slot[STATUS] = status


@calls()
def _assess(address, slot, settings):
    call(address, (slot, settings))


@cache
def assess_address():
    """Address of the compiled assessment of a row."""
    return address_of(_assess_slot, *argument_types(float, Float64[1], TapSettings))


@kernel(mode="merged")
def assess_row(active, s, slot, settings, record):
    """Status of the row in slot s after a sweep; adapts its damping and momentum.

    An accelerated row has momentum (Nesterov): before the next sweep its mean is to `move_on` by a
    part of its last step, which grows as long as consecutive steps point the same way.
    """
    index = np.int64(slot[ROW])
    if record.history.shape[0] > 0:
        residual = larger(slot[RESIDUAL], slot[VAR_RESIDUAL])
        record.history[index, np.int64(slot[SWEEP])] = residual
    _assess(settings.assess, slot, settings)
    if slot[RETRACTED] == 1:
        copy_row(record.state, index, active.state, s, 2)
        slot[RETRACTED] = 0
    return np.int64(slot[STATUS])


@kernel(mode="merged")
def move_on(active, s, slot):
    """Move the mean of the row in slot s on by its momentum times the last step."""
    if slot[MOMENTUM] > 0:
        n = active.state.shape[2]
        mean, step = row(active.state, (MEAN, s, 0), n), row(active.state, (STEP, s, 0), n)
        add_multiple(mean.dtype.type(slot[MOMENTUM]), step, mean)
