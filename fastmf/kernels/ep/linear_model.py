"""Passes over the design matrix of a linear model, for expectation propagation.

An iteration needs X diag(scale^2) X' (the covariance of the data, without the noise), and the sums
of squares of the columns of W X with a triangular W (the variances of the units). BLAS would need a
scaled copy of X, and its threads would wait for each other. Here a block of columns is packed
once for `product`, in double precision whatever the type of X, and its products stay in the cache.
"""

import numpy as np

from fastmf._jit.intrinsics import row, smaller
from fastmf._jit.kernel import REORDER, kernel
from fastmf._jit.vectors import VECTOR_BYTES
from fastmf._threads.workers import next_task, stopped
from fastmf.kernels.linear.product import panel_width, product, transpose_tile

PANEL_WIDTH = panel_width(np.float64)
# Columns whose products with each other are summed at a time: a panel of them and the rows that it
# is multiplied with stay in the first-level cache.
COLUMNS = 192
# Panels of columns that a worker takes at a time; rows of a triangular factor taken together: the
# entries that are zero are left out for all of them but the last.
PANELS_AT_A_TIME, ROWS = 8, 8


@kernel(fastmath=REORDER)
def data_covariance(address, X, scale, vector, queue, sums):
    """Products of all rows of X, its columns scaled, with each other and with a vector."""
    n_rows, n_units = X.shape
    n_parts, n_panels = sums.shape[0], -(-n_rows // PANEL_WIDTH)
    # Rows of zeros fill the last panel. They are not a multiple of a page apart, which would give
    # all of them the same few lines of the cache.
    scaled = np.zeros((n_panels * PANEL_WIDTH, COLUMNS + 8))
    panel, tile = np.zeros((1, COLUMNS, PANEL_WIDTH)), np.empty((n_rows, PANEL_WIDTH))
    while True:
        part = next_task(queue)
        if part >= n_parts:
            break
        total = sums[part]
        total[:] = 0
        end = (part + 1) * n_units // n_parts
        for start in range(part * n_units // n_parts, end, COLUMNS):
            if stopped(queue):
                return
            n_part = smaller(COLUMNS, end - start)
            columns = slice(start, start + n_part)
            _scale_columns(X, start, scale[columns], vector[columns], scaled, total[n_rows])
            for first in range(0, n_rows, PANEL_WIDTH):
                _transpose_panel(scaled, first, n_part, panel[0])
                product(
                    address,
                    scaled[first:],
                    n_rows - first,
                    0,
                    panel[:, :n_part],
                    tile,
                    PANEL_WIDTH,
                )
                _add_lower(tile, first, total)


@kernel(mode="merged")
def _scale_columns(X, start, scale, vector, scaled, products):
    """Scale some columns, and add their products with a vector."""
    n = len(scale)
    for i in range(X.shape[0]):
        # Entries of a row of X, but not of a block of its columns, are known to be neighbours.
        given, new, along = X[i, start : start + n], row(scaled, (i, 0), n), 0.0
        for k in range(n):
            new[k] = given[k] * scale[k]
            along += new[k] * vector[k]
        products[i] += along


@kernel(mode="merged")
def _transpose_panel(scaled, first, n_part, panel):
    """Write a panel's rows of some columns as its columns."""
    lanes = VECTOR_BYTES // 8
    n_tiled = n_part // lanes * lanes
    for k in range(0, n_tiled, lanes):
        for c in range(0, PANEL_WIDTH, lanes):
            transpose_tile(scaled, first + c, k, panel, c, lanes)
    for k in range(n_tiled, n_part):
        for c in range(PANEL_WIDTH):
            panel[k, c] = scaled[first + c, k]


@kernel(mode="merged")
def _add_lower(tile, first, total):
    """Add a panel of products, from row and column `first` on, to a lower triangle."""
    n_rows = total.shape[1]
    for i in range(first, n_rows):
        n = smaller(i - first + 1, PANEL_WIDTH)
        added, more = row(total, (i, first), n), row(tile, (i - first, 0), n)
        if n == PANEL_WIDTH:
            for c in range(PANEL_WIDTH):
                added[c] += more[c]
        else:
            for c in range(n):
                added[c] += more[c]


@kernel
def whitened_columns(address, X, whiten, directions, z, offset, queue, out):
    """Sums of squares of the whitened columns of X and their products with a vector."""
    n_rows, n_units = X.shape
    n_directions, width = len(offset), PANELS_AT_A_TIME * PANEL_WIDTH
    packed, tile = np.zeros((PANELS_AT_A_TIME, n_rows, PANEL_WIDTH)), np.zeros((ROWS, width))
    sums = np.empty((2, width))
    while True:
        first = next_task(queue) * width
        if first >= n_units:
            break
        last = smaller(first + width, n_units)
        panels = packed[: -(-(last - first) // PANEL_WIDTH)]
        pack_columns(X, first, last, packed)
        sums[:] = 0
        for i in range(0, n_rows, ROWS):
            end = smaller(i + ROWS, n_rows)
            states, columns = whiten[i:end], panels[:, :end]
            product(address, states, end - i, 0, columns, tile, last - first)
            _add(tile, z[i:end], 1, sums)
        for i in range(0, n_directions, ROWS):
            end = smaller(i + ROWS, n_directions)
            product(address, directions[i:end], end - i, 0, panels, tile, last - first)
            _add(tile, offset[i:end], -1, sums)
        for k in range(2):
            out[k, first:last] = sums[k, : last - first]


@kernel(mode="inner")
def pack_columns(X, first, last, packed):
    """Cut few columns into panels, row by row: other orders are several times slower here."""
    n_full, n_last = (last - first) // PANEL_WIDTH, (last - first) % PANEL_WIDTH
    for i in range(X.shape[0]):
        given = X[i, first:last]
        for p in range(n_full):
            part = given[p * PANEL_WIDTH : (p + 1) * PANEL_WIDTH]
            panel = row(packed, (p, i, 0), PANEL_WIDTH)
            for c in range(PANEL_WIDTH):
                panel[c] = part[c]
        for c in range(n_last):
            packed[n_full, i, c] = given[n_full * PANEL_WIDTH + c]


@kernel(mode="inner")
def _add(tile, vector, sign, sums):
    """Add sums of squares of the first rows' columns, and their products with a vector.

    Four rows at a time, as sums are loaded and stored for each.
    """
    squares, products, n = sums[0], sums[1], len(vector)
    for i in range(0, n - 3, 4):
        one, two, three, four = tile[i], tile[i + 1], tile[i + 2], tile[i + 3]
        for c in range(len(squares)):
            square = one[c] * one[c] + two[c] * two[c] + three[c] * three[c] + four[c] * four[c]
            squares[c] += sign * square
        z1, z2, z3, z4 = vector[i], vector[i + 1], vector[i + 2], vector[i + 3]
        for c in range(len(products)):
            along = z1 * one[c] + z2 * two[c] + z3 * three[c] + z4 * four[c]
            products[c] += sign * along
    for i in range(n - n % 4, n):
        last, factor = tile[i], sign * vector[i]
        for c in range(len(squares)):
            squares[c] += sign * last[c] * last[c]
            products[c] += factor * last[c]
