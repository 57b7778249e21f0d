"""A pass over the design matrix of a linear model, for expectation propagation.

An iteration needs the sums of squares of the columns of W X with a triangular W (the variances of
the units). BLAS would store all products, and its threads would wait for each other. Here a block
of columns is packed once for `product`, in double precision whatever the type of X, and its
products stay in the cache.
"""

import numpy as np

from fastmf._jit.intrinsics import row, smaller
from fastmf._jit.kernel import kernel
from fastmf._threads.workers import next_task
from fastmf.kernels.linear.product import panel_width, product

PANEL_WIDTH = panel_width(np.float64)
# Panels of columns that a worker takes at a time; rows of a triangular factor that are multiplied
# together, up to the end of the last one: of the zeros only those beyond are skipped.
PANELS_AT_A_TIME, ROWS = 8, 8


@kernel
def whitened_columns(address, X, whiten, directions, z, offset, queue, out):
    """Compute sums of squares of the whitened columns of X, and their products with a vector."""
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
    """Pack a few columns into panels, row by row: other orders are several times slower."""
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
    """Add sums of squares of the columns of a tile, and their products with a vector.

    Four rows are added at a time, because sums are loaded and stored each time.
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
