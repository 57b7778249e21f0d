"""The phases of steps of learning from sparse rows: see `fastmf.kernels.training.train`.

Products with data take as long as their stored entries require. So do those with Gibbs samples,
most of whose units are 0 as those of data are. Mean-field solutions are dense.
"""

from fastmf._jit.intrinsics import fetch_and_increment, larger, row, smaller
from fastmf._jit.kernel import REORDER, kernel
from fastmf.kernels.linear.copies import copy, set_to_zero
from fastmf.kernels.linear.sparse_rows import (
    CompressedRows,
    add_multiple,
    add_rows,
    begin_of,
    transpose,
)
from fastmf.kernels.mean_field.arguments import N_UNITS, START
from fastmf.kernels.mean_field.rows import MEAN, VAR, B
from fastmf.kernels.training.arguments import OFFSET, WEIGHT_MATRIX
from fastmf.kernels.training.gradients import (
    add_means,
    finish_panel,
    move_panel,
    pack_hidden,
    subtract_means_of_model,
    sum_of_terms,
    weights_between,
)
from fastmf.kernels.training.rows import draw_layer, sample_layer
from fastmf.priors._compiled import tilted_moments


@kernel(mode="merged")
def _start_from_row(rows, r, mean):
    """Set the means of the visible units to a row of data."""
    set_to_zero(mean)
    for k in range(begin_of(rows, r), rows.ends[r]):
        mean[rows.columns[k]] = rows.values[k]


@kernel(mode="by_address", views=True, fastmath=REORDER)
def read_sparse_rows(step, batches, parameters, sweep, settings, statistics, memory, queue):
    """Moments given the rows of a batch, from which solutions or samples may start."""
    data, state, layer = statistics.data, statistics.model.state, sweep.layers[1]
    (n_batch, n), n_visible, n_units = data.b.shape, layer[START], state.shape[2]
    n_starts = 0 if settings.persistent else state.shape[1]
    # Planes that are read: only the units of samples, and no tilts after half a sweep.
    n_planes = (2 if n_starts <= n_batch else 4) if settings.solved else 1
    weights, begin = weights_between(sweep.layers, 0, parameters, WEIGHT_MATRIX), step * n_batch
    weights, zero = row(weights, (0, 0), weights.size), row(memory.vectors, (0, 0), n)
    task = fetch_and_increment(queue)
    if task == 0:
        scale = 1 / data.b.dtype.type(n_batch)
        transpose(batches.sparse, begin, begin + n_batch, scale, statistics.transposed_batch)
        task = fetch_and_increment(queue)
    first = (task - 1) * settings.task_rows
    while first < larger(n_batch, n_starts):
        last = first + settings.task_rows
        end = smaller(last, n_batch)
        n_here = larger(0, end - first)
        b = row(data.b, (first, 0), n_here * n)
        set_to_zero(b)
        here = begin + first, begin + first + n_here
        add_rows(settings.add_rows, batches.sparse, here[0], here[1], weights, n, b)
        for r in range(first, end):
            mean, var = row(data.mean, (r, 0), n), row(data.var, (r, 0), n)
            tilted_moments(layer, 0, row(data.b, (r, 0), n), zero, mean, var)
        for r in range(first, smaller(last, n_starts)):
            for plane in range(n_planes):
                set_to_zero(row(state, (plane, r, 0), n_units))
            visible = row(state, (MEAN, r, 0), n_visible)
            _start_from_row(batches.sparse, begin + r % n_batch, visible)
            if n_planes == 2:
                copy(row(data.mean, (r, 0), n), row(state, (MEAN, r, n_visible), n))
                copy(row(data.var, (r, 0), n), row(state, (VAR, r, n_visible), n))
        first = (fetch_and_increment(queue) - 1) * settings.task_rows


@kernel(mode="merged")
def _fields_given_sample(address, v, weights, memory, out):
    """Fields of the hidden units given a sample of the visible ones."""
    active, values, n_active = memory.active, row(memory.vectors, (1, 0), v.shape[0]), 0
    for i in range(v.shape[0]):
        if v[i] != 0:
            active[n_active], values[n_active] = i, v[i]
            n_active += 1
    begin, end = row(memory.n_active, (0,), 1), row(memory.n_active, (1,), 1)
    begin[0], end[0] = 0, n_active
    set_to_zero(out)
    sample = CompressedRows(values, active, begin, end)
    add_rows(address, sample, 0, 1, weights, out.shape[0], out)


@kernel(mode="by_address")
def sample_sparse_rows(step, batches, parameters, sweep, settings, statistics, memory, queue):
    """Gibbs samples of the visible units, and moments of the hidden ones given these."""
    layers, state = sweep.layers, statistics.model.state
    weights = weights_between(layers, 0, parameters, WEIGHT_MATRIX)
    products, seed, (n, n_hidden) = memory.products, batches.seeds[step], weights.shape
    weights = row(weights, (0, 0), n * n_hidden)
    zero = row(memory.vectors, (0, 0), n_hidden)
    first = fetch_and_increment(queue) * settings.task_samples
    while first < state.shape[1]:
        last = smaller(first + settings.task_samples, state.shape[1])
        for k in range(1, 2 * settings.n_sweeps + 2, 2):
            for r in range(first, last):
                v, fields = row(state, (MEAN, r, 0), n), row(products, (r - first, 0), n_hidden)
                _fields_given_sample(settings.add_rows, v, weights, memory, fields)
            if k < 2 * settings.n_sweeps:
                draw_layer(layers, 1, (seed, k, first, last), memory, state[B])
                counter = seed, k + 1, first, last
                sample_layer(layers, 0, counter, memory, state[B], state[MEAN])
        for r in range(first, last):
            b, mean = row(products, (r - first, 0), n_hidden), row(state, (MEAN, r, n), n_hidden)
            tilted_moments(layers[1], 0, b, zero, mean, row(state, (VAR, r, n), n_hidden))
        first = fetch_and_increment(queue) * settings.task_samples


@kernel(mode="merged")
def _average_data(statistics, k, first, n_visible, out):
    """Means of some units of layer `k` over the rows."""
    data = statistics.transposed_batch
    set_to_zero(out)
    if k == 1:
        add_means(statistics.data.mean, first - n_visible, out)
        return
    for i in range(out.shape[0]):
        for entry in range(data.positions[first + i], data.ends[first + i]):
            out[i] += data.values[entry]


@kernel(mode="by_address", views=True)
def average_sparse(step, batches, parameters, sweep, settings, statistics, memory, queue):
    """Averages of units over the rows, and the packed hidden units of the gradient's terms."""
    tasks, n_visible = statistics.averages, sweep.layers[1, START]
    task = fetch_and_increment(queue)
    while task < tasks.shape[0]:
        k, first, n = tasks[task, 0], tasks[task, 1], tasks[task, 2]
        _average_data(statistics, k, first, n_visible, row(statistics.units, (OFFSET, first), n))
        subtract_means_of_model(statistics, first, n, row(memory.vectors, (1, 0), n))
        task = fetch_and_increment(queue)
    pack_hidden(statistics, memory.weight_rows.shape[0], task, queue)


@kernel(mode="merged")
def _subtract_samples(state, first, n_visible, n_here, weight_rows):
    """Subtract the average over samples of products of some visible units with the hidden ones."""
    n = weight_rows.shape[1]
    scale = -1 / state.dtype.type(state.shape[1])
    for r in range(state.shape[1]):
        v, h = row(state, (MEAN, r, first), n_here), row(state, (MEAN, r, n_visible), n)
        for i in range(n_here):
            if v[i] != 0:
                add_multiple(scale * v[i], h, row(weight_rows, (i, 0), n))


@kernel(mode="by_address", views=True, fastmath=REORDER)
def move_sparse(step, batches, parameters, sweep, settings, statistics, memory, queue):
    """Gradient and update of the couplings of a panel of visible units, and packed copies."""
    layers, weight_rows, data = sweep.layers, memory.weight_rows, statistics.transposed_batch
    n_visible, n, mean = layers[0, N_UNITS], weight_rows.shape[1], statistics.data.mean
    hidden = row(mean, (0, 0), mean.size)
    tasks, rate, task = statistics.panels, batches.rates[step], fetch_and_increment(queue)
    while task < tasks.shape[0]:
        panel, first, n_here = tasks[task], tasks[task, 1], tasks[task, 2]
        g = row(weight_rows, (0, 0), n_here * n)
        if not settings.solved:
            set_to_zero(g)
            _subtract_samples(statistics.model.state, first, n_visible, n_here, weight_rows)
        sum_of_terms(layers, panel, parameters, statistics, memory)
        add_rows(settings.add_rows, data, first, first + n_here, hidden, n, g)
        finish_panel(layers, panel, memory, parameters, settings, statistics)
        move_panel(layers, panel, rate, memory, parameters, settings, statistics)
        task = fetch_and_increment(queue)
