"""Passes over the design matrix of a linear model, for expectation propagation.

An iteration needs X diag(scale^2) X' (the covariance of the data, without the noise), and the sums
of squares of the columns of W X with a triangular W (the variances of the units). BLAS would need a
scaled copy of X, and its threads would wait for each other. Here a block of columns is packed
once for `product`, in double precision whatever the type of X, and its products stay in the cache.
"""

import numpy as np

from fastmf._numba import fetch_and_increment, kernel, smaller
from fastmf.kernels.product import panel_width, product

WIDTH = panel_width(np.float64)
# Columns whose products with each other are summed at a time.
COLUMNS = 256
# Panels of columns that a worker takes at a time; rows of a triangular factor taken together: the
# entries that are zero are left out for all of them but the last.
PANELS, ROWS = 4, 16


@kernel
def data_covariance(address, X, scale, queue, sums):
    """Products of all rows of X, its columns scaled.

    Parameters
    ----------
    address : int
        Of the compiled product.
    X : array of shape (n_rows, n_units)
    scale : array of shape (n_units,)
    queue : int64 array of shape (1,)
        Next part of the columns to be done; shared by all threads that call this.
    sums : array of shape (n_parts, n_rows, n_rows)
        Lower triangles filled; their sum is that of X diag(scale^2) X'.
    """
    n_rows, n_units = X.shape
    n_parts, n_panels = sums.shape[0], -(-n_rows // WIDTH)
    scaled, tile = np.empty((n_rows, COLUMNS)), np.empty((n_rows, WIDTH))
    packed = np.zeros((n_panels, COLUMNS, WIDTH))
    while True:
        part = fetch_and_increment(queue)
        if part >= n_parts:
            break
        total = sums[part]
        total[:] = 0
        end = (part + 1) * n_units // n_parts
        for start in range(part * n_units // n_parts, end, COLUMNS):
            n_here = smaller(COLUMNS, end - start)
            _scale_columns(X, scale, start, n_here, scaled, packed)
            for panel in range(n_panels):
                first = panel * WIDTH
                columns = packed[panel : panel + 1, :n_here]
                n_here_rows = n_rows - first
                product(address, scaled[first:], n_here_rows, 0, columns, tile, n_here_rows)
                _add_lower(tile, first, total)


@kernel(merged=True)
def _scale_columns(X, scale, start, n_columns, scaled, packed):
    """Scale some columns of X, as they are and packed for `product`."""
    for i in range(X.shape[0]):
        row, here, panel = X[i], scaled[i], packed[i // WIDTH]
        for k in range(n_columns):
            here[k] = row[start + k] * scale[start + k]
        for k in range(n_columns):
            panel[k, i % WIDTH] = here[k]


@kernel(merged=True)
def _add_lower(tile, first, total):
    """Add a panel of products, from row and column `first` on, to a lower triangle."""
    n_rows = total.shape[0]
    for i in range(first, smaller(first + WIDTH, n_rows)):
        for c in range(i - first + 1):
            total[i, first + c] += tile[i - first, c]
    for i in range(first + WIDTH, n_rows):
        row, more = total[i, first : first + WIDTH], tile[i - first]
        for c in range(WIDTH):
            row[c] += more[c]


@kernel
def whitened_columns(address, X, whiten, directions, z, offset, queue, out):
    """Sums of squares of the whitened columns of X and their products with a vector.

    Parameters
    ----------
    address : int
        Of the compiled product.
    X : array of shape (n_rows, n_units)
    whiten : array of shape (n_rows, n_rows)
        Lower triangular factor W.
    directions : array of shape (n_directions, n_rows)
        U, whose products are subtracted.
    z : array of shape (n_rows,)
    offset : array of shape (n_directions,)
    queue : int64 array of shape (1,)
        Next panels of columns to be done; shared by all threads that call this.
    out : array of shape (2, n_units)
        Filled with |W x|^2 - |U W x|^2 and z'W x - offset'U W x for every column x.
    """
    squares, products = out[0], out[1]
    n_rows, n_units = X.shape
    n_directions, width = len(offset), PANELS * WIDTH
    packed = np.zeros((PANELS, n_rows, WIDTH))
    white, along = np.empty((n_rows, width)), np.empty((n_directions, width))
    while True:
        first = fetch_and_increment(queue) * width
        if first >= n_units:
            break
        last = smaller(first + width, n_units)
        n_panels = -(-(last - first) // WIDTH)
        pack_columns(X[:, first:last], packed)
        for row in range(0, n_rows, ROWS):
            end = smaller(row + ROWS, n_rows)
            states, rows, out = whiten[row:end], packed[:n_panels, :end], white[row:end]
            product(address, states, end - row, 0, rows, out, last - first)
        squares[first:last] = 0
        products[first:last] = 0
        _add(white, z, 1, squares[first:last], products[first:last])
        if n_directions:
            pack_columns(white[:, : last - first], packed)
            product(address, directions, n_directions, 0, packed[:n_panels], along, last - first)
            _add(along, offset, -1, squares[first:last], products[first:last])


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
