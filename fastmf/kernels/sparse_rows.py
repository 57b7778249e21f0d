"""Products of sparse rows with dense matrices.

Rows of the matrix are taken in panels that stay in the cache while all rows of a task pass. A
result adds up to four of them at a time, so that it is read and written a quarter as often.
"""

from typing import NamedTuple

import numpy as np

from fastmf._numba import REORDER, fetch_and_increment, kernel, larger, row, smaller
from fastmf.kernels.memory import set_to_zero

# Size of a panel in bytes: a quarter of it takes half as long again where few entries are stored.
PANEL_SIZE = 2**20


class SparseRows(NamedTuple):
    """A sparse matrix in CSR form.

    Parameters
    ----------
    values : array of shape (n_stored,)
    columns : int32 array of shape (n_stored,)
        Of each stored entry, ascending in each row.
    positions : int64 array of shape (n_rows,)
        Where the entries of each row begin that have not been used yet.
    ends : int64 array of shape (n_rows,)
    """

    values: np.ndarray
    columns: np.ndarray
    positions: np.ndarray
    ends: np.ndarray


@kernel(merged=True)
def add_multiple(x, entries, out):
    """Add a number times some entries."""
    for j in range(out.shape[0]):
        out[j] += x * entries[j]


@kernel(merged=True)
def _add_four(values, columns, first, matrix, out):
    """Add four stored entries times the rows of the matrix that they belong to."""
    n = out.shape[0]
    x0, x1, x2, x3 = values[first], values[first + 1], values[first + 2], values[first + 3]
    row_0, row_1 = row(matrix, (columns[first], 0), n), row(matrix, (columns[first + 1], 0), n)
    row_2, row_3 = row(matrix, (columns[first + 2], 0), n), row(matrix, (columns[first + 3], 0), n)
    for j in range(n):
        out[j] += x0 * row_0[j] + x1 * row_1[j] + (x2 * row_2[j] + x3 * row_3[j])


@kernel(merged=True)
def add_entries(values, columns, first, end, panel_end, matrix, out):
    """Add the entries of a row from `first` on that are in columns before the end of a panel.

    Each is multiplied by the row of the matrix that it belongs to. Returns the first entry that is
    not in those columns.
    """
    n, k = out.shape[0], first
    while k + 4 <= end and columns[k + 3] < panel_end:
        _add_four(values, columns, k, matrix, out)
        k += 4
    while k < end and columns[k] < panel_end:
        add_multiple(values[k], row(matrix, (columns[k], 0), n), out)
        k += 1
    return k


@kernel(merged=True)
def add_rows(rows, first, last, matrix, out):
    """Add the products of some sparse rows with a matrix; their positions are then their ends."""
    (n_columns, n), (values, columns, positions, ends) = matrix.shape, rows
    panel = larger(1, PANEL_SIZE // (n * out.itemsize))
    panel_end = panel
    while panel_end < n_columns + panel:
        for r in range(first, last):
            k, out_r = positions[r], row(out, (r, 0), n)
            positions[r] = add_entries(values, columns, k, ends[r], panel_end, matrix, out_r)
        panel_end += panel


@kernel(merged=True)
def begin_of(rows, r):
    """Where the entries of a row begin, used or not."""
    return rows.ends[r - 1] if r > 0 else 0


@kernel(merged=True)
def transpose(rows, first, last, scale, turned):
    """Set sparse rows to the transpose of some others, times a number."""
    values, columns, positions, ends = turned
    set_to_zero(ends)
    for k in range(begin_of(rows, first), rows.ends[last - 1]):
        ends[rows.columns[k]] += 1
    n_stored = 0
    for i in range(ends.shape[0]):
        positions[i] = n_stored
        n_stored += ends[i]
        ends[i] = positions[i]
    for r in range(first, last):
        for k in range(begin_of(rows, r), rows.ends[r]):
            i = rows.columns[k]
            values[ends[i]], columns[ends[i]] = scale * rows.values[k], r - first
            ends[i] += 1


@kernel(fastmath=REORDER)
def add_sparse_product(rows, matrix, task_rows, queue, out):
    """Add the product of sparse rows with a dense matrix.

    Parameters
    ----------
    rows : SparseRows
        Its positions are then its ends.
    matrix : array of shape (n_columns, n)
    task_rows : int
        Rows of one task of a worker.
    queue : int64 array of shape (1,)
        Next task not taken yet; shared by all threads that call this.
    out : array of shape (n_rows, n)
    """
    n_rows, first = out.shape[0], fetch_and_increment(queue) * task_rows
    while first < n_rows:
        add_rows(rows, first, smaller(first + task_rows, n_rows), matrix, out)
        first = fetch_and_increment(queue) * task_rows
