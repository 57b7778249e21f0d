"""TAP sweeps: many rows iterated to fixed points of the mean-field equations.

With symmetric couplings W (0 within a layer), the means m and variances v of all units obey

    a = -(W^2)' v                   Onsager term (W^2 is the elementwise square); 0 for order 1
    b = W' m + a m                  order 3 adds (W^3)' k k'(m) / 6, k the third cumulant
    (m, v) = moments(b + field, a + precision)          of prior(x) exp(b x - a x^2 / 2)

a block of units at a time, from the newest values of the others. The log-partition of a fixed point
is in `fastmf.kernels.free_energy`. Rows are independent: each worker iterates a few of them and,
when one has ended, loads the next, so that the result of a row depends on nothing but the row.
"""

import numpy as np
from numba.core import types
from numba.extending import overload

from fastmf._numba import (
    INNER,
    REORDER,
    bits_to_float,
    call_on,
    fetch_and_increment,
    float_to_bits,
    kernel,
    not_inlined,
)
from fastmf._outcomes import RUNNING
from fastmf.kernels.mean_field_types import TapProblem, start_third, third_cumulants
from fastmf.kernels.product import product
from fastmf.kernels.tap_rows import (
    MEAN,
    SLOT,
    STEP,
    THIRD,
    VAR,
    A,
    ActiveRows,
    B,
    assess_row,
    load_row,
    move_row,
    start_sweep,
    store_row,
)
from fastmf.priors._protocol import tilted_moments

# --- some units of one row ----------------------------------------------------------------------


def _magnitude_bits(x):
    """The bits of |x|, ordered as the values: loops over their maxima vectorise."""
    return abs(x).view(np.int32 if x.dtype == np.float32 else np.int64)


@overload(_magnitude_bits, jit_options=INNER)
def _magnitude_bits_compiled(x):
    return lambda x: float_to_bits(abs(x))


def _of_bits(bits, like):
    """The number with these bits, in the type of `like`."""
    return bits.astype(np.int32).view(np.float32) if like.dtype == np.float32 else bits.view(float)


@overload(_of_bits, jit_options=INNER)
def _of_bits_compiled(bits, like):
    if like == types.float32:
        # Numba makes 64 bits of 32 on the way.
        return lambda bits, like: bits_to_float(np.int32(bits))
    return lambda bits, like: bits_to_float(bits)


@kernel(inline=True, fastmath=REORDER)
def _relax(mean, var, step, new_mean, new_var, step_sizes, momentum):
    """Move means and variances towards new values, by a step size between 0 and 1 for each unit.

    Returns the largest change of a mean before damping, the largest absolute mean, the squared norm
    of the damped change, and its inner product with the last step, of which the mean has already
    moved on by the factor `momentum`.
    """
    # Not 0: in Numba an integer would make float64 of what follows.
    squared_change = step_dot = mean.dtype.type(0)
    residual = scale = _magnitude_bits(squared_change)
    for i in range(mean.shape[0]):
        change = new_mean[i] - mean[i]
        residual = max(residual, _magnitude_bits(change))
        scale = max(scale, _magnitude_bits(new_mean[i]))
        change = step_sizes[i] * change
        squared_change += change * change
        step_dot += change * step[i]
        step[i] = change + momentum * step[i]
        mean[i] += change
        var[i] += step_sizes[i] * (new_var[i] - var[i])
    return _of_bits(residual, step_dot), _of_bits(scale, step_dot), squared_change, step_dot


@kernel(inline=True, fastmath=REORDER)
def _is_finite(mean, var):
    zero = mean.dtype.type(0)
    total = zero
    for i in range(mean.shape[0]):
        # 0, unless one of them is infinite or NaN.
        total += zero * mean[i] + zero * var[i]
    return total == 0


@kernel(inner=True)
def _update_units(layer, active, s, units, fresh, problem):
    """New moments of some units of one row.

    `units` holds the position of the first one in the layer, their number and the column of their
    products. The Onsager terms are recomputed if `fresh`.
    """
    not_inlined()
    first, n_units, offset = units
    settings, tilt, record = problem.settings, problem.tilt, problem.record
    here = slice(layer.start + first, layer.start + first + n_units)
    there = slice(offset, offset + n_units)
    mean, var, a = active.state[MEAN, s, here], active.state[VAR, s, here], active.state[A, s, here]
    fields, onsager = active.products[0, s, there], active.products[1, s, there]
    new_mean, new_var = active.scratch[0, :n_units], active.scratch[1, :n_units]
    step_sizes = active.scratch[3, :n_units]
    slot = active.slots[s]
    row = slot["row"]
    b = record.state[B, row, here]

    if settings.order >= 2 and fresh:
        for i in range(n_units):
            a[i] = -onsager[i]
    for i in range(n_units):
        b[i] = fields[i] + a[i] * mean[i]
    if settings.order == 3:
        cubic, derivative = active.products[2, s, there], step_sizes
        # The cumulants themselves are not needed: the new means will overwrite them.
        third_cumulants(layer.prior, first, mean, new_mean, derivative)
        for i in range(n_units):
            b[i] += cubic[i] * derivative[i] / 6
    if tilt.field.shape[0] > 0:
        field = tilt.field[min(row, tilt.field.shape[0] - 1), here]
        for i in range(n_units):
            b[i] += field[i]
    total_a = a
    if tilt.precision.shape[0] > 0:
        precision = tilt.precision[min(row, tilt.precision.shape[0] - 1), here]
        total_a = active.scratch[2, :n_units]
        for i in range(n_units):
            total_a[i] = a[i] + precision[i]
    tilted_moments(layer.prior, first, b, total_a, new_mean, new_var)
    if tilt.clamped.shape[0] > 0:
        clamped = tilt.clamped[min(row, tilt.clamped.shape[0] - 1), here]
        for i in range(n_units):
            if clamped[i]:
                new_mean[i], new_var[i] = mean[i], var[i]
    if not _is_finite(new_mean, new_var):
        slot["finite"] = 0
        return

    step_sizes[:] = 1 - slot["damping"]
    if slot["accelerated"] == 1 or slot["oscillating"] == 1:
        # Half-implicit: the Onsager term of the average of the old and the new mean, to first
        # order. That of the old mean makes rows oscillate, and then momentum does not help.
        for i in range(n_units):
            step_sizes[i] /= 1 - a[i] * new_var[i] / 2
    momentum, step = mean.dtype.type(slot["momentum"]), active.state[STEP, s, here]
    residual, scale, squared_change, step_dot = _relax(
        mean, var, step, new_mean, new_var, step_sizes, momentum
    )
    slot["residual"] = max(slot["residual"], residual)
    slot["scale"] = max(slot["scale"], scale)
    slot["squared_change"] += squared_change
    slot["step_dot"] += step_dot
    if settings.order == 3:
        third_cumulants(layer.prior, first, mean, active.state[THIRD, s, here], step_sizes)


@kernel(inner=True)
def _propagate_change(layer, active, s, panel, i, old, fresh, settings):
    """Add to the products of the later units of a block what unit i has changed by.

    `old` holds mean, variance and third cumulant of the unit when the products were computed.
    """
    not_inlined()
    width = layer.couplings.shape[2]
    here = layer.start + panel * width + i
    source = here - layer.source
    mean, var, third = old
    change = active.state[MEAN, s, here] - mean
    for j in range(i + 1, width):
        active.products[0, s, j] += layer.couplings[panel, source, j] * change
    if settings.order >= 2 and fresh:
        change = active.state[VAR, s, here] - var
        for j in range(i + 1, width):
            active.products[1, s, j] += layer.squares[panel, source, j] * change
    if settings.order == 3:
        change = active.state[THIRD, s, here] - third
        for j in range(i + 1, width):
            active.products[2, s, j] += layer.cubes[panel, source, j] * change


# --- a block of units of all active rows --------------------------------------------------------


@kernel(inner=True)
def _update_block(layer, active, n_active, panels, rows_due, problem):
    """Update one block of units, the `panels` (first, last) of a layer, in all active rows.

    Onsager terms are recomputed in the rows that are due, all of them in the range `rows_due` of
    (first slot, number of slots).
    """
    not_inlined()
    settings, width = problem.settings, layer.couplings.shape[2]
    first_panel, last_panel = panels
    source, n = layer.source, layer.n_units
    state, products = active.state, active.products
    first_due, n_due = rows_due
    due_vars, due_products = state[VAR][first_due:], products[1][first_due:]
    for panel in range(first_panel, last_panel):
        column = (panel - first_panel) * width
        product(state[MEAN], n_active, source, layer.couplings, panel, products[0], column, n)
        if n_due > 0:
            product(due_vars, n_due, source, layer.squares, panel, due_products, column, n)
        if settings.order == 3:
            product(state[THIRD], n_active, source, layer.cubes, panel, products[2], column, n)
    first = first_panel * width
    n_units = min(last_panel * width, layer.n_units) - first
    at_once = np.int64(1) if settings.one_by_one else n_units
    for s in range(n_active):
        fresh = n_due > 0 and active.slots[s]["fresh"] == 1
        for i in range(0, n_units, at_once):
            here = layer.start + first + i
            third = state[THIRD, s, here] if settings.order == 3 else state[MEAN, s, here]
            old = state[MEAN, s, here], state[VAR, s, here], third
            _update_units(layer, active, s, (first + i, at_once, i), fresh, problem)
            if settings.one_by_one:
                _propagate_change(layer, active, s, first_panel, i, old, fresh, settings)


# --- whole solves -------------------------------------------------------------------------------


@kernel(inner=True)
def _load_rows(layers, active, n_active, queue, problem):
    """Fill free slots with rows from the queue.

    Returns the number of active rows, and whether the queue may hold more rows.
    """
    not_inlined()
    settings, record = problem.settings, problem.record
    while n_active < settings.rows_per_worker:
        row = fetch_and_increment(queue)
        if row >= record.state.shape[1]:
            return n_active, False
        load_row(active, n_active, row, settings, record)
        if settings.order == 3:
            mean, third = active.state[MEAN, n_active], active.state[THIRD, n_active]
            for k in range(len(layers)):
                call_on(start_third, layers, k, (mean, third, active.scratch[0]))
        n_active += 1
    return n_active, True


@kernel(inner=True)
def _sweep(layers, blocks, active, n_active, all_fresh, problem):
    """Update all blocks once in all active rows."""
    not_inlined()
    settings = problem.settings
    first_due, n_due, zero_variance = start_sweep(active, n_active, all_fresh)
    if settings.order < 2:
        n_due = 0
    zero_variance = zero_variance and len(layers) > 1
    for k in range(blocks.shape[0]):
        # With zero variances there are no Onsager terms to compute in the first layer.
        zero_variance = zero_variance and blocks[k, 0] == blocks[0, 0]
        if zero_variance and settings.half_sweep_done:
            continue
        rows_due = (first_due, 0 if zero_variance else n_due)
        panels = (blocks[k, 1], blocks[k, 2])
        arguments = (active, n_active, panels, rows_due, problem)
        call_on(_update_block, layers, blocks[k, 0], arguments)


@kernel(inner=True)
def _store_ended_rows(active, n_active, n_before, problem):
    """Store the rows that have ended and close the gaps they leave.

    The rows loaded last stay in the last slots, from `n_before` on. Returns the new `n_active` and
    `n_before`.
    """
    not_inlined()
    s = np.int64(0)
    while s < n_active:
        status = assess_row(active, s, problem.settings, problem.record)
        if status == RUNNING:
            s += 1
            continue
        store_row(active, s, status, problem.tilt, problem.record)
        gap = s
        if s < n_before:
            n_before -= 1
            gap = n_before
            move_row(active, gap, s)
        n_active -= 1
        move_row(active, n_active, gap)
    return n_active, n_before


@kernel
def tap(layers, blocks, max_columns, settings, tilt, workspaces, queue, record):
    """Take rows from the queue and iterate them to fixed points of the mean-field equations.

    Parameters
    ----------
    layers : tuple of Layer
    blocks : int64 array of shape (n_blocks, 3)
        One sweep: layer, first panel and last panel of each block of units, in order.
    max_columns : int
        Columns of the widest block.
    settings : TapSettings
    tilt : Tilt
    workspaces : array of shape (n_workers, 4, rows_per_worker, n_units), 5 planes for order 3
        State of the active rows of each thread that calls this; a thread beyond them returns at
        once.
    queue : int64 array of shape (2,)
        Next row and next workspace not taken yet; shared by all threads.
    record : MeanFieldRecord
        Starts on entry, results on exit.
    """
    n_units, dtype = record.state.shape[2], record.state.dtype
    n_slots = settings.rows_per_worker
    workspace = fetch_and_increment(queue[1:])
    if workspace >= workspaces.shape[0]:
        return
    active = ActiveRows(
        np.zeros(n_slots, SLOT),
        workspaces[workspace],
        np.empty((3, n_slots, max_columns), dtype),
        np.empty((4, max(max_columns, n_units)), dtype),
    )
    problem = TapProblem(settings, tilt, record)
    n_active = n_before = phase = np.int64(0)
    more_rows = True
    while more_rows or n_active > 0:
        # Rows are loaded only where all Onsager terms are recomputed, so that the sweeps of each
        # with and without fresh terms follow in the same order whenever it starts.
        if phase == 0:
            n_before = n_active
            if more_rows:
                n_active, more_rows = _load_rows(layers, active, n_active, queue, problem)
        if n_active == 0:
            phase = np.int64(0)
            continue
        _sweep(layers, blocks, active, n_active, phase == 0, problem)
        n_active, n_before = _store_ended_rows(active, n_active, n_before, problem)
        phase = (phase + 1) % settings.onsager_every
