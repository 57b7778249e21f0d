"""Products of sparse rows with dense matrices.

Rows of the matrix are taken in panels that stay in the cache while all rows of a task pass. A
result adds up to four of them at a time, so that it is read and written a quarter as often.
"""

from functools import cache
from typing import NamedTuple

from fastmf._jit.argument_types import Int32, Int64, Real, argument_types
from fastmf._jit.intrinsics import larger, row, smaller
from fastmf._jit.kernel import REORDER, address_of, call, calls, kernel
from fastmf._threads.interrupts import next_task
from fastmf.kernels.linear.copies import set_to_zero

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
def add_multiple(x, entries, out):
    """Add a number times some entries."""
    for j in range(out.shape[0]):
        out[j] += x * entries[j]


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


@kernel(mode="by_address", views=True, fastmath=REORDER)
def _add_rows(rows, first, last, matrix, n, out):
    """`add_rows`, of arrays of one dimension."""
    n_columns, panel = matrix.shape[0] // n, larger(1, PANEL_SIZE // (n * out.itemsize))
    panel_end = panel
    while panel_end < n_columns + panel:
        for r in range(first, last):
            _add_entries(rows, r, panel_end, matrix, row(out, ((r - first) * n,), n))
        panel_end += panel


@calls()
def add_rows(address, rows, first, last, matrix, n, out):
    """Add the products of some sparse rows with a matrix; their positions are then their ends."""
    call(address, (rows, first, last, matrix, n, out))


@cache
def add_rows_address(dtype):
    """Address of the compiled function for matrices of a type."""
    arguments = CompressedRows, int, int, Real[1], int, Real[1]
    return address_of(_add_rows, *argument_types(dtype, *arguments))


@kernel(mode="merged")
def begin_of(rows, r):
    """Where the entries of a row begin, used or not."""
    return rows.ends[r - 1] if r > 0 else 0


@kernel(mode="merged")
def transpose(rows, first, last, scale, transposed):
    """Set sparse rows to the transpose of some others, times a number."""
    values, columns, positions, ends = transposed
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


@kernel(views=True)
def add_sparse_product(address, rows, matrix, task_rows, queue, out):
    """Add the product of sparse rows with a dense matrix."""
    (n_rows, n), entries = out.shape, row(matrix, (0, 0), matrix.size)
    first = next_task(queue) * task_rows
    while first < n_rows:
        last = smaller(first + task_rows, n_rows)
        out_rows = row(out, (first, 0), (last - first) * n)
        add_rows(address, rows, first, last, entries, n, out_rows)
        first = next_task(queue) * task_rows
