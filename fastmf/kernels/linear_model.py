"""Passes over the design matrix of a linear model, for expectation propagation.

BLAS would need a scaled copy of every piece of the matrix, and threads of its own that wait for
each other. Here a piece is packed once for `product`, in double precision, whatever it is stored
in; what becomes of it stays in the cache.
"""

import numpy as np

from fastmf._numba import fetch_and_increment, kernel
from fastmf.kernels.product import panel_width, product

WIDTH = panel_width(np.float64)
# Columns whose products with each other are summed at a time.
COLUMNS = 256
# Panels of columns that are one task of a worker; rows of a triangular factor taken together: the
# entries that are zero are left out for all of them but the last.
PANELS, ROWS = 4, 16


@kernel
def data_covariance(X, scale, queue, sums):
    """Products of all rows of X, its columns scaled.

    Parameters
    ----------
    X : array of shape (n_rows, n_units)
    scale : array of shape (n_units,)
    queue : int64 array of shape (1,)
        Next share of the columns that nobody has taken; shared by all threads that call this.
    sums : array of shape (n_shares, n_rows, n_rows)
        Lower triangles filled; their sum is that of X diag(scale^2) X'.
    """
    n_rows, n_units = X.shape
    n_shares, n_panels = sums.shape[0], -(-n_rows // WIDTH)
    scaled, tile = np.empty((n_rows, COLUMNS)), np.empty((n_rows, WIDTH))
    packed = np.zeros((n_panels, COLUMNS, WIDTH))
    while True:
        share = fetch_and_increment(queue)
        if share >= n_shares:
            break
        total = sums[share]
        total[:] = 0
        end = (share + 1) * n_units // n_shares
        for start in range(share * n_units // n_shares, end, COLUMNS):
            n_here = min(COLUMNS, end - start)
            for i in range(n_rows):
                row, here, panel = X[i], scaled[i], packed[i // WIDTH]
                for k in range(n_here):
                    here[k] = row[start + k] * scale[start + k]
                for k in range(n_here):
                    panel[k, i % WIDTH] = here[k]
            for panel in range(n_panels):
                first = panel * WIDTH
                product(
                    scaled[first:], n_rows - first, 0, packed[:, :n_here], panel, tile, 0, n_rows
                )
                for i in range(first, min(first + WIDTH, n_rows)):
                    for c in range(i - first + 1):
                        total[i, first + c] += tile[i - first, c]
                for i in range(first + WIDTH, n_rows):
                    row, more = total[i, first : first + WIDTH], tile[i - first]
                    for c in range(WIDTH):
                        row[c] += more[c]


@kernel
def whitened_columns(X, whiten, directions, z, pull, queue, squares, products):
    """Sums of squares of the whitened columns of X and their products with a vector.

    Parameters
    ----------
    X : array of shape (n_rows, n_units)
    whiten : array of shape (n_rows, n_rows)
        Lower triangular factor W.
    directions : array of shape (n_directions, n_rows)
        What is taken back: U.
    z : array of shape (n_rows,)
    pull : array of shape (n_directions,)
    queue : int64 array of shape (1,)
        Next panels of columns that nobody has taken; shared by all threads that call this.
    squares, products : array of shape (n_units,)
        Filled with |W x|^2 - |U W x|^2 and z'W x - pull'U W x for every column x.
    """
    n_rows, n_units = X.shape
    n_directions, width = len(pull), PANELS * WIDTH
    packed = np.zeros((PANELS, n_rows, WIDTH))
    white, along = np.empty((n_rows, width)), np.empty((n_directions, width))
    while True:
        first = fetch_and_increment(queue) * width
        if first >= n_units:
            break
        last = min(first + width, n_units)
        n_panels = -(-(last - first) // WIDTH)
        pack_columns(X[:, first:last], packed)
        for row in range(0, n_rows, ROWS):
            end = min(row + ROWS, n_rows)
            states, rows, out = whiten[row:end], packed[:, :end], white[row:end]
            for panel in range(n_panels):
                product(states, end - row, 0, rows, panel, out, panel * WIDTH, last - first)
        squares[first:last] = 0
        products[first:last] = 0
        _add(white, z, 1, squares[first:last], products[first:last])
        if n_directions:
            pack_columns(white[:, : last - first], packed)
            for panel in range(n_panels):
                product(
                    directions, n_directions, 0, packed, panel, along, panel * WIDTH, last - first
                )
            _add(along, pull, -1, squares[first:last], products[first:last])


@kernel(inner=True)
def pack_columns(columns, packed):
    """Cut few columns into panels, row by row: other orders are several times slower here."""
    for i in range(columns.shape[0]):
        row = columns[i]
        for first in range(0, len(row), WIDTH):
            here, panel = row[first : first + WIDTH], packed[first // WIDTH, i]
            for c in range(len(here)):
                panel[c] = here[c]


@kernel(inner=True)
def _add(columns, vector, sign, squares, products):
    """Add sums of squares of the first columns, and their products with a vector."""
    for i in range(len(vector)):
        row, factor = columns[i], sign * vector[i]
        for c in range(len(squares)):
            squares[c] += sign * row[c] * row[c]
            products[c] += factor * row[c]
