"""Products of sparse rows with dense matrices.

Rows of the matrix are taken in panels that stay in the cache while all rows of a task pass. A
result adds up to four of them at a time, so that it is read and written a quarter as often.
"""

from typing import NamedTuple

from fastmf._jit.argument_types import Int32, Int64, Real
from fastmf._jit.intrinsics import larger, row, smaller
from fastmf._jit.kernel import REORDER, kernel
from fastmf._threads.interrupts import next_task
from fastmf.kernels.linear.copies import add_multiple

# Size of a panel in bytes: a quarter of it takes half as long again where few entries are stored.
PANEL_SIZE = 2**20


class CompressedRows(NamedTuple):
    """A sparse matrix in CSR form."""

    values: Real[1]  # (n_stored,)
    columns: Int32[1]  # int32 (n_stored,): column of each stored entry, ascending in each row
    # (n_rows,): where the entries of each row begin that have not been used yet
    positions: Int64[1]
    ends: Int64[1]  # (n_rows,)


@kernel(mode="merged")
def _add_four(values, columns, first, matrix, out):
    """Add four stored entries times the rows of the matrix that they belong to."""
    n = out.shape[0]
    x0, x1, x2, x3 = values[first], values[first + 1], values[first + 2], values[first + 3]
    row_0 = row(matrix, (columns[first] * n,), n)
    row_1 = row(matrix, (columns[first + 1] * n,), n)
    row_2 = row(matrix, (columns[first + 2] * n,), n)
    row_3 = row(matrix, (columns[first + 3] * n,), n)
    for j in range(n):
        out[j] += x0 * row_0[j] + x1 * row_1[j] + (x2 * row_2[j] + x3 * row_3[j])


@kernel(mode="merged")
def _add_entries(rows, r, panel_end, matrix, out):
    """Add the entries of a row that are in columns before the end of a panel; others are left."""
    (values, columns, positions, ends), n = rows, out.shape[0]
    k, end = positions[r], ends[r]
    while k + 4 <= end and columns[k + 3] < panel_end:
        _add_four(values, columns, k, matrix, out)
        k += 4
    while k < end and columns[k] < panel_end:
        add_multiple(values[k], row(matrix, (columns[k] * n,), n), out)
        k += 1
    positions[r] = k


@kernel(views=True, fastmath=REORDER)
def add_sparse_product(rows, matrix, task_rows, queue, out):
    """Add the product of sparse rows with a dense matrix."""
    (n_rows, n), entries = out.shape, row(matrix, (0, 0), matrix.size)
    panel = larger(1, PANEL_SIZE // (n * out.itemsize))
    first = next_task(queue) * task_rows
    while first < n_rows:
        last, panel_end = smaller(first + task_rows, n_rows), panel
        while panel_end < matrix.shape[0] + panel:
            for r in range(first, last):
                _add_entries(rows, r, panel_end, entries, row(out, (r, 0), n))
            panel_end += panel
        first = next_task(queue) * task_rows
