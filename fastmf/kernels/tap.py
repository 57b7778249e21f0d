"""TAP sweeps: many rows iterated to their fixed points of the mean-field equations.

Rows are independent. Each worker holds a few rows and, when one is finished, takes the next; what
happens to a row depends on nothing but the row. `fastmf.kernels.vocabulary` says what a layer, a
visit, a tilt and a record are.
"""

import numpy as np
from numba.extending import overload

from fastmf._numba import fetch_and_increment, kernel, not_inlined
from fastmf.kernels.flight import MEAN, SLOT, STEP, THIRD, VAR, A, B, Flight, board, judge, leave
from fastmf.kernels.product import product
from fastmf.kernels.vocabulary import RUNNING, third_cumulants
from fastmf.priors._protocol import tilted_moments

# --- one block of units of one row --------------------------------------------------------------


@kernel(inner=True, reorder=True)
def _relax(mean, var, step, new_mean, new_var, share):
    """Move a share of the way to new values: largest change, squared step, step . last step."""
    largest = new_mean[0] * 0
    size = new_mean[0] * 0
    along = new_mean[0] * 0
    for i in range(mean.shape[0]):
        change = new_mean[i] - mean[i]
        largest = max(largest, abs(change))
        change = share * change
        size += change * change
        along += change * step[i]
        step[i] = change
        mean[i] += change
        var[i] += share * (new_var[i] - var[i])
    return largest, size, along


@kernel(inner=True)
def _is_finite(mean, var, bound):
    bad = 0
    for i in range(mean.shape[0]):
        bad += not (abs(mean[i]) <= bound and abs(var[i]) <= bound)
    return bad == 0


# --- one visit: a block of units of all rows in flight ------------------------------------------


@kernel(inner=True)
def _update(layer, flight, s, first, n_units, offset, fresh, settings, tilt):
    """New moments of the layer's units first, first + 1, ... from the products at `offset`."""
    not_inlined()
    here = layer.start + first
    units = slice(here, here + n_units)
    mean, var = flight.state[MEAN, s, units], flight.state[VAR, s, units]
    b, a = flight.state[B, s, units], flight.state[A, s, units]
    fields = flight.products[0, s, offset : offset + n_units]
    new_mean, new_var = flight.scratch[0, :n_units], flight.scratch[1, :n_units]
    slot = flight.slots[s]
    row = slot["row"]

    if settings.order >= 2 and fresh:
        onsager = flight.products[1, s, offset : offset + n_units]
        for i in range(n_units):
            a[i] = -onsager[i]
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
    tilt_a = flight.scratch[2, :n_units]
    for i in range(n_units):
        tilt_a[i] = a[i]
    if tilt.precision.shape[0] > 0:
        precision = tilt.precision[min(row, tilt.precision.shape[0] - 1), units]
        for i in range(n_units):
            tilt_a[i] += precision[i]

    tilted_moments(layer.prior, first, b, tilt_a, new_mean, new_var)

    if tilt.clamped.shape[0] > 0:
        clamped = tilt.clamped[min(row, tilt.clamped.shape[0] - 1), units]
        for i in range(n_units):
            if clamped[i]:
                new_mean[i] = mean[i]
                new_var[i] = var[i]
    if not _is_finite(new_mean, new_var, settings.bound):
        slot["finite"] = 0
        return
    share = mean.dtype.type(1 - slot["damping"])
    largest, size, along = _relax(mean, var, flight.state[STEP, s, units], new_mean, new_var, share)
    slot["residual"] = max(slot["residual"], largest)
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
def _visit(layer, flight, n_active, first_panel, last_panel, fresh, settings, tilt):
    """Update one block of units of one layer in all rows in flight."""
    not_inlined()
    width = layer.couplings.shape[2]
    source = layer.source
    state, products = flight.state, flight.products
    for panel in range(first_panel, last_panel):
        column = (panel - first_panel) * width
        product(state[MEAN], n_active, source, layer.couplings, panel, products[0], column)
        if settings.order >= 2 and fresh:
            product(state[VAR], n_active, source, layer.squares, panel, products[1], column)
        if settings.order == 3:
            product(state[THIRD], n_active, source, layer.cubes, panel, products[2], column)
    first = first_panel * width
    n_units = min(last_panel * width, layer.n_units) - first
    # Not plain numbers: for a literal argument, Numba would compile the callee a second time.
    start, one = np.int64(0), np.int64(1)
    for s in range(n_active):
        if not settings.one_by_one:
            _update(layer, flight, s, first, n_units, start, fresh, settings, tilt)
            continue
        for i in range(n_units):
            here = layer.start + first + i
            mean, var, third = state[MEAN, s, here], state[VAR, s, here], state[THIRD, s, here]
            _update(layer, flight, s, first + i, one, i, fresh, settings, tilt)
            _spread(layer, flight, s, first_panel, i, mean, var, third, fresh, settings)


def visit(layers, which, flight, n_active, first_panel, last_panel, fresh, settings, tilt):
    """`_visit` of one of several layers of different types."""
    _visit(layers[which], flight, n_active, first_panel, last_panel, fresh, settings, tilt)


@overload(visit)
def _visit_by_type(layers, which, flight, n_active, first_panel, last_panel, fresh, settings, tilt):
    def any_of(layers, which, flight, n_active, first_panel, last_panel, fresh, settings, tilt):
        layer = layers[which]
        _visit(layer, flight, n_active, first_panel, last_panel, fresh, settings, tilt)

    if len(set(layers)) == 1:
        return any_of

    def one_of(layers, which, flight, n_active, first_panel, last_panel, fresh, settings, tilt):
        if which == 0:
            _visit(layers[0], flight, n_active, first_panel, last_panel, fresh, settings, tilt)
        else:
            visit(
                layers[1:],
                which - 1,
                flight,
                n_active,
                first_panel,
                last_panel,
                fresh,
                settings,
                tilt,
            )

    return one_of


# --- whole solves -------------------------------------------------------------------------------


@kernel
def tap(layers, visits, block, settings, tilt, queue, record):
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
    queue : int64 array of shape (1,)
        Next row that nobody has taken; shared by all threads that call this.
    record : Record
        Start on entry, outcome on exit.
    """
    _, n_rows, n_units = record.state.shape
    n_slots = settings.rows_in_flight
    kind = record.state.dtype
    flight = Flight(
        np.zeros(n_slots, SLOT),
        np.zeros((6, n_slots, n_units), kind),
        np.zeros((3, n_slots, block), kind),
        np.zeros((4, max(block, n_units)), kind),
    )
    n_active = np.int64(0)
    phase = np.int64(0)
    waiting = True
    while True:
        # Rows come aboard only where the Onsager terms are fresh, so that each has the same rhythm
        # of fresh and lagged sweeps whenever it starts.
        while waiting and phase == 0 and n_active < n_slots:
            row = fetch_and_increment(queue)
            if row < n_rows:
                board(layers, flight, n_active, row, settings, record)
                n_active += 1
            else:
                waiting = False
        if n_active == 0:
            if not waiting:
                break
            phase = 0
            continue

        for s in range(n_active):
            slot = flight.slots[s]
            slot["finite"] = 1
            slot["residual"] = 0
            slot["size"] = 0
            slot["along"] = 0
        fresh = phase == 0
        certain = len(layers) > 1
        for s in range(n_active):
            certain = certain and flight.slots[s]["certain"] == 1
        for v in range(visits.shape[0]):
            # Without variances there are no Onsager terms to compute in the first layer.
            certain = certain and visits[v, 0] == visits[0, 0]
            visit(
                layers,
                visits[v, 0],
                flight,
                n_active,
                visits[v, 1],
                visits[v, 2],
                fresh and not certain,
                settings,
                tilt,
            )
        s = np.int64(0)
        while s < n_active:
            status = judge(flight, s, fresh, settings, record)
            if status == RUNNING:
                s += 1
            else:
                n_active -= 1
                leave(flight, s, n_active, status, tilt, record)
        phase = (phase + 1) % settings.onsager_every
