"""Preconditioned gradients in steps of learning.

With the gradient G by the couplings between two layers of preconditioners P and Q, a step follows
P G Q; with the gradient d by the fields of a layer, P d. See
`fastmf.learning.layered.preconditioning`. Two phases in place of one of
`fastmf.kernels.training.gradients`:

    find_gradients        G Q, packed, some lower units at a time; and P d
    move_preconditioned   P (G Q), the update of the couplings of these units, and packed copies
"""

from fastmf._jit.intrinsics import fetch_and_increment, row, smaller, view
from fastmf._jit.kernel import REORDER, kernel
from fastmf.kernels.linear.copies import copy
from fastmf.kernels.linear.product import product
from fastmf.kernels.mean_field.arguments import N_UNITS, PRODUCT, START
from fastmf.kernels.training.arguments import (
    FIRST,
    GRADIENT,
    GRADIENT_TIMES_PRECONDITIONER,
    MATRIX,
    PANELS,
)
from fastmf.kernels.training.gradients import finish_panel, move_panel, sum_of_terms


@kernel(mode="merged")
def _matrix_of(layers, k, parameters):
    """The preconditioner of a layer."""
    n = layers[k, N_UNITS]
    return view(parameters.preconditioners[k, MATRIX], (n, n), parameters.fields)


@kernel(mode="merged")
def _packed(address, n_rows, n_columns, width, like):
    """A packed matrix at an address."""
    return view(address, (-(-n_columns // width), n_rows, width), like)


@kernel(mode="merged")
def _precondition_fields(layers, task, parameters, units):
    """The preconditioned gradient by the fields of some units of a layer."""
    k, first, n_here = task[0], task[1], task[2]
    n, start = layers[k, N_UNITS], layers[k, START]
    matrix, differences = _matrix_of(layers, k, parameters), row(units, (FIRST, start), n)
    for i in range(n_here):
        p, total = row(matrix, (first - start + i, 0), n), units.dtype.type(0)
        for j in range(n):
            total += p[j] * differences[j]
        units[GRADIENT, first + i] = total


@kernel(mode="merged")
def _multiply_above(layers, panel, memory, parameters):
    """Fill in some rows of G Q, packed; those of G are in `memory.weight_rows`."""
    k, first, n_here = panel[0], panel[1], panel[2]
    weight_rows, products, n = memory.weight_rows, memory.products, layers[k + 1, N_UNITS]
    width, address = weight_rows.shape[0], parameters.preconditioners[k + 1, PANELS]
    packed = _packed(address, n, n, width, weight_rows)
    address = parameters.couplings[k, GRADIENT_TIMES_PRECONDITIONER]
    out = _packed(address, layers[k, N_UNITS], n, width, weight_rows)
    product(layers[0, PRODUCT], weight_rows, n_here, 0, packed, products, n)
    for p in range(out.shape[0]):
        n_columns = smaller(width, n - p * width)
        for r in range(n_here):
            source = row(products, (r, p * width), n_columns)
            copy(source, row(out, (p, first + r, 0), n_columns))


@kernel(mode="merged")
def _multiply_below(layers, panel, memory, parameters):
    """Rows of P (G Q), in `memory.weight_rows`."""
    k, first, n_here = panel[0], panel[1], panel[2]
    weight_rows, products, n = memory.weight_rows, memory.products, layers[k + 1, N_UNITS]
    address = parameters.couplings[k, GRADIENT_TIMES_PRECONDITIONER]
    packed = _packed(address, layers[k, N_UNITS], n, weight_rows.shape[0], weight_rows)
    rows = _matrix_of(layers, k, parameters)[first : first + n_here]
    product(layers[0, PRODUCT], rows, n_here, 0, packed, products, n)
    for r in range(n_here):
        copy(row(products, (r, 0), n), row(weight_rows, (r, 0), n))


@kernel(mode="by_address", views=True, fastmath=REORDER)
def find_gradients(step, batches, parameters, sweep, settings, statistics, memory, queue):
    """Gradients by couplings, times the preconditioner above, and those by fields."""
    layers, tasks, task = sweep.layers, statistics.panels, fetch_and_increment(queue)
    n_panels = tasks.shape[0]
    while task < n_panels + statistics.averages.shape[0]:
        if task < n_panels:
            sum_of_terms(layers, tasks[task], parameters, statistics, memory)
            finish_panel(layers, tasks[task], memory, parameters, settings, statistics)
            _multiply_above(layers, tasks[task], memory, parameters)
        else:
            of_units = statistics.averages[task - n_panels]
            _precondition_fields(layers, of_units, parameters, statistics.units)
        task = fetch_and_increment(queue)


@kernel(mode="by_address", views=True, fastmath=REORDER)
def move_preconditioned(step, batches, parameters, sweep, settings, statistics, memory, queue):
    """Update of the couplings of a panel of units, and packed copies."""
    layers, tasks, rate = sweep.layers, statistics.panels, batches.rates[step]
    task = fetch_and_increment(queue)
    while task < tasks.shape[0]:
        _multiply_below(layers, tasks[task], memory, parameters)
        move_panel(layers, tasks[task], rate, memory, parameters, settings, statistics)
        task = fetch_and_increment(queue)
