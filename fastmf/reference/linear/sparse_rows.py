"""NumPy twin of `fastmf.kernels.linear.sparse_rows`."""


def add_sparse_product(rows, matrix, task_rows, queue, out):
    """Add the product of sparse rows with a dense matrix."""
    for r in range(len(out)):
        stored = slice(rows.positions[r], rows.ends[r])
        out[r] += rows.values[stored] @ matrix[rows.columns[stored]]
    rows.positions[:] = rows.ends
