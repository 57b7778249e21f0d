"""A fixed number of sweeps of a machine that is coupled to itself, in many rows at once.

As `fastmf.kernels.mean_field.tap` sweeps it, one unit after another and undamped, but without a
test of convergence: in learning a few sweeps from data are enough. A unit takes its new moments in
ROWS_PER_TASK rows at once, so that loops over rows are of whole vectors.
"""

from typing import NamedTuple

from fastmf._jit.argument_types import Real
from fastmf._jit.intrinsics import fetch_and_increment, row, smaller
from fastmf._jit.kernel import REORDER, kernel
from fastmf._threads.interrupts import next_task, stopped
from fastmf.kernels.linear.product import product
from fastmf.kernels.mean_field.arguments import (
    N_PANELS,
    N_SOURCE,
    PRODUCT,
    SOURCE,
    WIDTH,
    packed_couplings,
)
from fastmf.kernels.mean_field.rows import FIELD, MEAN, ONSAGER, VAR, A, B
from fastmf.kernels.mean_field.units import onsager_of, tilt_of
from fastmf.priors._compiled import tilted_moments

# Rows of one task, and copies of each unit in the table of units.
ROWS_PER_TASK = 32


class RowsMemory(NamedTuple):
    """Scratch space of each thread, along a first axis.

    Parameters
    ----------
    products : array of shape (n_workers, 2, ROWS_PER_TASK, panel_width)
        Means and variances times a panel of couplings, and of their squares.
    vectors : array of shape (n_workers, 4, ROWS_PER_TASK)
        Tilts and new moments of a unit in all rows.
    """

    products: Real[4]
    vectors: Real[3]


@kernel(mode="merged")
def _update_unit(layer, unit, column, rows, tilt, order, memory, state):
    """New moments of a unit in all rows of a task."""
    (first, n), (products, vectors), (field, precision) = rows, memory, tilt
    b, a = row(vectors, (0, 0), n), row(vectors, (1, 0), n)
    mean, var = row(vectors, (2, 0), n), row(vectors, (3, 0), n)
    here, last = layer[SOURCE] + unit, field.shape[0] - 1
    for r in range(n):
        onsager = onsager_of(products[ONSAGER, r, column]) if order == 2 else field.dtype.type(0)
        m, external = state[MEAN, first + r, here], field[smaller(first + r, last), unit]
        b[r] = tilt_of(products[FIELD, r, column], onsager, m, external)
        a[r] = onsager + precision[unit]
    tilted_moments(layer, unit * ROWS_PER_TASK, b, a, mean, var)
    for r in range(n):
        state[B, first + r, here], state[A, first + r, here] = b[r], a[r]


@kernel(mode="merged")
def _propagate(layer, unit, rows, order, memory, state):
    """Store new moments, and add their changes to the products of the other units of the panel."""
    (first, n), (products, vectors), width = rows, memory, layer[WIDTH]
    here, panel = layer[SOURCE] + unit, unit // width
    for power in range(order):
        packed = packed_couplings(layer, power, panel, panel + 1, products)
        couplings = row(packed, (0, unit, 0), width)
        for r in range(n):
            new = vectors[2 + power, r]
            change = new - state[MEAN + power, first + r, here]
            out = row(products, (power, r, 0), width)
            for j in range(width):
                out[j] += couplings[j] * change
    for r in range(n):
        state[MEAN, first + r, here], state[VAR, first + r, here] = vectors[2, r], vectors[3, r]


@kernel(mode="merged")
def _sweep(layer, rows, tilt, order, memory, state):
    """One sweep of the rows of a task."""
    (first, n), products, width = rows, memory[0], layer[WIDTH]
    for panel in range(layer[N_PANELS]):
        n_here = smaller(width, layer[N_SOURCE] - panel * width)
        for power in range(order):
            packed = packed_couplings(layer, power, panel, panel + 1, products)
            states, out = state[MEAN + power], products[power]
            product(layer[PRODUCT], states[first:], n, layer[SOURCE], packed, out, n_here)
        for column in range(n_here):
            unit = panel * width + column
            _update_unit(layer, unit, column, rows, tilt, order, memory, state)
            _propagate(layer, unit, rows, order, memory, state)


@kernel(fastmath=REORDER, views=True)
def sweep_all_rows(layers, order, n_sweeps, tilt, work, queue, state):
    """Sweep rows so many times, one unit after another."""
    w, layer = fetch_and_increment(queue[1:]), layers[0]
    if w >= work.products.shape[0]:
        return
    memory, n_rows = (work.products[w], work.vectors[w]), state.shape[1]
    task = next_task(queue)
    while task * ROWS_PER_TASK < n_rows:
        rows = task * ROWS_PER_TASK, smaller(ROWS_PER_TASK, n_rows - task * ROWS_PER_TASK)
        for _ in range(n_sweeps):
            if stopped(queue):
                return
            _sweep(layer, rows, tilt, order, memory, state)
        task = next_task(queue)
