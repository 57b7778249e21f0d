"""Steps of learning an RBM of binary units, one after another, without a return to Python.

A step has phases, each a queue of tasks that all threads take from:

    rows        fields and moments of the hidden units given the rows of a batch
    states      mean-field solutions, or Gibbs samples, of the model
    averages    offsets and gradients by the fields, and packed hidden units
    slabs       gradient of the couplings of some visible units, their update, packed copies
    fields      update of the fields

Those of sparse data are in `fastmf.kernels.training_sparse`.

The equations are those of `fastmf.learning.layered.gradients` and `fastmf.kernels.ascent`. A phase
ends when the threads that have begun it have left it, so nobody waits for a thread that has not; a
thread that comes later finds the queues empty.
"""

import numba
import numpy as np

from fastmf._ahead import compile_ahead
from fastmf._intrinsics import fetch_and_increment, larger, row, smaller, view
from fastmf._numba import REORDER, address_of, call, kernel
from fastmf._waiting import leave_processor, load, pause
from fastmf.kernels.ascent import ascend_row
from fastmf.kernels.gibbs import TwoValuedLayer, draw_rows
from fastmf.kernels.mean_field_types import N_PANELS, N_UNITS, PRODUCT, START, packed_couplings
from fastmf.kernels.memory import copy, set_to_zero
from fastmf.kernels.packing import pack_panel
from fastmf.kernels.product import product
from fastmf.kernels.statistics import N_ROWS, STRIDE, UNITS
from fastmf.kernels.tap import tap_address
from fastmf.kernels.tap_rows import MEAN, VAR, A, B
from fastmf.kernels.training_types import (
    AVERAGES,
    CUMULANTS,
    ENTERED,
    FIELDS,
    FIRST,
    GRADIENT,
    HIDDEN,
    LEFT,
    MOVED,
    N_HIDDEN,
    N_PHASES,
    OFFSET,
    QUEUE_SIZE,
    ROWS,
    SLABS,
    SQUARES,
    STATES,
    Memory,
    Moments,
)
from fastmf.priors._compiled import third_cumulants, tilted_moments

# Largest number of rows in one task of a worker.
TASK_ROWS = 24
# Pauses after which a waiting thread lets others run on its processor.
PATIENCE = 2000


@kernel(inner=True)
def _leave(queue):
    """Leave a phase, and wait until all threads that have begun it have left."""
    fetch_and_increment(queue[LEFT:])
    n_pauses = np.int64(0)
    # In this order: all that had entered by the second look had left by the first.
    left = load(queue, LEFT)
    while left != load(queue, ENTERED):
        pause()
        n_pauses += 1
        if n_pauses > PATIENCE:
            leave_processor()
        left = load(queue, LEFT)


# --- rows and states ------------------------------------------------------------------------------


@kernel(merged=True)
def _hidden_moments(layers, moments, first, n_rows, memory):
    """Fields, means and variances of the hidden units given the visible ones, for some rows."""
    layer, products = layers[1], memory.products
    n, start = layer[N_UNITS], layer[START]
    packed = packed_couplings(layer, 0, 0, layer[N_PANELS], products)
    product(layer[PRODUCT], moments.mean[first:], n_rows, np.int64(0), packed, products, n)
    zero = row(memory.vectors, (0, 0), n)
    for r in range(n_rows):
        b, mean = row(moments.b, (first + r, start), n), row(moments.mean, (first + r, start), n)
        copy(row(products, (r, 0), n), b)
        tilted_moments(layer, 0, b, zero, mean, row(moments.var, (first + r, start), n))


@kernel(merged=True)
def _row_of_data(batches, step, r, n, like):
    """A row of data of a batch, which begins again where it ends."""
    source = batches.rows[step, r % batches.rows.shape[1]]
    return view(batches.data[0] + source * n * like.itemsize, (n,), like)


@kernel(merged=True)
def _start_from_moments(data, r, tilts_kept, state):
    """Let a solution start from the moments given a row of data."""
    n = state.shape[2]
    copy(row(data.mean, (r, 0), n), row(state, (MEAN, r, 0), n))
    copy(row(data.var, (r, 0), n), row(state, (VAR, r, 0), n))
    if tilts_kept:
        copy(row(data.b, (r, 0), n), row(state, (B, r, 0), n))
        set_to_zero(row(state, (A, r, 0), n))


@kernel(by_address=True, views=True)
def _read_rows(step, batches, parameters, sweep, settings, statistics, memory, queue):
    """Moments given the rows of a batch, from which solutions or samples may start.

    Solutions start with zero variances or, where there are as many as rows, with the hidden moments
    given these: then the first half of a sweep is done, and the tilts are mostly not needed.
    """
    data, state, layers = statistics.data, statistics.model.state, sweep.layers
    n_batch, n, n_units = batches.rows.shape[1], layers[0, N_UNITS], state.shape[2]
    n_starts = 0 if settings.persistent else state.shape[1]
    first = fetch_and_increment(queue) * settings.task_rows
    while first < larger(n_batch, n_starts):
        last = first + settings.task_rows
        n_here = smaller(last, n_batch) - first
        for r in range(first, first + n_here):
            copy(_row_of_data(batches, step, r, n, state), row(data.mean, (r, 0), n))
        if n_here > 0:
            _hidden_moments(layers, data, first, n_here, memory)
        for r in range(first, smaller(last, n_starts)):
            if n_batch == n_starts:
                _start_from_moments(data, r, settings.tilts_kept, state)
                continue
            for plane in range(4):
                set_to_zero(row(state, (plane, r, 0), n_units))
            copy(_row_of_data(batches, step, r, n, state), row(state, (MEAN, r, 0), n))
        first = fetch_and_increment(queue) * settings.task_rows


@kernel(merged=True)
def draw_layer(layers, k, values, counter, memory, out):
    """Draw one layer of some rows of samples given its fields, which are in `memory.products`."""
    layer, products = layers[k], memory.products
    packed = packed_couplings(layer, 0, 0, layer[N_PANELS], products)
    of_layer = TwoValuedLayer(layer, packed, values[k, 0], values[k, 1])
    draw_rows(of_layer, counter, products, memory.vectors, (layer[START], layer[N_UNITS]), out)


@kernel(merged=True)
def sample_visible(layers, values, counter, memory, state):
    """Sample the visible units of some rows given the hidden ones, which lie with the fields."""
    (_, _, first, last), n, products = counter, layers[0, N_UNITS], memory.products
    packed = packed_couplings(layers[0], 0, 0, layers[0, N_PANELS], products)
    product(layers[0, PRODUCT], state[B, first:], last - first, n, packed, products, n)
    draw_layer(layers, 0, values, counter, memory, state[MEAN])


@kernel(by_address=True)
def _sample_rows(step, batches, parameters, sweep, settings, statistics, memory, queue):
    """Gibbs samples of the visible units, and moments of the hidden ones given these.

    A sample of the hidden units lies where their fields will.
    """
    layers, state, values = sweep.layers, statistics.model.state, settings.values
    products, seed, n_hidden = memory.products, batches.seeds[step], layers[1, N_UNITS]
    above = packed_couplings(layers[1], 0, 0, layers[1, N_PANELS], products)
    address, moments = layers[0, PRODUCT], Moments(state[MEAN], state[VAR], state[B])
    first = fetch_and_increment(queue) * settings.task_samples
    while first < state.shape[1]:
        last = smaller(first + settings.task_samples, state.shape[1])
        for k in range(1, 2 * settings.n_sweeps, 2):
            v = state[MEAN, first:]
            product(address, v, last - first, np.int64(0), above, products, n_hidden)
            draw_layer(layers, 1, values, (seed, k, first, last), memory, state[B])
            sample_visible(layers, values, (seed, k + 1, first, last), memory, state)
        _hidden_moments(layers, moments, first, last - first, memory)
        first = fetch_and_increment(queue) * settings.task_samples


@kernel(by_address=True, views=True)
def _find_cumulants(step, batches, parameters, sweep, settings, statistics, memory, queue):
    """Third cumulants of solutions, which are put where their Onsager terms are."""
    layers, state = sweep.layers, statistics.model.state
    r = fetch_and_increment(queue)
    while r < state.shape[1]:
        for k in range(layers.shape[0]):
            n, start = layers[k, N_UNITS], layers[k, START]
            mean, third = row(state, (MEAN, r, start), n), row(state, (A, r, start), n)
            third_cumulants(layers[k], 0, mean, third, row(memory.vectors, (1, 0), n))
        r = fetch_and_increment(queue)


# --- averages -------------------------------------------------------------------------------------


@kernel(merged=True)
def add_means(mean, first, out):
    """Add the means of some units in all rows, divided by the number of rows."""
    n, scale = out.shape[0], 1 / out.dtype.type(mean.shape[0])
    for r in range(mean.shape[0]):
        of_row = row(mean, (r, first), n)
        for i in range(n):
            out[i] += scale * of_row[i]


@kernel(merged=True)
def n_average_tasks(layers, size):
    """Number of tasks of so many units in which averages are taken."""
    return -(-layers[0, N_UNITS] // size) - (-layers[1, N_UNITS] // size)


@kernel(merged=True)
def average_task(layers, size, task):
    """A task of the averages: layer, first unit among all, and number of units; 0 if none."""
    k, n = np.int64(0), layers[0, N_UNITS]
    if task >= -(-n // size):
        task -= -(-n // size)
        k, n = np.int64(1), layers[1, N_UNITS]
    return k, layers[k, START] + task * size, larger(0, smaller(size, n - task * size))


@kernel(merged=True)
def subtract_means_of_model(k, settings, statistics, first, n, of_model):
    """Gradients by the fields of some units of layer `k`, whose offsets are the means over data.

    `of_model` is scratch memory.
    """
    units, dtype = statistics.units, statistics.units.dtype.type
    offset, gradient = row(units, (OFFSET, first), n), row(units, (GRADIENT, first), n)
    difference = row(units, (FIRST, first), n)
    set_to_zero(of_model)
    add_means(statistics.model.state[MEAN], first, of_model)
    centred = dtype(settings.tilts[1 - k] if settings.centred else 0)
    is_tilt = dtype(settings.tilts[k])
    for i in range(n):
        difference[i] = offset[i] - of_model[i]
        gradient[i] = is_tilt * difference[i]
        offset[i] = centred * offset[i]


@kernel(merged=True)
def _pack_row(statistics, r):
    """Pack one row of hidden units of a term, times its weight."""
    terms, rights, k, of_term = statistics.terms, statistics.rights, np.int64(0), r
    while of_term >= terms[k, N_ROWS]:
        of_term -= terms[k, N_ROWS]
        k += 1
    width, n, scale = rights.shape[2], terms[k, N_HIDDEN], statistics.scales[r]
    address = terms[k, HIDDEN] + of_term * terms[k, STRIDE] * rights.itemsize
    hidden = view(address, (n,), rights)
    for i in range(n):
        rights[i // width, r, i % width] = scale * hidden[i]


@kernel(merged=True)
def pack_hidden(statistics, n_before, task, queue):
    """Pack hidden units of all terms: tasks from this one on, which follow `n_before` others."""
    first, n_rows = (task - n_before) * TASK_ROWS, statistics.rights.shape[1]
    while first < n_rows:
        for r in range(first, smaller(first + TASK_ROWS, n_rows)):
            _pack_row(statistics, r)
        first = (fetch_and_increment(queue) - n_before) * TASK_ROWS


@kernel(by_address=True, views=True)
def _average(step, batches, parameters, sweep, settings, statistics, memory, queue):
    """Averages of units over the rows, and the packed hidden units of the gradient's terms."""
    task = fetch_and_increment(queue)
    k, first, n = average_task(sweep.layers, settings.task_units, task)
    while n > 0:
        offset = row(statistics.units, (OFFSET, first), n)
        set_to_zero(offset)
        add_means(statistics.data.mean, first, offset)
        subtract_means_of_model(k, settings, statistics, first, n, row(memory.vectors, (1, 0), n))
        task = fetch_and_increment(queue)
        k, first, n = average_task(sweep.layers, settings.task_units, task)
    pack_hidden(statistics, n_average_tasks(sweep.layers, settings.task_units), task, queue)


# --- couplings and fields -------------------------------------------------------------------------


@kernel(merged=True)
def sum_of_terms(address, parameters, statistics, first, n, memory):
    """The terms of the gradient by the couplings of some visible units, in `memory.slab`."""
    weights, begin, terms = parameters.weights, np.int64(0), statistics.terms
    n_hidden, left, slab, products = weights.shape[1], memory.left, memory.slab, memory.products
    for k in range(terms.shape[0]):
        n_rows, stride = terms[k, N_ROWS], terms[k, STRIDE] * weights.itemsize
        for r in range(n_rows):
            # Products read them close together.
            source = view(terms[k, UNITS] + r * stride + first * weights.itemsize, (n,), weights)
            copy(source, row(left, (r, 0), n))
        right = statistics.rights[:, begin : begin + n_rows]
        product(address, left[:n_rows].T, n, np.int64(0), right, products, n_hidden)
        for r in range(n):
            g, p = row(slab, (r, 0), n_hidden), row(products, (r, 0), n_hidden)
            w = row(weights, (first + r, 0), n_hidden)
            if k == 0:
                copy(p, g)
                continue
            for j in range(n_hidden):
                g[j] = g[j] * w[j] + p[j]
        begin += n_rows


@kernel(merged=True)
def move_panel(task, slab, parameters, settings, statistics):
    """Update the couplings of a panel of visible units along their gradient, and packed copies."""
    weights, units, width = parameters.weights, statistics.units, slab.shape[0]
    (n_visible, n), first = weights.shape, task * width
    above = row(units, (OFFSET, n_visible), n), row(units, (GRADIENT, n_visible), n)
    moved = row(statistics.above, (task, 0), n)
    set_to_zero(moved)
    for r in range(smaller(width, n_visible - first)):
        i = first + r
        w, g = row(weights, (i, 0), n), row(slab, (r, 0), n)
        parts = w, g, row(parameters.velocity, (i, 0), n)
        below = units[OFFSET, i], units[GRADIENT, i]
        units[MOVED, i], units[SQUARES, i] = ascend_row(parts, settings.ascent, below, above)
        for j in range(n):
            moved[j] += below[0] * g[j]
    pack_panel(weights, width, parameters.copies, settings.order, task)


@kernel(by_address=True, views=True, fastmath=REORDER)
def _move_couplings(step, batches, parameters, sweep, settings, statistics, memory, queue):
    """Gradient and update of the couplings of a panel of visible units, and packed copies."""
    n_visible, width = parameters.weights.shape[0], memory.slab.shape[0]
    address = sweep.layers[0, PRODUCT]
    task = fetch_and_increment(queue)
    while task * width < n_visible:
        n_here = smaller(width, n_visible - task * width)
        sum_of_terms(address, parameters, statistics, task * width, n_here, memory)
        move_panel(task, memory.slab, parameters, settings, statistics)
        task = fetch_and_increment(queue)


@kernel(by_address=True, views=True)
def _move_fields(step, batches, parameters, sweep, settings, statistics, memory, queue):
    """What the steps of couplings between deviations do to the fields, and the fields' own step."""
    if fetch_and_increment(queue) > 0:
        return
    (n_visible, n_hidden), units = parameters.weights.shape, statistics.units
    n_units, dtype = n_visible + n_hidden, units.dtype.type
    rate, momentum = dtype(settings.ascent.rate), dtype(settings.ascent.momentum)
    gradient, rows = row(units, (GRADIENT, 0), n_units), parameters.fields
    if settings.centred:
        for i in range(n_visible):
            gradient[i] -= units[MOVED, i]
        for task in range(statistics.above.shape[0]):
            for j in range(n_hidden):
                gradient[n_visible + j] -= statistics.above[task, j]
    fields, velocity = row(rows, (0, 0), n_units), row(rows, (1, 0), n_units)
    limits = row(rows, (2, 0), n_units)
    for i in range(n_units):
        velocity[i] = momentum * velocity[i] + rate * gradient[i]
        fields[i] = larger(-limits[i], smaller(limits[i], fields[i] + velocity[i]))
    for i in range(n_visible):
        # Written so that NaN counts as diverged.
        if not units[SQUARES, i] < settings.max_weight * settings.max_weight:
            parameters.diverged[0] = 1


# --- steps ----------------------------------------------------------------------------------------


@kernel(views=True)
def train(batches, parameters, solver, settings, statistics, scratch, queues, workers):
    """Take steps of learning, one for each row of `batches.rows`.

    Parameters
    ----------
    batches : Batches
    parameters : Parameters
        Changed in place.
    solver : Solver
    settings : Settings
    statistics : Statistics
        Those of the last step remain. Persistent solutions or samples are in `statistics.model`.
    scratch : Scratch
    queues : int64 array of shape (n_steps, N_PHASES, QUEUE_SIZE)
        Zero; shared by all threads that call this.
    workers : int64 array of shape (1,)
        Number of threads that have called this; one beyond the scratch memory returns at once.
    """
    w = fetch_and_increment(workers)
    if w >= scratch.products.shape[0]:
        return
    products, slab, left, vectors, active, n_active = scratch
    memory = Memory(products[w], slab[w], left[w], vectors[w], active[w], n_active[w])
    sweep = solver.sweep
    for step in range(batches.rows.shape[0]):
        if parameters.diverged[0] == 1:
            return
        for phase in range(N_PHASES):
            address, queue = settings.phases[phase], queues[step, phase]
            if address == 0:
                continue
            fetch_and_increment(queue[ENTERED:])
            if phase == STATES and settings.solved:
                options = sweep, solver.settings, solver.tilt, solver.workers
                call(address, (*options, queue, statistics.model))
            else:
                options = sweep, settings, statistics, memory
                call(address, (step, batches, parameters, *options, queue))
            _leave(queue)


def phases(order):
    """The phases of steps, whose data are dense; 0 is the order of Gibbs sampling."""
    found = {
        ROWS: _read_rows,
        AVERAGES: _average,
        SLABS: _move_couplings,
        FIELDS: _move_fields,
    }
    if order == 3:
        found[CUMULANTS] = _find_cumulants
    if order == 0:
        found[STATES] = _sample_rows
    return found


def phase_addresses(arguments, functions):
    """Addresses of the compiled phases; 0 for those without which steps do.

    Parameters
    ----------
    arguments : tuple
        Of `train`, whose settings have no addresses yet.
    functions : dict
        The phases, by number; without `STATES` these are mean-field solutions.

    Returns
    -------
    int64 array of shape (N_PHASES,)
    """
    batches, parameters, solver, settings, statistics, scratch, *_ = arguments
    queue = np.zeros(QUEUE_SIZE, np.int64)
    memory = Memory(*(part[0] for part in scratch))
    given = 0, batches, parameters, solver.sweep, settings, statistics, memory, queue
    types = tuple(map(numba.typeof, given))
    # The kernel of steps is the last that is needed.
    compile_ahead(*((f, types) for f in functions.values()), (train, map(numba.typeof, arguments)))
    addresses = np.zeros(N_PHASES, np.int64)
    for phase, function in functions.items():
        addresses[phase] = address_of(function, *types)
    if STATES not in functions:
        addresses[STATES] = tap_address(statistics.model.state.dtype)
    return addresses
