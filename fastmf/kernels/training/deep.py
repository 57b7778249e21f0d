"""The phases of steps of learning a deep machine: see `fastmf.kernels.training.train`.

Given a row of data the hidden layers are a machine of their own, in which data are external fields
on the lowest one. Its solutions start from units without couplings, and so do, in solutions of the
model, the layers from the second hidden one on.
"""

from fastmf._jit.intrinsics import fetch_and_increment, larger, row, smaller
from fastmf._jit.kernel import kernel
from fastmf.kernels.linear.copies import copy, pack_panel, set_to_zero
from fastmf.kernels.linear.product import product
from fastmf.kernels.mean_field.arguments import N_PANELS, N_UNITS, PRODUCT, START, packed_couplings
from fastmf.kernels.mean_field.rows import MEAN, VAR, A, B
from fastmf.kernels.training.arguments import WEIGHT_MATRIX
from fastmf.kernels.training.gradients import weights_between
from fastmf.kernels.training.rows import copy_row_of_data, start_from_row


@kernel(mode="merged")
def _start_posterior(layers, statistics, first, n_rows, memory):
    """Starts of the hidden layers given some rows, and their external fields."""
    data, columns, products = statistics.data, statistics.columns, memory.products
    uncoupled, state = statistics.uncoupled, statistics.posterior.state
    (n_visible, n), width = (layers[0, N_UNITS], layers[1, N_UNITS]), state.shape[2]
    packed = packed_couplings(layers[1], 0, 0, layers[1, N_PANELS], products)[:, :n_visible]
    product(layers[0, PRODUCT], data.mean[first:], n_rows, layers[0, START], packed, products, n)
    for r in range(first, first + n_rows):
        fields = row(statistics.data_fields, (r, columns[1]), n)
        copy(row(products, (r - first, 0), n), fields)
        for plane in range(4):
            set_to_zero(row(state, (plane, r, 0), width))
        for k in range(1, layers.shape[0]):
            n_here, start = layers[k, N_UNITS], layers[k, START]
            for plane in range(2):
                source = row(uncoupled, (plane, start), n_here)
                copy(source, row(state, (plane, r, columns[k]), n_here))


@kernel(mode="by_address", views=True)
def read_deep_rows(step, batches, parameters, sweep, settings, statistics, memory, queue):
    """Rows of data, and starts of solutions of the model and of the hidden layers given data."""
    data, state, layers = statistics.data, statistics.model.state, sweep.layers
    n_batch, n = batches.rows.shape[1], layers[0, N_UNITS]
    n_starts = 0 if settings.persistent else state.shape[1]
    first = fetch_and_increment(queue) * settings.task_rows
    while first < larger(n_batch, n_starts):
        last = first + settings.task_rows
        end = smaller(last, n_batch)
        for r in range(first, end):
            copy_row_of_data(batches, step, r, row(data.mean, (r, 0), n))
        if first < end:
            _start_posterior(layers, statistics, first, end - first, memory)
        for r in range(first, smaller(last, n_starts)):
            start_from_row(batches, step, r, layers, statistics.uncoupled, state)
        first = fetch_and_increment(queue) * settings.task_rows


@kernel(mode="by_address", views=True)
def collect_posterior(step, batches, parameters, sweep, settings, statistics, memory, queue):
    """Copy solutions given data to where the moments of all layers are."""
    data, state, layers = statistics.data, statistics.posterior.state, sweep.layers
    r = fetch_and_increment(queue)
    while r < state.shape[1]:
        for k in range(1, layers.shape[0]):
            n, start, column = layers[k, N_UNITS], layers[k, START], statistics.columns[k]
            copy(row(state, (MEAN, r, column), n), row(data.mean, (r, start), n))
            copy(row(state, (VAR, r, column), n), row(data.var, (r, start), n))
            copy(row(state, (B, r, column), n), row(data.b, (r, start), n))
            copy(row(state, (A, r, column), n), row(data.a, (r, start), n))
        r = fetch_and_increment(queue)


@kernel(mode="by_address", views=True)
def repack_hidden(step, batches, parameters, sweep, settings, statistics, memory, queue):
    """Fill in the packed couplings of the machine of the hidden layers."""
    tasks, task = statistics.panels, fetch_and_increment(queue)
    while task < tasks.shape[0]:
        k, width = tasks[task, 0], memory.weight_rows.shape[0]
        if k > 0:
            weights = weights_between(sweep.layers, k, parameters, WEIGHT_MATRIX)
            copies, panel = parameters.copies[k, 2:], tasks[task, 1] // width
            pack_panel(weights, width, copies, settings.order, panel)
        task = fetch_and_increment(queue)
