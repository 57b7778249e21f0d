"""New moments of some units of one row, and the step towards them.

A unit sees all units that it is coupled to through a tilt exp(b x - a x^2 / 2) of its prior.
Plefka's expansion of the free energy at fixed means m and variances v, to second order in the
couplings W, gives (Eqs. 67-69 of Tramel et al. 2018)

    a = -(W^2)' v                   Onsager term; 0 for order 1 (naive mean field)
    b = W' m + a m                  order 3 adds (W^3)' k k'(m) / 6, k the third cumulant
    (m, v) = moments of the prior under (b + field, a + precision)

without a m for the states of a group (see `fastmf.kernels.mean_field.groups`). All updates take
them from here.
"""

from functools import cache

import numpy as np

from fastmf._jit.argument_types import Int64, Real, argument_types
from fastmf._jit.intrinsics import bits_to_float, float_to_bits, larger, row, smaller
from fastmf._jit.kernel import REORDER, address_of, call, calls, compiled_from, kernel
from fastmf._jit.lazily import types
from fastmf._outcomes import SMALLEST_NORMAL
from fastmf.kernels.linear.copies import set_to_zero
from fastmf.kernels.mean_field.arguments import N_UNITS, START, Tilt
from fastmf.kernels.mean_field.rows import (
    ACCELERATED,
    CONFIRMS,
    CUBIC,
    DAMPING,
    EFFECT,
    FIELD,
    INFINITE,
    MEAN,
    MEASURED,
    MOMENTUM,
    ONSAGER,
    OSCILLATING,
    RESIDUAL,
    ROW,
    SCALE,
    SETTLED,
    SLOT_SIZE,
    SQUARED_CHANGE,
    STEP,
    STEP_DOT,
    THIRD,
    VAR,
    VAR_EFFECT,
    VAR_RESIDUAL,
    WHOLE_FIELD,
    A,
    ActiveRows,
    B,
)
from fastmf.priors._compiled import third_cumulants, tilted_log_partition, tilted_moments
from fastmf.special import where


def _magnitude_bits(x):
    """The bits of |x|, ordered as the values: loops over their maxima vectorise."""
    return abs(x).view(np.int32 if x.dtype == np.float32 else np.int64)


@compiled_from(_magnitude_bits)
def _magnitude_bits_compiled(x):
    return lambda x: float_to_bits(abs(x))


def _of_bits(bits, like):
    """The number with these bits, in the type of `like`."""
    return bits.astype(np.int32).view(np.float32) if like.dtype == np.float32 else bits.view(float)


@compiled_from(_of_bits)
def _of_bits_compiled(bits, like):
    if like == types.float32:
        # Numba makes 64 bits of 32 on the way.
        return lambda bits, like: bits_to_float(np.int32(bits))
    return lambda bits, like: bits_to_float(bits)


@kernel(mode="inner", fastmath=REORDER)
def _relax(state, new, clamped, slot):
    """Move means and variances towards new values, and measure the change.

    The step size of a unit is 1 - damping, divided, in rows that are accelerated or oscillate, by
    1 - a v / 2: so the Onsager term is evaluated at the average of the old and the new mean, to
    first order. The old mean makes rows oscillate, and then momentum does not help. The mean has
    already moved on by momentum times the last step. Variances are not damped once means have
    converged, and nothing is in a sweep that confirms a row. Without moments nothing is changed.

    The effects of a unit on the log-partition are dm^2 / v and (a dv)^2: of second order, whatever
    the scale of the unit.
    """
    (mean, var, step, a), (new_mean, new_var) = state, new
    number = mean.dtype.type
    # Not 0: in Numba an integer would make float64 of what follows.
    zero, one, smallest = number(0), number(1), number(SMALLEST_NORMAL)
    missing, n = zero, mean.shape[0]
    for i in range(n):
        # 0, unless one of them is infinite or NaN.
        m, v = where(clamped[i], mean[i], new_mean[i]), where(clamped[i], var[i], new_var[i])
        missing += zero * m + zero * v
    if missing != 0:
        slot[INFINITE] = 1
        return
    undamped, momentum = number(1 - slot[DAMPING]), number(slot[MOMENTUM])
    half = number(0.5 if slot[ACCELERATED] + slot[OSCILLATING] > 0 else 0)
    if slot[CONFIRMS] == 1:
        undamped, half = one, zero
    squared_change = step_dot = zero
    settled = slot[SETTLED] == 1
    residual = var_residual = effect = var_effect = scale = _magnitude_bits(zero)
    for i in range(n):
        # These are not stored: LLVM would store only some lanes, which is slow on some processors.
        m, v = where(clamped[i], mean[i], new_mean[i]), where(clamped[i], var[i], new_var[i])
        change, var_change = m - mean[i], v - var[i]
        precision = one / larger(v, smallest)
        per_var = smaller(one, precision)
        per_sd = np.sqrt(per_var)
        residual = larger(residual, _magnitude_bits(per_sd * change))
        scale = larger(scale, _magnitude_bits(per_sd * m))
        scale = larger(scale, _magnitude_bits(smaller(v, one)))
        var_residual = larger(var_residual, _magnitude_bits(per_var * var_change))
        effect = larger(effect, _magnitude_bits(precision * (change * change)))
        onsager_change = a[i] * var_change
        var_effect = larger(var_effect, _magnitude_bits(onsager_change * onsager_change))
        step_size = undamped / (one - half * (a[i] * v))
        change = step_size * change
        squared_change += change * change
        step_dot += change * step[i]
        step[i] = change + momentum * step[i]
        mean[i] += change
        var[i] += where(settled, one, step_size) * var_change
    slot[RESIDUAL] = larger(slot[RESIDUAL], _of_bits(residual, step_dot))
    slot[VAR_RESIDUAL] = larger(slot[VAR_RESIDUAL], _of_bits(var_residual, step_dot))
    slot[EFFECT] = larger(slot[EFFECT], _of_bits(effect, step_dot))
    slot[VAR_EFFECT] = larger(slot[VAR_EFFECT], _of_bits(var_effect, step_dot))
    slot[SCALE] = larger(slot[SCALE], _of_bits(scale, step_dot))
    slot[SQUARED_CHANGE] += squared_change
    slot[STEP_DOT] += step_dot


@kernel(mode="merged")
def _couple(layer, active, units, order, alone):
    """Set the tilts of some units of one row to the effects of all units; return a of `_relax`.

    External tilts are left out.
    """
    s, first, n, column = units
    products, scratch, start = active.products, active.scratch, layer[START] + first
    mean, a = row(active.state, (MEAN, s, start), n), row(active.state, (A, s, start), n)
    b, field = row(active.state, (B, s, start), n), row(products, (FIELD, s, column), n)
    variance, implicit = row(products, (ONSAGER, s, column), n), a
    if order == 1:
        set_to_zero(a)
    for i in range(n if order > 1 else 0):
        a[i] = -variance[i]
    if alone.shape[0] > 0:
        # The states of a group take steps of one size, so that their means still sum to 1.
        implicit = row(scratch, (4, 0), n)
        for i in range(n):
            implicit[i] = alone[i] * a[i]
    for i in range(n):
        b[i] = field[i] + implicit[i] * mean[i]
    if order == 3:
        cubic, derivative = row(products, (CUBIC, s, column), n), row(scratch, (3, 0), n)
        third_cumulants(layer, first, mean, row(scratch, (0, 0), n), derivative)
        sixth = scratch.dtype.type(1 / 6)
        for i in range(n):
            b[i] += sixth * cubic[i] * derivative[i]
    return implicit


@kernel(mode="merged")
def _add_external(layer, active, units, tilt):
    """Add external tilts to b of some units, and return a with them, and which are clamped."""
    s, first, n, _ = units
    start, index = layer[START] + first, np.int64(active.slots[0, s, ROW])
    b, a = row(active.state, (B, s, start), n), row(active.state, (A, s, start), n)
    total_a = row(active.scratch, (2, 0), n)
    external = row(tilt.field, (smaller(index, tilt.field.shape[0] - 1), start), n)
    precision = row(tilt.precision, (smaller(index, tilt.precision.shape[0] - 1), start), n)
    for i in range(n):
        total_a[i] = a[i] + precision[i]
    for i in range(n):
        b[i] += external[i]
    return total_a, row(tilt.clamped, (smaller(index, tilt.clamped.shape[0] - 1), start), n)


@kernel(mode="by_address", fastmath=REORDER, views=True)
def _update_units(layer, active, units, order, tilt, alone):
    """The compiled form of `update_units`."""
    s, first, n, _ = units
    start, state, scratch = layer[START] + first, active.state, active.scratch
    implicit = _couple(layer, active, units, order, alone)
    total_a, clamped = _add_external(layer, active, units, tilt)
    mean, b = row(state, (MEAN, s, start), n), row(state, (B, s, start), n)
    new_mean, new_var = row(scratch, (0, 0), n), row(scratch, (1, 0), n)
    tilted_moments(layer, first, b, total_a, new_mean, new_var)
    var, step = row(state, (VAR, s, start), n), row(state, (STEP, s, start), n)
    slot = row(active.slots, (0, s, 0), SLOT_SIZE)
    _relax((mean, var, step, implicit), (new_mean, new_var), clamped, slot)
    if order == 3:
        third_cumulants(layer, first, mean, row(state, (THIRD, s, start), n), new_mean)


@kernel(mode="by_address", fastmath=REORDER, views=True)
def _measure_units(layer, active, units, order, tilt, alone):
    """Add the terms of some units to the log-partition of one row; nothing moves.

    These are, with half of the terms of each pair of units, f = W' m and b, a without external
    tilts,

        log Z_i - m b / 2 + a v / 4               and at order 3  (W^3)' k (k - m k') / 12
        log Z_i + m (f + a - 3 b) / 4             for a state of a group, where v + m^2 = m

    and b m - a (m^2 + v) / 2 in the place of log Z_i for a clamped unit.
    """
    s, first, n, column = units
    start, scratch = layer[START] + first, active.scratch
    _couple(layer, active, units, order, alone)
    mean, var = row(active.state, (MEAN, s, start), n), row(active.state, (VAR, s, start), n)
    b, a = row(active.state, (B, s, start), n), row(active.state, (A, s, start), n)
    pairs, of_clamped = 0.0, row(scratch, (1, 0), n)
    for i in range(n):
        m, v = np.float64(mean[i]), np.float64(var[i])
        pairs += a[i] * v / 4 - m * b[i] / 2
        of_clamped[i] = b[i] * m - a[i] * (m * m + v) / 2
    if alone.shape[0] > 0:
        field = row(active.products, (WHOLE_FIELD, s, column), n)
        for i in range(n):
            m, v = np.float64(mean[i]), np.float64(var[i])
            if alone[i] == 0:
                pairs += (m * (field[i] + a[i] - b[i]) - a[i] * v) / 4
                of_clamped[i] = b[i] * m - a[i] * m / 2
    if order == 3:
        cubic, derivative = row(active.products, (CUBIC, s, column), n), row(scratch, (3, 0), n)
        third = row(active.state, (THIRD, s, start), n)
        for i in range(n):
            pairs += np.float64(cubic[i]) * (third[i] - mean[i] * derivative[i]) / 12
    total_a, clamped = _add_external(layer, active, units, tilt)
    log_z = row(scratch, (0, 0), n)
    tilted_log_partition(layer, first, b, total_a, log_z)
    for i in range(n):
        pairs += where(clamped[i], of_clamped[i], log_z[i])
    active.slots[0, s, MEASURED] += pairs


@kernel(mode="merged")
def refresh_variances(layers, active, s, slot, tilt):
    """Set the variances of a damped row to the variances of its tilts, where these exist."""
    if slot[DAMPING] + slot[ACCELERATED] + slot[OSCILLATING] == 0 or slot[INFINITE] == 1:
        return
    index = np.int64(slot[ROW])
    for k in range(layers.shape[0]):
        n, start = layers[k, N_UNITS], layers[k, START]
        b, a = row(active.state, (B, s, start), n), row(active.state, (A, s, start), n)
        var, total_a = row(active.state, (VAR, s, start), n), row(active.scratch, (2, 0), n)
        new_mean, new_var = row(active.scratch, (0, 0), n), row(active.scratch, (1, 0), n)
        last = tilt.precision.shape[0] - 1
        precision = row(tilt.precision, (smaller(index, last), start), n)
        clamped = row(tilt.clamped, (smaller(index, tilt.clamped.shape[0] - 1), start), n)
        for i in range(n):
            total_a[i] = a[i] + precision[i]
        tilted_moments(layers[k], 0, b, total_a, new_mean, new_var)
        for i in range(n):
            var[i] = where(clamped[i], var[i], new_var[i])


@calls()
def update_units(address, layer, active, units, order, tilt, alone):
    """Update some units of one row, from their products."""
    call(address, (layer, active, units, order, tilt, alone))


@cache
def units_address(dtype, measure=False):
    """Address of the compiled update, or measurement, of some units of one row."""
    arguments = Int64[1], ActiveRows, (int,) * 4, int, Tilt, Real[1]
    return address_of(
        _measure_units if measure else _update_units, *argument_types(dtype, *arguments)
    )
