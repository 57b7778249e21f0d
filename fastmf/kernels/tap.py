"""TAP sweeps: many rows iterated to their fixed points of the mean-field equations.

Rows are independent. Each worker holds a few rows and, when one is finished, takes the next; what
happens to a row depends on nothing but the row. `fastmf.kernels.mean_field_types` says what a
layer, a visit, a tilt and a record are.
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
from fastmf.kernels.mean_field_types import start_third, third_cumulants
from fastmf.kernels.product import product
from fastmf.kernels.tap_rows import (
    MEAN,
    SLOT,
    STEP,
    THIRD,
    VAR,
    A,
    B,
    Flight,
    board,
    judge,
    leave,
    move,
    start_sweep,
)
from fastmf.priors._protocol import tilted_moments

# --- one block of units of one row --------------------------------------------------------------


def _magnitude_bits(x):
    """The bits of |x|, which are in the order of their values: their maxima vectorise."""
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
def _relax(mean, var, step, new_mean, new_var, shares, momentum):
    """Move a share of the way to new values.

    Returns the largest change before that, the largest mean, the squared change, and its product
    with the last step, a part of which (`momentum`) the mean has already made once more.
    """
    # Not 0: in Numba an integer would make float64 of what follows.
    size = along = mean.dtype.type(0)
    largest = scale = _magnitude_bits(size)
    for i in range(mean.shape[0]):
        change = new_mean[i] - mean[i]
        largest = max(largest, _magnitude_bits(change))
        scale = max(scale, _magnitude_bits(new_mean[i]))
        change = shares[i] * change
        size += change * change
        along += change * step[i]
        step[i] = change + momentum * step[i]
        mean[i] += change
        var[i] += shares[i] * (new_var[i] - var[i])
    return _of_bits(largest, size), _of_bits(scale, size), size, along


@kernel(inline=True, fastmath=REORDER)
def _is_finite(mean, var):
    zero = mean.dtype.type(0)
    total = zero
    for i in range(mean.shape[0]):
        # 0, unless one of them is infinite or NaN.
        total += zero * mean[i] + zero * var[i]
    return total == 0


# --- one visit: a block of units of all rows in flight ------------------------------------------


@kernel(inner=True)
def _update(layer, flight, s, first, n_units, offset, fresh, settings, tilt, record):
    """New moments of the layer's units first, first + 1, ... from the products at `offset`."""
    not_inlined()
    here = layer.start + first
    units = slice(here, here + n_units)
    mean, var = flight.state[MEAN, s, units], flight.state[VAR, s, units]
    a = flight.state[A, s, units]
    fields = flight.products[0, s, offset : offset + n_units]
    new_mean, new_var = flight.scratch[0, :n_units], flight.scratch[1, :n_units]
    slot = flight.slots[s]
    row = slot["row"]
    b = record.state[B, row, units]

    if settings.order >= 2 and fresh:
        onsager = flight.products[1, s, offset : offset + n_units]
        for i in range(n_units):
            a[i] = -onsager[i]
            b[i] = fields[i] - onsager[i] * mean[i]
    else:
        for i in range(n_units):
            b[i] = fields[i] + a[i] * mean[i]
    if settings.order == 3:
        cubic = flight.products[2, s, offset : offset + n_units]
        slope = flight.scratch[3, :n_units]
        # The cumulants themselves go where they will be overwritten.
        third_cumulants(layer.prior, first, mean, new_mean, slope)
        for i in range(n_units):
            b[i] += cubic[i] * slope[i] / 6
    if tilt.field.shape[0] > 0:
        field = tilt.field[min(row, tilt.field.shape[0] - 1), units]
        for i in range(n_units):
            b[i] += field[i]
    whole_a = a
    if tilt.precision.shape[0] > 0:
        precision = tilt.precision[min(row, tilt.precision.shape[0] - 1), units]
        whole_a = flight.scratch[2, :n_units]
        for i in range(n_units):
            whole_a[i] = a[i] + precision[i]

    tilted_moments(layer.prior, first, b, whole_a, new_mean, new_var)

    if tilt.clamped.shape[0] > 0:
        clamped = tilt.clamped[min(row, tilt.clamped.shape[0] - 1), units]
        for i in range(n_units):
            if clamped[i]:
                new_mean[i] = mean[i]
                new_var[i] = var[i]
    if not _is_finite(new_mean, new_var):
        slot["finite"] = 0
        return
    shares = flight.scratch[3, :n_units]
    shares[:] = 1 - slot["damping"]
    if slot["accelerated"] == 1 or slot["oscillating"] == 1:
        # The Onsager term of the mean between the old and the new one, to first order: most rows
        # that oscillate do so because of the old one's, and momentum needs sweeps that do not.
        for i in range(n_units):
            shares[i] /= 1 - a[i] * new_var[i] / 2
    momentum = mean.dtype.type(slot["momentum"])
    step = flight.state[STEP, s, units]
    largest, scale, size, along = _relax(mean, var, step, new_mean, new_var, shares, momentum)
    slot["residual"] = max(slot["residual"], largest)
    slot["scale"] = max(slot["scale"], scale)
    slot["size"] += size
    slot["along"] += along
    if settings.order == 3:
        third = flight.state[THIRD, s, units]
        third_cumulants(layer.prior, first, mean, third, flight.scratch[3, :n_units])


@kernel(inner=True)
def _spread(layer, flight, s, panel, i, mean, var, third, fresh, settings):
    """Tell the later units of a block how unit i has changed since their products were taken."""
    not_inlined()
    width = layer.couplings.shape[2]
    here = layer.start + panel * width + i
    source = here - layer.source
    change = flight.state[MEAN, s, here] - mean
    for j in range(i + 1, width):
        flight.products[0, s, j] += layer.couplings[panel, source, j] * change
    if settings.order >= 2 and fresh:
        change = flight.state[VAR, s, here] - var
        for j in range(i + 1, width):
            flight.products[1, s, j] += layer.squares[panel, source, j] * change
    if settings.order == 3:
        change = flight.state[THIRD, s, here] - third
        for j in range(i + 1, width):
            flight.products[2, s, j] += layer.cubes[panel, source, j] * change


@kernel(inner=True)
def _visit(layer, flight, n_active, first_panel, last_panel, due, settings, tilt, record):
    """Update one block of units of one layer in all rows in flight.

    Onsager terms are computed anew for the rows that are due, all of them in the range `due` of
    (first slot, number of slots).
    """
    not_inlined()
    width = layer.couplings.shape[2]
    source, n = layer.source, layer.n_units
    state, products = flight.state, flight.products
    first_due, n_due = due
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
        fresh = n_due > 0 and flight.slots[s]["fresh"] == 1
        for i in range(0, n_units, at_once):
            here = layer.start + first + i
            mean, var = state[MEAN, s, here], state[VAR, s, here]
            third = state[THIRD, s, here] if settings.order == 3 else mean
            _update(layer, flight, s, first + i, at_once, i, fresh, settings, tilt, record)
            if settings.one_by_one:
                _spread(layer, flight, s, first_panel, i, mean, var, third, fresh, settings)


# --- whole solves -------------------------------------------------------------------------------


@kernel
def tap(layers, visits, block, settings, tilt, seats, queue, record):
    """Take rows from the queue and sweep them to fixed points of the mean-field equations.

    Parameters
    ----------
    layers : tuple of Layer
    visits : int64 array of shape (n_visits, 3)
        One sweep: layer, first panel and last panel of each block of units, in order.
    block : int
        Columns of the widest block of `visits`.
    settings : Settings
    tilt : Tilt
    seats : array of shape (n_workers, 4, rows_in_flight, n_units), or with 5 planes for order 3
        Where each thread that calls this keeps its rows; a thread without a seat does nothing.
    queue : int64 array of shape (2,)
        Next row and next seat that nobody has taken; shared by all threads.
    record : Record
        Start on entry, outcome on exit.
    """
    _, n_rows, n_units = record.state.shape
    n_slots = settings.rows_in_flight
    seat = fetch_and_increment(queue[1:])
    if seat >= seats.shape[0]:
        return
    kind = record.state.dtype
    flight = Flight(
        np.zeros(n_slots, SLOT),
        seats[seat],
        np.empty((3, n_slots, block), kind),
        np.empty((4, max(block, n_units)), kind),
    )
    # The rows that came aboard last are in the last slots, from n_before on.
    n_active = n_before = np.int64(0)
    phase = np.int64(0)
    waiting = True
    while True:
        if phase == 0:
            n_before = n_active
        # Rows come aboard only where all Onsager terms are fresh, so that each has the same rhythm
        # of fresh and lagged sweeps whenever it starts.
        while waiting and phase == 0 and n_active < n_slots:
            row = fetch_and_increment(queue)
            if row < n_rows:
                board(flight, n_active, row, settings, record)
                if settings.order == 3:
                    mean, third = flight.state[MEAN, n_active], flight.state[THIRD, n_active]
                    for k in range(len(layers)):
                        call_on(start_third, layers, k, (mean, third, flight.scratch[0]))
                n_active += 1
            else:
                waiting = False
        if n_active == 0:
            if not waiting:
                break
            phase = 0
            continue

        first_due, n_due, certain = start_sweep(flight, n_active, phase == 0)
        if settings.order < 2:
            n_due = 0
        certain = certain and len(layers) > 1
        for v in range(visits.shape[0]):
            # Without variances there are no Onsager terms to compute in the first layer.
            certain = certain and visits[v, 0] == visits[0, 0]
            if certain and settings.begun:
                continue
            due = (first_due, 0 if certain else n_due)
            how = (flight, n_active, visits[v, 1], visits[v, 2], due, settings, tilt, record)
            call_on(_visit, layers, visits[v, 0], how)
        s = np.int64(0)
        while s < n_active:
            status = judge(flight, s, settings, record)
            if status == RUNNING:
                s += 1
                continue
            leave(flight, s, status, tilt, record)
            hole = s
            if s < n_before:
                n_before -= 1
                hole = n_before
                move(flight, hole, s)
            n_active -= 1
            move(flight, n_active, hole)
        phase = (phase + 1) % settings.onsager_every
