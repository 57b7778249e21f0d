"""Products of rows of data, of any kind, with couplings: see `fastmf._common.rows`."""

import numpy as np

from fastmf._common.rows import is_sparse, row_blocks
from fastmf._threads.workers import in_parallel, workers_for
from fastmf.kernels.linear.product import TASK_ROWS
from fastmf.kernels.linear.sparse_rows import CompressedRows, add_sparse_product
from fastmf.priors._rows import states

# Largest number of rows of one task of a worker.
MAX_TASK_ROWS = 2048


def data_fields(prior, X, weights, n_threads=None):
    """Compute X @ weights, (n_rows, n_hidden), of flat values or labels, dense or sparse."""
    if not is_sparse(X):
        if X.dtype == weights.dtype and X.shape[1] == len(weights):
            return X @ weights
        return np.concatenate([states(prior, X[b], weights.dtype) @ weights for b in row_blocks(X)])
    out = np.zeros((X.shape[0], weights.shape[1]), weights.dtype)
    _add_product(X, weights, out, n_threads)
    return out


def add_pair_average(X, hidden, out, n_threads=None):
    """Add the average over sparse rows of the products with units above, X.T @ hidden / n_rows."""
    hidden = hidden * out.dtype.type(1 / X.shape[0])
    _add_product(X.T.tocsr(), np.ascontiguousarray(hidden, out.dtype), out, n_threads)


def _add_product(X, matrix, out, n_threads):
    """Add the product of sparse rows, with indices in ascending order, to `out`."""
    matrix = matrix.view()
    matrix.flags.writeable = False  # or the kernel is compiled once more for what can be written
    n_workers = workers_for(-(-len(out) // TASK_ROWS), X.nnz * out.shape[1], n_threads)
    # Large ones: the matrix is read once for each. Results do not depend on them.
    task_rows = max(TASK_ROWS, min(MAX_TASK_ROWS, -(-len(out) // n_workers)))
    rows = sparse_rows(X, out.dtype)
    arguments = rows, matrix, task_rows, np.zeros(1, np.int64), out
    in_parallel(add_sparse_product, arguments, n_workers)


def sparse_rows(X, dtype):
    """A csr_array, with indices in ascending order, as kernels take it."""
    bounds = np.array([X.indptr[:-1], X.indptr[1:]], np.int64)
    values = np.ascontiguousarray(X.data, dtype)
    return CompressedRows(values, X.indices.astype(np.int32, copy=False), *bounds)
