"""Averages, gradients and updates in steps of learning: see `fastmf.kernels.training.train`."""

import numpy as np

from fastmf._jit.intrinsics import fetch_and_increment, row, smaller, view
from fastmf._jit.kernel import REORDER, kernel
from fastmf.kernels.linear.copies import copy, pack_panel, set_to_zero
from fastmf.kernels.linear.product import TASK_ROWS, product
from fastmf.kernels.mean_field.arguments import (
    N_UNITS,
    PRODUCT,
    START,
)
from fastmf.kernels.mean_field.rows import MEAN
from fastmf.kernels.training.arguments import (
    END_TERM,
    FIRST,
    FIRST_RIGHT,
    FIRST_TERM,
    GRADIENT,
    GROUP_GRADIENT,
    HIDDEN,
    N_HIDDEN,
    N_RIGHTS,
    OFFSET,
    OFFSET_PRODUCTS,
    PACKED,
    PANEL_BYTES,
    RIGHTS,
    SQUARES,
    STEP_DOT_OFFSET,
    VELOCITY,
    WEIGHT_MATRIX,
)
from fastmf.kernels.training.ascent import ascend_row, finish_gradient
from fastmf.kernels.training.statistics import N_TERM_ROWS, POWER, STRIDE, UNITS


@kernel(mode="merged")
def add_means(mean, first, out):
    """Add the means of some units in all rows, divided by the number of rows."""
    n, scale = out.shape[0], 1 / out.dtype.type(mean.shape[0])
    for r in range(mean.shape[0]):
        of_row = row(mean, (r, first), n)
        for i in range(n):
            out[i] += scale * of_row[i]


@kernel(mode="merged")
def subtract_means_of_model(statistics, first, n, of_model):
    """Differences between data and model of the means of some units; `of_model` is scratch.

    They are the gradient by the fields.
    """
    offset = row(statistics.units, (OFFSET, first), n)
    difference = row(statistics.units, (FIRST, first), n)
    set_to_zero(of_model)
    add_means(statistics.model.state[MEAN], first, of_model)
    for i in range(n):
        difference[i] = offset[i] - of_model[i]
    copy(difference, row(statistics.units, (GRADIENT, first), n))


@kernel(mode="merged")
def _pack_row(hidden, scale, width, like):
    """Pack one row of hidden units of a term, times its weight."""
    n, source, target = hidden[N_HIDDEN], hidden[HIDDEN], hidden[PACKED]
    for first in range(0, n, width):
        n_here = smaller(width, n - first)
        units = view(source + first * like.itemsize, (n_here,), like)
        packed = view(target, (n_here,), like)
        for i in range(n_here):
            packed[i] = scale * units[i]
        target += hidden[PANEL_BYTES]


@kernel(mode="merged")
def pack_hidden(statistics, width, task, queue):
    """Pack hidden units of all terms: tasks from this one on, which follow those of averages."""
    scales, rows, n_before = statistics.scales, statistics.hidden, statistics.averages.shape[0]
    first = (task - n_before) * TASK_ROWS
    while first < rows.shape[0]:
        for r in range(first, smaller(first + TASK_ROWS, rows.shape[0])):
            _pack_row(rows[r], scales[r], width, scales)
        first = (fetch_and_increment(queue) - n_before) * TASK_ROWS


@kernel(mode="by_address", views=True)
def average(step, batches, parameters, sweep, settings, statistics, memory, queue):
    """Averages of units over the rows, and the packed hidden units of the gradient's terms."""
    tasks, task = statistics.averages, fetch_and_increment(queue)
    while task < tasks.shape[0]:
        first, n = tasks[task, 1], tasks[task, 2]
        offset = row(statistics.units, (OFFSET, first), n)
        set_to_zero(offset)
        add_means(statistics.data.mean, first, offset)
        subtract_means_of_model(statistics, first, n, row(memory.vectors, (1, 0), n))
        task = fetch_and_increment(queue)
    pack_hidden(statistics, memory.weight_rows.shape[0], task, queue)


# --- couplings and fields -------------------------------------------------------------------------


@kernel(mode="merged")
def weights_between(layers, k, parameters, entry):
    """The couplings `k`, or what another entry of their table says the address of."""
    shape = layers[k, N_UNITS], layers[k + 1, N_UNITS]
    return view(parameters.couplings[k, entry], shape, parameters.fields)


@kernel(mode="merged")
def sum_of_terms(layers, panel, parameters, statistics, memory):
    """The terms of the gradient by the couplings of a panel of units, in `memory.weight_rows`."""
    k, first, n = panel[0], panel[1], panel[2]
    weights, terms = weights_between(layers, k, parameters, WEIGHT_MATRIX), statistics.terms
    n_hidden, left, products = weights.shape[1], memory.left, memory.products
    weight_rows = memory.weight_rows
    width, end_term = weight_rows.shape[0], parameters.couplings[k, END_TERM]
    begin = np.int64(0)
    for t in range(parameters.couplings[k, FIRST_TERM], end_term):
        stride, end = terms[t, STRIDE] * weights.itemsize, terms[t, FIRST_RIGHT]
        for r in range(terms[t, N_TERM_ROWS]):
            # Products read them close together.
            source = view(terms[t, UNITS] + r * stride + first * weights.itemsize, (n,), weights)
            copy(source, row(left, (end - begin + r, 0), n))
        if t + 1 < end_term and terms[t + 1, POWER] == terms[t, POWER]:
            continue  # one product is of all terms of this power
        end += terms[t, N_TERM_ROWS]
        shape = -(-n_hidden // width), terms[t, N_RIGHTS], width
        right = view(terms[t, RIGHTS], shape, weights)[:, begin:end]
        states = left[: end - begin].T
        product(layers[0, PRODUCT], states, n, np.int64(0), right, products, n_hidden)
        for r in range(n):
            g, p = row(weight_rows, (r, 0), n_hidden), row(products, (r, 0), n_hidden)
            w = row(weights, (first + r, 0), n_hidden)
            if begin == 0:
                copy(p, g)
                continue
            for j in range(n_hidden):
                g[j] = g[j] * w[j] + p[j]
        begin = end
    if parameters.couplings[k, GROUP_GRADIENT] != 0:
        effect = weights_between(layers, k, parameters, GROUP_GRADIENT)
        for r in range(n):
            g, e = row(weight_rows, (r, 0), n_hidden), row(effect, (first + r, 0), n_hidden)
            for j in range(n_hidden):
                g[j] += e[j]


@kernel(mode="merged")
def _sides(layers, k, settings, units, zero):
    """Offsets and gradients by fields of the units above the couplings `k`, as these need them."""
    n, first = layers[k + 1, N_UNITS], layers[k + 1, START]
    offsets = row(units, (OFFSET, first), n) if settings.centred[k] == 1 else zero
    gradients = row(units, (FIRST, first), n) if settings.centred[k + 1] == 1 else zero
    return offsets, gradients


@kernel(mode="merged")
def finish_panel(layers, panel, memory, parameters, settings, statistics):
    """Subtract weight decay, and what fields account for, from the gradient of a panel of units."""
    units, weight_rows, centred = statistics.units, memory.weight_rows, settings.centred
    k, first, n_here = panel[0], panel[1], panel[2]
    weights = weights_between(layers, k, parameters, WEIGHT_MATRIX)
    n, dtype = weights.shape[1], units.dtype.type
    above = _sides(layers, k, settings, units, row(memory.vectors, (0, 0), n))
    has_offset, has_gradient = dtype(centred[k + 1]), dtype(centred[k])
    for r in range(n_here):
        i = layers[k, START] + first + r
        below = has_offset * units[OFFSET, i], has_gradient * units[FIRST, i]
        w, g = row(weights, (first + r, 0), n), row(weight_rows, (r, 0), n)
        finish_gradient(w, g, settings.decay, below, above)


@kernel(mode="merged")
def move_panel(layers, panel, rate, memory, parameters, settings, statistics):
    """Update the couplings of a panel of units along their gradient, and packed copies."""
    units, weight_rows = statistics.units, memory.weight_rows
    k, first, n_here = panel[0], panel[1], panel[2]
    weights = weights_between(layers, k, parameters, WEIGHT_MATRIX)
    velocity = weights_between(layers, k, parameters, VELOCITY)
    (n_below, n), width = weights.shape, weight_rows.shape[0]
    step = rate, settings.momentum, settings.l1
    task, has_offset = first // width, units.dtype.type(settings.centred[k + 1])
    offsets, _ = _sides(layers, k, settings, units, row(memory.vectors, (0, 0), n))
    address, n_tasks = parameters.couplings[k, OFFSET_PRODUCTS], -(-n_below // width)
    offset_products = row(view(address, (n_tasks, n), weights), (task, 0), n)
    set_to_zero(offset_products)
    for r in range(n_here):
        i = layers[k, START] + first + r
        w, g = row(weights, (first + r, 0), n), row(weight_rows, (r, 0), n)
        v = row(velocity, (first + r, 0), n)
        found = ascend_row(w, g, v, step, offsets)
        units[STEP_DOT_OFFSET, i], units[SQUARES, i] = found
        offset = has_offset * units[OFFSET, i]
        for j in range(n):
            offset_products[j] += offset * g[j]
    pack_panel(weights, width, parameters.copies[k], settings.order, task)


@kernel(mode="by_address", views=True, fastmath=REORDER)
def move_couplings(step, batches, parameters, sweep, settings, statistics, memory, queue):
    """Gradient and update of the couplings of a panel of units, and packed copies."""
    layers, tasks, rate = sweep.layers, statistics.panels, batches.rates[step]
    task = fetch_and_increment(queue)
    while task < tasks.shape[0]:
        panel = tasks[task]
        sum_of_terms(layers, panel, parameters, statistics, memory)
        finish_panel(layers, panel, memory, parameters, settings, statistics)
        move_panel(layers, panel, rate, memory, parameters, settings, statistics)
        task = fetch_and_increment(queue)


@kernel(mode="by_address", views=True)
def move_fields(step, batches, parameters, sweep, settings, statistics, memory, queue):
    """Moves of the fields by steps of couplings between deviations, and the fields' own step."""
    if fetch_and_increment(queue) > 0:
        return
    layers, units, width = sweep.layers, statistics.units, memory.weight_rows.shape[0]
    n_units, dtype = units.shape[1], units.dtype.type
    rate, momentum = dtype(batches.rates[step]), dtype(settings.momentum)
    gradient, rows = row(units, (GRADIENT, 0), n_units), parameters.fields
    for k in range(layers.shape[0] - 1):
        n_below, start = layers[k, N_UNITS], layers[k, START]
        for i in range(start, start + n_below):
            gradient[i] -= units[STEP_DOT_OFFSET, i]
            # Written so that NaN counts as diverged.
            if not units[SQUARES, i] < settings.max_weight * settings.max_weight:
                parameters.diverged[0] = 1
        n, start = layers[k + 1, N_UNITS], layers[k + 1, START]
        address, n_tasks = parameters.couplings[k, OFFSET_PRODUCTS], -(-n_below // width)
        offset_products = view(address, (n_tasks, n), units)
        for task in range(n_tasks):
            for j in range(n):
                gradient[start + j] -= offset_products[task, j]
    fields, velocity = row(rows, (0, 0), n_units), row(rows, (1, 0), n_units)
    for i in range(n_units):
        velocity[i] = momentum * velocity[i] + rate * gradient[i]
        fields[i] += velocity[i]
        # Written so that NaN counts as diverged.
        if not abs(fields[i]) < settings.max_weight:
            parameters.diverged[0] = 1
