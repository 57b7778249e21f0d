"""Averages, gradients and updates in steps of learning: see `fastmf.kernels.training`."""

import numpy as np

from fastmf._intrinsics import fetch_and_increment, larger, row, smaller, view
from fastmf._numba import REORDER, kernel
from fastmf.kernels.ascent import ascend_row
from fastmf.kernels.mean_field_types import (
    N_UNITS,
    PRODUCT,
    START,
)
from fastmf.kernels.memory import copy, set_to_zero
from fastmf.kernels.packing import pack_panel
from fastmf.kernels.product import product
from fastmf.kernels.statistics import N_ROWS, POWER, STRIDE, UNITS
from fastmf.kernels.tap_rows import MEAN
from fastmf.kernels.training_types import (
    ABOVE,
    END_TERM,
    FIRST,
    FIRST_RIGHT,
    FIRST_TERM,
    GRADIENT,
    HIDDEN,
    MOVED,
    N_HIDDEN,
    N_RIGHTS,
    OFFSET,
    RIGHTS,
    SQUARES,
    VELOCITY,
    WEIGHTS,
)

# Largest number of rows in one task of a worker.
TASK_ROWS = 24


@kernel(merged=True)
def add_means(mean, first, out):
    """Add the means of some units in all rows, divided by the number of rows."""
    n, scale = out.shape[0], 1 / out.dtype.type(mean.shape[0])
    for r in range(mean.shape[0]):
        of_row = row(mean, (r, first), n)
        for i in range(n):
            out[i] += scale * of_row[i]


@kernel(merged=True)
def layer_of_task(layers, n_layers, size, task):
    """The layer of a task that takes so many units, and its number there; `n_layers` if none."""
    k = np.int64(0)
    while k < n_layers and task * size >= layers[k, N_UNITS]:
        task -= -(-layers[k, N_UNITS] // size)
        k += 1
    return k, task


@kernel(merged=True)
def average_task(layers, size, task):
    """A task of the averages: layer, first unit among all, and number of units; 0 if none."""
    n_layers = layers.shape[0]
    k, task = layer_of_task(layers, n_layers, size, task)
    if k == n_layers:
        return k, task, np.int64(0)
    first = task * size
    return k, layers[k, START] + first, smaller(size, layers[k, N_UNITS] - first)


@kernel(merged=True)
def subtract_means_of_model(statistics, first, n, of_model):
    """Differences between data and model of the means of some units; `of_model` is scratch."""
    offset = row(statistics.units, (OFFSET, first), n)
    difference = row(statistics.units, (FIRST, first), n)
    set_to_zero(of_model)
    add_means(statistics.model.state[MEAN], first, of_model)
    for i in range(n):
        difference[i] = offset[i] - of_model[i]


@kernel(merged=True)
def _pack_row(statistics, r, width):
    """Pack one row of hidden units of a term, times its weight."""
    terms, k, of_term, scale = statistics.terms, np.int64(0), r, statistics.scales[r]
    while of_term >= terms[k, N_ROWS]:
        of_term -= terms[k, N_ROWS]
        k += 1
    n, size = terms[k, N_HIDDEN], statistics.scales.itemsize
    hidden = view(terms[k, HIDDEN] + of_term * terms[k, STRIDE] * size, (n,), statistics.scales)
    shape = -(-n // width), terms[k, N_RIGHTS], width
    rights = view(terms[k, RIGHTS], shape, statistics.scales)
    for i in range(n):
        rights[i // width, terms[k, FIRST_RIGHT] + of_term, i % width] = scale * hidden[i]


@kernel(merged=True)
def pack_hidden(layers, statistics, memory, size, task, queue):
    """Pack hidden units of all terms: tasks from this one on, which follow those of averages."""
    n_before, n_rows = np.int64(0), statistics.scales.shape[0]
    for k in range(layers.shape[0]):
        n_before += -(-layers[k, N_UNITS] // size)
    first = (task - n_before) * TASK_ROWS
    while first < n_rows:
        for r in range(first, smaller(first + TASK_ROWS, n_rows)):
            _pack_row(statistics, r, memory.slab.shape[0])
        first = (fetch_and_increment(queue) - n_before) * TASK_ROWS


@kernel(by_address=True, views=True)
def average(step, batches, parameters, sweep, settings, statistics, memory, queue):
    """Averages of units over the rows, and the packed hidden units of the gradient's terms."""
    layers, size, task = sweep.layers, settings.task_units, fetch_and_increment(queue)
    _, first, n = average_task(layers, size, task)
    while n > 0:
        offset = row(statistics.units, (OFFSET, first), n)
        set_to_zero(offset)
        add_means(statistics.data.mean, first, offset)
        subtract_means_of_model(statistics, first, n, row(memory.vectors, (1, 0), n))
        task = fetch_and_increment(queue)
        _, first, n = average_task(layers, size, task)
    pack_hidden(layers, statistics, memory, size, task, queue)


# --- couplings and fields -------------------------------------------------------------------------


@kernel(merged=True)
def weights_between(layers, k, parameters, entry):
    """The couplings `k`, or what another entry of their table says the address of."""
    shape = layers[k, N_UNITS], layers[k + 1, N_UNITS]
    return view(parameters.couplings[k, entry], shape, parameters.fields)


@kernel(merged=True)
def sum_of_terms(layers, k, parameters, statistics, first, n, memory):
    """The terms of the gradient by the couplings `k` of some units, in `memory.slab`."""
    weights, terms = weights_between(layers, k, parameters, WEIGHTS), statistics.terms
    n_hidden, left, slab, products = weights.shape[1], memory.left, memory.slab, memory.products
    first_term, width = parameters.couplings[k, FIRST_TERM], slab.shape[0]
    for t in range(first_term, parameters.couplings[k, END_TERM]):
        n_rows, stride = terms[t, N_ROWS], terms[t, STRIDE] * weights.itemsize
        for r in range(n_rows):
            # Products read them close together.
            source = view(terms[t, UNITS] + r * stride + first * weights.itemsize, (n,), weights)
            copy(source, row(left, (r, 0), n))
        shape, begin = (-(-n_hidden // width), terms[t, N_RIGHTS], width), terms[t, FIRST_RIGHT]
        right = view(terms[t, RIGHTS], shape, weights)[:, begin : begin + n_rows]
        product(layers[0, PRODUCT], left[:n_rows].T, n, np.int64(0), right, products, n_hidden)
        lower = t > first_term and terms[t, POWER] < terms[t - 1, POWER]
        for r in range(n):
            g, p = row(slab, (r, 0), n_hidden), row(products, (r, 0), n_hidden)
            _add_term(t == first_term, lower, row(weights, (first + r, 0), n_hidden), p, g)


@kernel(merged=True)
def _add_term(is_first, lower, weights, p, g):
    """Add a term of some power of the weights to those before, which are of this or the next."""
    if is_first:
        copy(p, g)
    elif lower:
        for j in range(g.shape[0]):
            g[j] = g[j] * weights[j] + p[j]
    else:
        for j in range(g.shape[0]):
            g[j] += p[j]


@kernel(merged=True)
def move_panel(layers, k, task, memory, parameters, settings, statistics):
    """Update the couplings of a panel of units along their gradient, and packed copies."""
    units, slab, centred = statistics.units, memory.slab, settings.centred
    weights = weights_between(layers, k, parameters, WEIGHTS)
    velocity = weights_between(layers, k, parameters, VELOCITY)
    (n_below, n), width, start = weights.shape, slab.shape[0], layers[k, START]
    zero, first = row(memory.vectors, (0, 0), n), task * width
    offsets = row(units, (OFFSET, layers[k + 1, START]), n) if centred[k] == 1 else zero
    gradients = row(units, (FIRST, layers[k + 1, START]), n) if centred[k + 1] == 1 else zero
    dtype = units.dtype.type
    has_offset, has_gradient = dtype(centred[k + 1]), dtype(centred[k])
    n_panels = -(-n_below // width)
    above = view(parameters.couplings[k, ABOVE], (n_panels, n), weights)
    moved = row(above, (task, 0), n)
    set_to_zero(moved)
    for r in range(smaller(width, n_below - first)):
        i = start + first + r
        w, g = row(weights, (first + r, 0), n), row(slab, (r, 0), n)
        parts = w, g, row(velocity, (first + r, 0), n)
        below = has_offset * units[OFFSET, i], has_gradient * units[FIRST, i]
        found = ascend_row(parts, settings.ascent, below, (offsets, gradients))
        units[MOVED, i], units[SQUARES, i] = found
        for j in range(n):
            moved[j] += below[0] * g[j]
    copies = parameters.copies[k]
    pack_panel(weights, width, copies[:2], settings.order, task)
    if copies[3, 0] != 0:
        pack_panel(weights, width, copies[2:], settings.order, task)


@kernel(by_address=True, views=True, fastmath=REORDER)
def move_couplings(step, batches, parameters, sweep, settings, statistics, memory, queue):
    """Gradient and update of the couplings of a panel of units, and packed copies."""
    layers, width = sweep.layers, memory.slab.shape[0]
    n_couplings = layers.shape[0] - 1
    k, panel = layer_of_task(layers, n_couplings, width, fetch_and_increment(queue))
    while k < n_couplings:
        first = panel * width
        n_here = smaller(width, layers[k, N_UNITS] - first)
        sum_of_terms(layers, k, parameters, statistics, first, n_here, memory)
        move_panel(layers, k, panel, memory, parameters, settings, statistics)
        k, panel = layer_of_task(layers, n_couplings, width, fetch_and_increment(queue))


@kernel(by_address=True, views=True)
def move_fields(step, batches, parameters, sweep, settings, statistics, memory, queue):
    """What the steps of couplings between deviations do to the fields, and the fields' own step."""
    if fetch_and_increment(queue) > 0:
        return
    layers, units, width = sweep.layers, statistics.units, memory.slab.shape[0]
    n_units, dtype = units.shape[1], units.dtype.type
    rate, momentum = dtype(settings.ascent.rate), dtype(settings.ascent.momentum)
    gradient, rows = row(units, (GRADIENT, 0), n_units), parameters.fields
    copy(row(units, (FIRST, 0), n_units), gradient)
    for k in range(layers.shape[0] - 1):
        n_below, start = layers[k, N_UNITS], layers[k, START]
        for i in range(start, start + n_below):
            gradient[i] -= units[MOVED, i]
            # Written so that NaN counts as diverged.
            if not units[SQUARES, i] < settings.max_weight * settings.max_weight:
                parameters.diverged[0] = 1
        n, start = layers[k + 1, N_UNITS], layers[k + 1, START]
        above = view(parameters.couplings[k, ABOVE], (-(-n_below // width), n), units)
        for task in range(above.shape[0]):
            for j in range(n):
                gradient[start + j] -= above[task, j]
    fields, velocity = row(rows, (0, 0), n_units), row(rows, (1, 0), n_units)
    limits = row(rows, (2, 0), n_units)
    for i in range(n_units):
        velocity[i] = momentum * velocity[i] + rate * gradient[i]
        fields[i] = larger(-limits[i], smaller(limits[i], fields[i] + velocity[i]))
