"""NumPy twin of `fastmf.kernels.sparse_rows`."""


def add_sparse_product(values, columns, positions, ends, matrix, task_rows, queue, out):
    """Add the product of a sparse matrix in CSR form with a dense one."""
    for r in range(len(out)):
        stored = slice(positions[r], ends[r])
        out[r] += values[stored] @ matrix[columns[stored]]
    positions[:] = ends
