"""The mean-field log-partition (minus the free energy) of given states."""

import numpy as np

from fastmf._numba import REORDER, call_on, fetch_and_increment, kernel, not_inlined
from fastmf.kernels.mean_field_types import start_third, third_cumulants
from fastmf.kernels.product import product
from fastmf.kernels.tap_rows import MEAN, VAR, A, B
from fastmf.priors._protocol import tilted_log_partition

# Rows whose products with a block of couplings are taken together, and panels in a block.
ROWS = 24
PANELS = 8


@kernel(inline=True, fastmath=REORDER)
def _pairs(mean, var, field, a):
    """Terms of the pairs that some units belong to; each is met from both of its ends."""
    total = 0.0
    for i in range(mean.shape[0]):
        total += 0.5 * (mean[i] * field[i]) - 0.25 * (a[i] * var[i])
    return total


@kernel(inline=True, fastmath=REORDER)
def _untilted(mean, var, b, a):
    """What the tilts contribute to the log-partitions of units of such moments, with minus sign."""
    total = 0.0
    for i in range(mean.shape[0]):
        total += 0.5 * (a[i] * (mean[i] * mean[i] + var[i])) - b[i] * mean[i]
    return total


@kernel(inner=True)
def _row(layer, state, r, products, s, first, n_units, order, row, tilt, scratch):
    """Terms of some units of one row; their tilts go into the state."""
    not_inlined()
    units = slice(layer.start + first, layer.start + first + n_units)
    mean, var = state[MEAN, r, units], state[VAR, r, units]
    b, a = state[B, r, units], state[A, r, units]
    field, reaction = products[0, s, :n_units], products[1, s, :n_units]
    for i in range(n_units):
        a[i] = -reaction[i] if order >= 2 else 0
        b[i] = field[i] + a[i] * mean[i]
    total = _pairs(mean, var, field, a)
    if order == 3:
        cumulant, slope = scratch[0, :n_units], scratch[1, :n_units]
        third_cumulants(layer.prior, first, mean, cumulant, slope)
        for i in range(n_units):
            b[i] += products[2, s, i] * slope[i] / 6
            total += cumulant[i] * products[2, s, i] / 12
    clamped = tilt.clamped.shape[0] > 0
    q = min(row, tilt.clamped.shape[0] - 1)
    # Clamped units have pair terms only: the others are taken one by one then.
    at_once = np.int64(1) if clamped else n_units
    for i in range(0, n_units, at_once):
        if not (clamped and tilt.clamped[q, units.start + i]):
            here = slice(i, i + at_once)
            total += _untilted(mean[here], var[here], b[here], a[here])
    if tilt.field.shape[0] > 0:
        field = tilt.field[min(row, tilt.field.shape[0] - 1), units]
        for i in range(n_units):
            b[i] += field[i]
    if tilt.precision.shape[0] > 0:
        precision = tilt.precision[min(row, tilt.precision.shape[0] - 1), units]
        for i in range(n_units):
            a[i] += precision[i]
    for i in range(0, n_units, at_once):
        if not (clamped and tilt.clamped[q, units.start + i]):
            here = slice(i, i + at_once)
            total += tilted_log_partition(layer.prior, first + i, b[here], a[here])
    return total


@kernel(inner=True)
def _layer(layer, state, first_row, n_rows, order, tilt, third, products, scratch, out):
    """Add the terms of one layer for a group of rows."""
    n_panels, _, width = layer.couplings.shape
    source, n = layer.source, layer.n_units
    rows = slice(first_row, first_row + n_rows)
    for first_panel in range(0, n_panels, PANELS):
        last_panel = min(first_panel + PANELS, n_panels)
        for panel in range(first_panel, last_panel):
            column = (panel - first_panel) * width
            product(
                state[MEAN, rows], n_rows, source, layer.couplings, panel, products[0], column, n
            )
            if order >= 2:
                product(
                    state[VAR, rows], n_rows, source, layer.squares, panel, products[1], column, n
                )
            if order == 3:
                product(third, n_rows, source, layer.cubes, panel, products[2], column, n)
        first = first_panel * width
        n_units = min(last_panel * width, layer.n_units) - first
        for s in range(n_rows):
            row = first_row + s
            out[row] += _row(
                layer, state, row, products, s, first, n_units, order, row, tilt, scratch
            )


@kernel
def free_energy(layers, state, order, tilt, queue, out):
    """Mean-field log-partition of the rows in the queue, and the tilts of their units.

    Parameters
    ----------
    layers : tuple of Layer
    state : array of shape (4, n_rows, n_units)
        Mean and variance on entry; on exit also the tilts b and a that they give rise to.
    order : int
        1, 2 or 3.
    tilt : Tilt
    queue : int64 array of shape (1,)
        Next group of rows that nobody has taken; shared by all threads that call this.
    out : float64 array of shape (n_rows,)
        Sum of the site terms, log Z(b, a) - b m + a (m^2 + c) / 2 with the tilt from outside in the
        first term only, and of the pair terms W m m + W^2 c c / 2 + W^3 k k / 6. Clamped units
        have pair terms only.
    """
    _, n_rows, n_units = state.shape
    kind = state.dtype
    width = layers[0].couplings.shape[2]
    third = np.zeros((ROWS if order == 3 else 0, n_units), kind)
    products = np.zeros((3, ROWS, PANELS * width), kind)
    scratch = np.zeros((2, max(PANELS * width, n_units)), kind)
    while True:
        first = fetch_and_increment(queue) * ROWS
        if first >= n_rows:
            break
        n_here = min(ROWS, n_rows - first)
        for s in range(n_here):
            out[first + s] = 0
            if order == 3:
                for k in range(len(layers)):
                    call_on(start_third, layers, k, (state[MEAN, first + s], third[s], scratch[0]))
        for k in range(len(layers)):
            group = (state, first, n_here, order, tilt, third, products, scratch, out)
            call_on(_layer, layers, k, group)
