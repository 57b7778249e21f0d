"""TAP sweeps: many rows iterated to fixed points of the mean-field equations.

A sweep updates a block of units at a time (`fastmf.kernels.mean_field.units`), from the newest
values of all units. Rows are independent: each worker iterates a few of them and, when one has
ended, loads the next, so that the result of a row depends on nothing but the row.
"""

from functools import cache

import numpy as np

from fastmf._jit.argument_types import Int64, argument_types
from fastmf._jit.intrinsics import fetch_and_increment, larger, row, smaller
from fastmf._jit.kernel import REORDER, address_of, call, kernel
from fastmf._outcomes import CONFIRMING, RUNNING
from fastmf._threads.interrupts import next_task, stopped
from fastmf.kernels.linear.copies import set_to_zero
from fastmf.kernels.linear.product import product
from fastmf.kernels.mean_field.arguments import (
    N_UNITS,
    PRODUCT,
    SOURCE,
    START,
    WIDTH,
    TapSettings,
    Tilt,
    packed_couplings,
)
from fastmf.kernels.mean_field.rows import (
    CONFIRMS,
    DAMPING,
    LAST_WINDOW_RESIDUAL,
    MEAN,
    MEASURED,
    RESIDUAL,
    ROW,
    SLOT_SIZE,
    STEP,
    STRICTNESS,
    SWEEP,
    THIRD,
    VAR_RESIDUAL,
    WINDOW_RESIDUAL,
    ActiveRows,
    assess_row,
    copy_row,
    move_on,
)
from fastmf.kernels.mean_field.units import refresh_variances, update_units
from fastmf.priors._compiled import third_cumulants

# --- a block of units of all active rows --------------------------------------------------------


@kernel(mode="merged")
def _propagate_change(layer, active, s, panel, i, old, order):
    """Add to the products of the later units of a block what unit i has changed by.

    `old` holds mean, variance and third cumulant of the unit when the products were computed.
    """
    width = layer[WIDTH]
    unit = layer[START] + panel * width + i
    for power in range(order):
        change = active.state[THIRD if power == 2 else power, s, unit] - old[power]
        packed = packed_couplings(layer, power, panel, panel + 1, active.products)
        couplings = row(packed, (0, unit - layer[SOURCE], 0), width)
        products = row(active.products, (power, s, 0), width)
        # Products of earlier units are not needed any more: so the loop is one of whole vectors.
        for j in range(width):
            products[j] += couplings[j] * change


@kernel(mode="by_address", fastmath=REORDER, views=True)
def update_block(layer, panels, n_active, active, settings, tilt):
    """Update one block of units, the `panels` (first, last) of a layer, in all active rows."""
    width, last = layer[WIDTH], panels[1]
    first = panels[0] * width
    n, n_columns = smaller(last * width, layer[N_UNITS]) - first, layer[N_UNITS] - first
    for power in range(settings.order):
        states, out = active.state[THIRD if power == 2 else power], active.products[power]
        packed = packed_couplings(layer, power, panels[0], last, out)
        product(layer[PRODUCT], states, n_active, layer[SOURCE], packed, out, n_columns)
    at_once = 1 if settings.one_by_one else n
    old, no_groups = row(active.scratch, (4, 0), 3), row(active.scratch, (4, 0), 0)
    for s in range(n_active):
        for i in range(0, n, at_once):
            for power in range(settings.order):
                plane = THIRD if power == 2 else power
                old[power] = active.state[plane, s, layer[START] + first + i]
            units, order = (s, first + i, at_once, i), settings.order
            update_units(settings.finish, layer, active, units, order, tilt, no_groups)
            if settings.one_by_one:
                _propagate_change(layer, active, s, panels[0], i, old, order)


# --- whole solves -------------------------------------------------------------------------------


@kernel(mode="merged")
def _load_rows(layers, active, n_active, queue, settings, record):
    """Fill free slots with rows from the queue.

    Returns the number of active rows, and whether the queue may hold more rows.
    """
    while n_active < settings.rows_per_worker:
        index = next_task(queue)
        if index >= record.state.shape[1]:
            return n_active, False
        copy_row(record.state, index, active.state, n_active, 4)
        set_to_zero(row(active.state, (STEP, n_active, 0), active.state.shape[2]))
        set_to_zero(row(active.group_fields, (0, n_active, 0), active.group_fields.shape[2]))
        slot = row(active.slots, (0, n_active, 0), SLOT_SIZE)
        set_to_zero(slot)
        slot[ROW], slot[DAMPING], slot[STRICTNESS] = index, settings.damping, 1
        slot[WINDOW_RESIDUAL] = slot[LAST_WINDOW_RESIDUAL] = np.inf
        for k in range(layers.shape[0] if settings.order == 3 else 0):
            n, start = layers[k, N_UNITS], layers[k, START]
            mean = row(active.state, (MEAN, n_active, start), n)
            third = row(active.state, (THIRD, n_active, start), n)
            third_cumulants(layers[k], 0, mean, third, row(active.scratch, (0, 0), n))
        n_active += 1
    return n_active, True


@kernel(mode="merged")
def _store_first(active, n_active, record):
    """Store the state of the rows that are in their first sweep."""
    for s in range(n_active):
        slot = row(active.slots, (0, s, 0), SLOT_SIZE)
        if slot[SWEEP] == 0:
            copy_row(active.state, s, record.first, np.int64(slot[ROW]), 4)


@kernel(mode="merged")
def _store_ended_rows(layers, active, n_active, settings, tilt, record):
    """Store the rows that have ended, fill their slots by the last ones and count the rest."""
    s = np.int64(0)  # an integer of Python would be compiled for twice
    while s < n_active:
        slot = row(active.slots, (0, s, 0), SLOT_SIZE)
        status = assess_row(active, s, slot, settings, record)
        if status == RUNNING:
            move_on(active, s, slot)
            s += 1
            continue
        index = np.int64(slot[ROW])
        # Rows that are confirmed are stored already.
        if status == CONFIRMING or slot[CONFIRMS] == 0:
            refresh_variances(layers, active, s, slot, tilt)
            copy_row(active.state, s, record.state, index, 4)
        if status == CONFIRMING:
            s += 1
            continue
        record.status[index], record.n_iter[index] = status, np.int64(slot[SWEEP])
        record.residual[index] = larger(slot[RESIDUAL], slot[VAR_RESIDUAL])
        n_active -= 1
        if s != n_active:
            copy_row(active.slots, n_active, active.slots, s, 1)
            copy_row(active.state, n_active, active.state, s, active.state.shape[0])
            copy_row(active.group_fields, n_active, active.group_fields, s, 1)
    return n_active


@kernel(mode="merged")
def _rows_of_worker(workers, w):
    """The rows of one worker, with its scratch space."""
    return ActiveRows(
        *(workers.slots[w], workers.state[w], workers.products[w]),
        *(workers.scratch[w], workers.group_fields[w]),
    )


@kernel(fastmath=REORDER, views=True)
def tap(sweep, settings, tilt, workers, queue, record):
    """Take rows from the queue and iterate them to fixed points of the mean-field equations."""
    w, layers, blocks = fetch_and_increment(queue[1:]), sweep.layers, sweep.blocks
    if w >= workers.state.shape[0]:
        return
    active = _rows_of_worker(workers, w)
    n_active, more_rows = np.int64(0), True
    while more_rows or n_active > 0:
        if more_rows:
            n_active, more_rows = _load_rows(layers, active, n_active, queue, settings, record)
        if n_active == 0:
            continue
        for k in range(blocks.shape[0]):
            if stopped(queue):
                return
            if record.first.shape[0] > 0 and k > 0 and blocks[k, 0] != blocks[k - 1, 0]:
                _store_first(active, n_active, record)
            layer, panels = layers[blocks[k, 0]], (blocks[k, 1], blocks[k, 2])
            call(settings.update, (layer, panels, n_active, active, settings, tilt))
        n_active = _store_ended_rows(layers, active, n_active, settings, tilt, record)


@kernel(fastmath=REORDER, views=True)
def log_partitions(sweep, settings, tilt, workers, queue, record, values):
    """Compute the log-partition of every row of a record, by sweeps in which nothing moves.

    The last of `settings.max_iter` sweeps counts: of groups of states, the first one finds the
    fields of single groups.
    """
    w, layers, blocks = fetch_and_increment(queue[1:]), sweep.layers, sweep.blocks
    if w >= workers.state.shape[0]:
        return
    active, more_rows = _rows_of_worker(workers, w), True
    while more_rows:
        n_active, more_rows = _load_rows(layers, active, np.int64(0), queue, settings, record)
        for k in range(settings.max_iter * blocks.shape[0] if n_active > 0 else 0):
            if stopped(queue):
                return
            block = blocks[k % blocks.shape[0]]
            for s in range(n_active if k % blocks.shape[0] == 0 else 0):
                active.slots[0, s, MEASURED] = 0
            layer, panels = layers[block[0]], (block[1], block[2])
            call(settings.update, (layer, panels, n_active, active, settings, tilt))
        for s in range(n_active):
            values[np.int64(active.slots[0, s, ROW])] = active.slots[0, s, MEASURED]


@cache
def update_address(dtype, update=update_block):
    """Address of the compiled update of a block of units, for a floating type."""
    arguments = Int64[1], (int, int), int, ActiveRows, TapSettings, Tilt
    return address_of(update, *argument_types(dtype, *arguments))
