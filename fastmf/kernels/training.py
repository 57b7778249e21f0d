"""Steps of learning an RBM of binary units, one after another, without a return to Python.

A step has phases, each a queue of tasks that all threads take from:

    rows        fields and moments of the hidden units given the rows of a batch
    posterior   of deep machines, solutions for the hidden layers given these
    states      mean-field solutions, or Gibbs samples, of the model
    averages    offsets and gradients by the fields, and packed hidden units
    slabs       gradient of the couplings of some visible units, their update, packed copies
    fields      update of the fields

Those of sparse data are in `fastmf.kernels.training_sparse`, of deep machines in `training_deep`,
and of units of which more than fields is learned in `training_units`.

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
from fastmf.kernels.statistics import N_ROWS, POWER, STRIDE, UNITS
from fastmf.kernels.tap import tap_address
from fastmf.kernels.tap_rows import MEAN, VAR, A, B
from fastmf.kernels.training_types import (
    ABOVE,
    AVERAGES,
    COLLECTED,
    CUMULANTS,
    END_TERM,
    ENTERED,
    FIELDS,
    FIRST,
    FIRST_RIGHT,
    FIRST_TERM,
    GRADIENT,
    HIDDEN,
    LEFT,
    MOVED,
    N_HIDDEN,
    N_PHASES,
    N_RIGHTS,
    OFFSET,
    POSTERIOR,
    QUEUE_SIZE,
    RIGHTS,
    ROWS,
    SLABS,
    SQUARES,
    STATES,
    VELOCITY,
    WEIGHTS,
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
def row_of_data(batches, step, r, n, like):
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
            copy(row_of_data(batches, step, r, n, state), row(data.mean, (r, 0), n))
        if n_here > 0:
            _hidden_moments(layers, data, first, n_here, memory)
        for r in range(first, smaller(last, n_starts)):
            if n_batch == n_starts:
                _start_from_moments(data, r, settings.tilts_kept, state)
                continue
            for plane in range(4):
                set_to_zero(row(state, (plane, r, 0), n_units))
            copy(row_of_data(batches, step, r, n, state), row(state, (MEAN, r, 0), n))
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
    address, moments = layers[0, PRODUCT], Moments(state[MEAN], state[VAR], state[B], state[A])
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
def _average(step, batches, parameters, sweep, settings, statistics, memory, queue):
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
def _move_couplings(step, batches, parameters, sweep, settings, statistics, memory, queue):
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
def _move_fields(step, batches, parameters, sweep, settings, statistics, memory, queue):
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


# --- steps ----------------------------------------------------------------------------------------


@kernel(views=True)
def train(batches, parameters, solvers, settings, statistics, scratch, queues, workers):
    """Take steps of learning, one for each row of `batches.rows`.

    Parameters
    ----------
    batches : Batches
    parameters : Parameters
        Changed in place.
    solvers : tuple of two Solver
        For solutions of the model, and for those of the hidden layers given data.
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
    (solver, posterior), sweep = solvers, solvers[0].sweep
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
            elif phase == POSTERIOR:
                given = posterior.sweep, posterior.settings, posterior.tilt, posterior.workers
                call(address, (*given, queue, statistics.posterior))
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
        The phases, by number; without `STATES` these are mean-field solutions. `POSTERIOR` has
        no function of its own.

    Returns
    -------
    int64 array of shape (N_PHASES,)
    """
    batches, parameters, (solver, _), settings, statistics, scratch, *_ = arguments
    queue = np.zeros(QUEUE_SIZE, np.int64)
    memory = Memory(*(part[0] for part in scratch))
    given = 0, batches, parameters, solver.sweep, settings, statistics, memory, queue
    types = tuple(map(numba.typeof, given))
    # The kernel of steps is the last that is needed.
    compile_ahead(*((f, types) for f in functions.values()), (train, map(numba.typeof, arguments)))
    addresses = np.zeros(N_PHASES, np.int64)
    for phase, function in functions.items():
        addresses[phase] = address_of(function, *types)
    solve = tap_address(statistics.model.state.dtype)
    if STATES not in functions:
        addresses[STATES] = solve
    if COLLECTED in functions:
        addresses[POSTERIOR] = solve
    return addresses
