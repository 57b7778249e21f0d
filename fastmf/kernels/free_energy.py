"""The mean-field log-partition (minus the free energy) of given means and variances.

With b and a as in `fastmf.kernels.tap`, before external tilts are added,

    log Z = sum_i [log Z_i(b + field, a + precision) - b m + a (m^2 + v) / 2]
            + sum_(i,j) [W m_i m_j + W^2 v_i v_j / 2 + W^3 k_i k_j / 6]

where the second sum has each pair once, and its three terms are those of order 1, 2 and 3.
"""

from typing import NamedTuple

import numpy as np

from fastmf._numba import REORDER, call_on, fetch_and_increment, kernel, not_inlined
from fastmf.kernels.mean_field_types import start_third, third_cumulants
from fastmf.kernels.product import product
from fastmf.kernels.tap_rows import MEAN, VAR, A, B
from fastmf.priors._protocol import tilted_log_partition

# Rows whose products with a block of couplings are computed together, and panels in a block.
GROUP_ROWS = 24
BLOCK_PANELS = 8


class RowGroup(NamedTuple):
    """Some rows and the scratch space for them.

    Parameters
    ----------
    state : array of shape (4, n_rows, n_units)
        Of all rows.
    first, n_rows : int
        First row of the group and number of rows in it.
    third : array of shape (GROUP_ROWS, n_units), or (0, n_units) below order 3
        Third cumulants.
    products : array of shape (3, GROUP_ROWS, BLOCK_PANELS * panel_width)
        Means, variances and third cumulants times one block of couplings, their squares and cubes.
    scratch : array of shape (2, BLOCK_PANELS * panel_width)
    """

    state: np.ndarray
    first: int
    n_rows: int
    third: np.ndarray
    products: np.ndarray
    scratch: np.ndarray


@kernel(inline=True, fastmath=REORDER)
def _pair_terms(mean, var, field, a):
    """Terms of order 1 and 2 of the pairs that some units belong to; half, as each counts twice."""
    total = 0.0
    for i in range(mean.shape[0]):
        total += 0.5 * (mean[i] * field[i]) - 0.25 * (a[i] * var[i])
    return total


@kernel(inline=True, fastmath=REORDER)
def _site_terms(mean, var, b, a):
    """Sum of -b m + a (m^2 + v) / 2."""
    total = 0.0
    for i in range(mean.shape[0]):
        total += 0.5 * (a[i] * (mean[i] * mean[i] + var[i])) - b[i] * mean[i]
    return total


@kernel(inner=True)
def _log_partition_of_units(layer, group, s, first, n_units, order, tilt):
    """Terms of some units of row s of the group; writes their tilts into the state."""
    not_inlined()
    row = group.first + s
    units = slice(layer.start + first, layer.start + first + n_units)
    mean, var = group.state[MEAN, row, units], group.state[VAR, row, units]
    b, a = group.state[B, row, units], group.state[A, row, units]
    field, onsager = group.products[0, s, :n_units], group.products[1, s, :n_units]
    for i in range(n_units):
        a[i] = -onsager[i] if order >= 2 else 0
        b[i] = field[i] + a[i] * mean[i]
    total = _pair_terms(mean, var, field, a)
    if order == 3:
        cumulant, derivative = group.scratch[0, :n_units], group.scratch[1, :n_units]
        third_cumulants(layer.prior, first, mean, cumulant, derivative)
        for i in range(n_units):
            b[i] += group.products[2, s, i] * derivative[i] / 6
            total += cumulant[i] * group.products[2, s, i] / 12
    clamped = tilt.clamped.shape[0] > 0
    q = min(row, tilt.clamped.shape[0] - 1)
    # Clamped units have pair terms only: units are then evaluated one by one.
    at_once = np.int64(1) if clamped else n_units
    for i in range(0, n_units, at_once):
        if not (clamped and tilt.clamped[q, units.start + i]):
            here = slice(i, i + at_once)
            total += _site_terms(mean[here], var[here], b[here], a[here])
    if tilt.field.shape[0] > 0:
        external = tilt.field[min(row, tilt.field.shape[0] - 1), units]
        for i in range(n_units):
            b[i] += external[i]
    if tilt.precision.shape[0] > 0:
        external = tilt.precision[min(row, tilt.precision.shape[0] - 1), units]
        for i in range(n_units):
            a[i] += external[i]
    for i in range(0, n_units, at_once):
        if not (clamped and tilt.clamped[q, units.start + i]):
            here = slice(i, i + at_once)
            total += tilted_log_partition(layer.prior, first + i, b[here], a[here])
    return total


@kernel(inner=True)
def _add_layer(layer, group, order, tilt, out):
    """Add the terms of one layer to the log-partitions of a group of rows."""
    n_panels, _, width = layer.couplings.shape
    source, n, n_rows = layer.source, layer.n_units, group.n_rows
    rows, products = slice(group.first, group.first + n_rows), group.products
    mean, var = group.state[MEAN, rows], group.state[VAR, rows]
    for first_panel in range(0, n_panels, BLOCK_PANELS):
        last_panel = min(first_panel + BLOCK_PANELS, n_panels)
        for panel in range(first_panel, last_panel):
            column = (panel - first_panel) * width
            product(mean, n_rows, source, layer.couplings, panel, products[0], column, n)
            if order >= 2:
                product(var, n_rows, source, layer.squares, panel, products[1], column, n)
            if order == 3:
                product(group.third, n_rows, source, layer.cubes, panel, products[2], column, n)
        first = first_panel * width
        n_units = min(last_panel * width, layer.n_units) - first
        for s in range(n_rows):
            out[group.first + s] += _log_partition_of_units(
                layer, group, s, first, n_units, order, tilt
            )


@kernel
def free_energy(layers, state, order, tilt, queue, out):
    """Mean-field log-partition of the rows in the queue, and the tilts of their units.

    Parameters
    ----------
    layers : tuple of Layer
    state : array of shape (4, n_rows, n_units)
        Mean and variance on entry; on exit also the tilts b and a, external ones included.
    order : int
        1, 2 or 3.
    tilt : Tilt
    queue : int64 array of shape (1,)
        Next group of rows not taken yet; shared by all threads that call this.
    out : float64 array of shape (n_rows,)
        Filled with the log-partitions. Clamped units have pair terms only.
    """
    _, n_rows, n_units = state.shape
    dtype = state.dtype
    n_columns = BLOCK_PANELS * layers[0].couplings.shape[2]
    third = np.zeros((GROUP_ROWS if order == 3 else 0, n_units), dtype)
    products = np.zeros((3, GROUP_ROWS, n_columns), dtype)
    scratch = np.zeros((2, max(n_columns, n_units)), dtype)
    while True:
        first = fetch_and_increment(queue) * GROUP_ROWS
        if first >= n_rows:
            break
        group = RowGroup(state, first, min(GROUP_ROWS, n_rows - first), third, products, scratch)
        out[first : first + group.n_rows] = 0
        for s in range(group.n_rows if order == 3 else 0):
            for k in range(len(layers)):
                call_on(start_third, layers, k, (state[MEAN, first + s], third[s], scratch[0]))
        for k in range(len(layers)):
            call_on(_add_layer, layers, k, (group, order, tilt, out))
