"""TAP sweeps: many rows iterated to their fixed points of the mean-field equations.

Rows are independent. Each worker holds a few rows and, when one is finished, takes the next; what
happens to a row depends on nothing but the row. `fastmf.kernels.vocabulary` says what a layer, a
visit, a tilt and a record are.
"""

from typing import NamedTuple

import numpy as np
from numba.extending import overload

from fastmf._numba import fetch_and_increment, in_parallel, kernel, not_inlined
from fastmf.kernels.product import product
from fastmf.kernels.vocabulary import (
    CONVERGED,
    CYCLING,
    DIVERGED,
    OUT_OF_SWEEPS,
    RUNNING,
    STRONGEST_DAMPING,
    WINDOW,
    start_third,
    third_cumulants,
)
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


# --- the rows in flight -------------------------------------------------------------------------

# One slot: which row it holds, how many sweeps the row has had; its damping; the largest change,
# squared step and step . last step of this sweep, the squared step of the last one; the running
# mean of the cosine of successive steps; the smallest residual of this window and the one before;
# and the sweeps to wait before the next extrapolation.
SLOT = np.dtype(
    [
        ("row", np.int64),
        ("sweep", np.int64),
        ("finite", np.int64),
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
def _board(layers, flight, s, row, settings, record):
    """Put a row into slot s."""
    not_inlined()
    state = flight.state
    for i in range(state.shape[2]):
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
    slot["wait"] = 3
    slot["damping"] = settings.damping
    slot["last_size"] = 0
    slot["swing"] = 0
    slot["best"] = np.inf
    slot["best_before"] = np.inf


@kernel(inner=True)
def _leave(flight, s, last, status, tilt, record):
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
def _judge(flight, s, fresh, settings, record):
    """Status of the row in slot s after a sweep; damp it if it oscillates, hurry it if it crawls."""
    not_inlined()
    slot = flight.slots[s]
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
    if tilt.precision.shape[0] > 0:
        precision = tilt.precision[min(row, tilt.precision.shape[0] - 1), units]
        total = flight.scratch[2, :n_units]
        for i in range(n_units):
            total[i] = a[i] + precision[i]
        tilted_moments(layer.prior, first, b, total, new_mean, new_var)
    else:
        tilted_moments(layer.prior, first, b, a, new_mean, new_var)

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
    if len(set(layers)) == 1:
        return (
            lambda layers, which, flight, n_active, first_panel, last_panel, fresh, settings, tilt: (
                _visit(
                    layers[which], flight, n_active, first_panel, last_panel, fresh, settings, tilt
                )
            )
        )

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


@kernel(inner=True)
def _work(layers, visits, block, settings, tilt, queue, record):
    """Take rows from the queue and sweep them to their ends, until none is left."""
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
                _board(layers, flight, n_active, row, settings, record)
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
        for v in range(visits.shape[0]):
            visit(
                layers,
                visits[v, 0],
                flight,
                n_active,
                visits[v, 1],
                visits[v, 2],
                fresh,
                settings,
                tilt,
            )
        s = np.int64(0)
        while s < n_active:
            status = _judge(flight, s, fresh, settings, record)
            if status == RUNNING:
                s += 1
            else:
                n_active -= 1
                _leave(flight, s, n_active, status, tilt, record)
        phase = (phase + 1) % settings.onsager_every


@kernel
def tap(layers, visits, block, settings, tilt, n_workers, queue, record):
    """Sweep every row of `record` to its fixed point of the mean-field equations.

    Parameters
    ----------
    layers : tuple of Layer
    visits : int64 array of shape (n_visits, 3)
        One sweep: layer, first panel and last panel of each block of units, in order.
    block : int
        Columns of the widest block of `visits`.
    settings : Settings
    tilt : Tilt
    n_workers : int
        Number of independent workers, each with its own rows in flight.
    queue : int64 array of shape (1,)
        Next row that nobody has taken.
    record : Record
        Start on entry, outcome on exit.
    """
    in_parallel(_work, (layers, visits, block, settings, tilt, queue, record), n_workers)
