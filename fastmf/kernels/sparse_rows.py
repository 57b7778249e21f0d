"""Products of sparse rows with dense matrices.

Rows of the matrix are taken in panels that stay in the cache while all rows of a task pass. A
result adds up to four of them at a time, so that it is read and written a quarter as often.
"""

from fastmf._numba import fetch_and_increment, kernel, larger, row, smaller

# Size of a panel in bytes: a quarter of it takes half as long again where few entries are stored.
PANEL_SIZE = 2**20


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
def _add_panel(values, columns, first, end, panel_end, matrix, out):
    """Add the entries of a row from `first` on that are in columns before the end of a panel.

    Returns the first one that is not.
    """
    n, k = out.shape[0], first
    while k + 4 <= end and columns[k + 3] < panel_end:
        _add_four(values, columns, k, matrix, out)
        k += 4
    while k < end and columns[k] < panel_end:
        x, row_k = values[k], row(matrix, (columns[k], 0), n)
        for j in range(n):
            out[j] += x * row_k[j]
        k += 1
    return k


@kernel
def add_sparse_product(values, columns, positions, ends, matrix, task_rows, queue, out):
    """Add the product of a sparse matrix in CSR form with a dense one.

    Parameters
    ----------
    values : array of shape (n_stored,)
    columns : int32 array of shape (n_stored,)
        Of each stored entry, ascending in each row.
    positions : int64 array of shape (n_rows,)
        Where the entries of each row begin; afterwards, where they end.
    ends : int64 array of shape (n_rows,)
    matrix : array of shape (n_columns, n)
    task_rows : int
        Rows of one task of a worker.
    queue : int64 array of shape (1,)
        Next task not taken yet; shared by all threads that call this.
    out : array of shape (n_rows, n)
    """
    (n_rows, n), n_columns = out.shape, matrix.shape[0]
    panel = larger(1, PANEL_SIZE // (n * out.itemsize))
    first = fetch_and_increment(queue) * task_rows
    while first < n_rows:
        last, panel_end = smaller(first + task_rows, n_rows), panel
        while panel_end < n_columns + panel:
            for r in range(first, last):
                k, out_r = positions[r], row(out, (r, 0), n)
                positions[r] = _add_panel(values, columns, k, ends[r], panel_end, matrix, out_r)
            panel_end += panel
        first = fetch_and_increment(queue) * task_rows
