"""Rows of data, solutions and samples in steps of learning: see `fastmf.kernels.training.train`."""

from fastmf._jit.intrinsics import fetch_and_increment, larger, row, smaller, view
from fastmf._jit.kernel import kernel
from fastmf.kernels.linear.copies import copy, set_to_zero
from fastmf.kernels.linear.product import product
from fastmf.kernels.mean_field.arguments import (
    N_PANELS,
    N_TARGETS,
    N_UNITS,
    PRODUCT,
    SOURCE,
    START,
    WIDTH,
    packed_couplings,
    targets_of,
)
from fastmf.kernels.mean_field.rows import MEAN, VAR, A, B
from fastmf.kernels.sampling.gibbs import SampledLayer, draw_rows
from fastmf.kernels.training.arguments import (
    Moments,
)
from fastmf.priors._compiled import third_cumulants, tilted_moments


@kernel(mode="merged")
def _multiply(layer, states, n_rows, out):
    """Fields of a layer given its neighbours, for some rows; groups of states are apart."""
    source, n = layer[SOURCE], layer[N_UNITS]
    if layer[N_TARGETS] == 0:
        packed = packed_couplings(layer, 0, 0, layer[N_PANELS], out)
        product(layer[PRODUCT], states, n_rows, source, packed, out, n)
    targets = targets_of(layer)
    for t in range(targets.shape[0]):
        first, n, panel = targets[t, 0], targets[t, 1], targets[t, 2]
        packed = packed_couplings(layer, 0, panel, panel - (-n // layer[WIDTH]), out)
        # Whole vectors are written: the columns after them are filled later.
        product(layer[PRODUCT], states, n_rows, source, packed, out[:, first:], n)


@kernel(mode="merged")
def moments_given(layers, k, moments, first, n_rows, memory):
    """Fields, means and variances of layer `k` given its neighbours, for some rows."""
    layer, products = layers[k], memory.products
    n, start = layer[N_UNITS], layer[START]
    _multiply(layer, moments.mean[first:], n_rows, products)
    zero = row(memory.vectors, (0, 0), n)
    for r in range(n_rows):
        b, mean = row(moments.b, (first + r, start), n), row(moments.mean, (first + r, start), n)
        copy(row(products, (r, 0), n), b)
        tilted_moments(layer, 0, b, zero, mean, row(moments.var, (first + r, start), n))


@kernel(mode="merged")
def copy_row_of_data(batches, step, r, out):
    """Copy a row of data of a batch, which begins again where it ends."""
    source, n = batches.rows[step, r % batches.rows.shape[1]], out.shape[0]
    copy(view(batches.data[0] + source * n * out.itemsize, (n,), out), out)


@kernel(mode="merged")
def start_from_row(batches, step, r, layers, uncoupled, state):
    """Let a solution start from a row of data, higher layers than the second from no couplings."""
    for plane in range(4):
        set_to_zero(row(state, (plane, r, 0), state.shape[2]))
    copy_row_of_data(batches, step, r, row(state, (MEAN, r, 0), layers[0, N_UNITS]))
    for k in range(2, layers.shape[0]):
        n, start = layers[k, N_UNITS], layers[k, START]
        copy(row(uncoupled, (MEAN, start), n), row(state, (MEAN, r, start), n))


@kernel(mode="merged")
def _start_from_moments(data, r, tilts_kept, state):
    """Let a solution start from the moments given a row of data."""
    n = state.shape[2]
    copy(row(data.mean, (r, 0), n), row(state, (MEAN, r, 0), n))
    copy(row(data.var, (r, 0), n), row(state, (VAR, r, 0), n))
    if tilts_kept:
        copy(row(data.b, (r, 0), n), row(state, (B, r, 0), n))
        set_to_zero(row(state, (A, r, 0), n))


@kernel(mode="by_address", views=True)
def read_rows(step, batches, parameters, sweep, settings, statistics, memory, queue):
    """Moments given the rows of a batch, from which solutions or samples may start.

    Solutions start with the hidden moments given these or, where there are more of them than rows,
    with zero variances. In the first case half of a sweep is done, and the tilts are mostly not
    needed.
    """
    data, state, layers = statistics.data, statistics.model.state, sweep.layers
    n_batch, n = batches.rows.shape[1], layers[0, N_UNITS]
    n_starts = 0 if settings.persistent else state.shape[1]
    first = fetch_and_increment(queue) * settings.task_rows
    while first < larger(n_batch, n_starts):
        last = first + settings.task_rows
        n_here = smaller(last, n_batch) - first
        for r in range(first, first + n_here):
            copy_row_of_data(batches, step, r, row(data.mean, (r, 0), n))
        if n_here > 0:
            moments_given(layers, 1, data, first, n_here, memory)
        for r in range(first, smaller(last, n_starts)):
            if n_starts <= n_batch:
                _start_from_moments(data, r, settings.tilts_kept, state)
            else:
                start_from_row(batches, step, r, layers, statistics.uncoupled, state)
        first = fetch_and_increment(queue) * settings.task_rows


@kernel(mode="merged")
def draw_layer(layers, k, counter, memory, out):
    """Draw one layer of some rows of samples given its fields, which are in `memory.products`."""
    layer, products = layers[k], memory.products
    # All even layers are drawn together, and all odd ones.
    place = layer[START] - layers[k % 2, START]
    packed = packed_couplings(layer, 0, 0, layer[N_PANELS], products)
    scratch, units = (memory.vectors, memory.uniforms), (layer[START], layer[N_UNITS])
    draw_rows(SampledLayer(layer, packed, place), counter, products, scratch, units, out)


@kernel(mode="merged")
def sample_layer(layers, k, counter, memory, given, out):
    """Sample one layer of some rows given its neighbours."""
    (_, _, first, last), layer, products = counter, layers[k], memory.products
    packed = packed_couplings(layer, 0, 0, layer[N_PANELS], products)
    n_rows, source, n = last - first, layer[SOURCE], layer[N_UNITS]
    product(layer[PRODUCT], given[first:], n_rows, source, packed, products, n)
    draw_layer(layers, k, counter, memory, out)


@kernel(mode="by_address")
def sample_rows(step, batches, parameters, sweep, settings, statistics, memory, queue):
    """Gibbs samples of the even layers, and moments of the odd ones given these.

    A sample of the odd layers lies where their fields will.
    """
    layers, state = sweep.layers, statistics.model.state
    n_layers, seed = layers.shape[0], batches.seeds[step]
    moments = Moments(state[MEAN], state[VAR], state[B], state[A])
    first = fetch_and_increment(queue) * settings.task_samples
    while first < state.shape[1]:
        last = smaller(first + settings.task_samples, state.shape[1])
        for sweep_step in range(1, 2 * settings.n_sweeps, 2):
            counter = seed, sweep_step, first, last
            for k in range(1, n_layers, 2):
                sample_layer(layers, k, counter, memory, state[MEAN], state[B])
            counter = seed, sweep_step + 1, first, last
            for k in range(0, n_layers, 2):
                sample_layer(layers, k, counter, memory, state[B], state[MEAN])
        for k in range(1, n_layers, 2):
            moments_given(layers, k, moments, first, last - first, memory)
        first = fetch_and_increment(queue) * settings.task_samples


@kernel(mode="by_address", views=True)
def find_cumulants(step, batches, parameters, sweep, settings, statistics, memory, queue):
    """Third cumulants of solutions, which are put where their Onsager terms are.

    In deep machines those of solutions for the hidden layers given data, too.
    """
    layers, data, state = sweep.layers, statistics.data, statistics.model.state
    n_data = statistics.posterior.state.shape[1]
    r = fetch_and_increment(queue)
    while r < state.shape[1] + n_data:
        for k in range(layers.shape[0]):
            n, start = layers[k, N_UNITS], layers[k, START]
            mean, third = row(state, (MEAN, r, start), n), row(state, (A, r, start), n)
            if r >= state.shape[1]:
                of_data = r - state.shape[1], start
                mean, third = row(data.mean, of_data, n), row(data.a, of_data, n)
            third_cumulants(layers[k], 0, mean, third, row(memory.vectors, (1, 0), n))
        r = fetch_and_increment(queue)
