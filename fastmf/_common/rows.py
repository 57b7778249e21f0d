"""Rows of data in the form in which they are given: floating point, integers, or sparse (CSR).

Integers and sparse rows are converted to floating-point arrays only in blocks of rows or columns,
or in batches. Zeros that a sparse matrix does not store count as values.
"""

import sys

import numpy as np
import scipy

# Number of entries of a block: 32 MiB in float64.
BLOCK_ENTRIES = 2**22


def is_sparse(X):
    """Whether an object is a sparse array or matrix of SciPy; imports nothing."""
    sparse = None if type(X) is np.ndarray else sys.modules.get("scipy.sparse")
    return sparse is not None and sparse.issparse(X)


def is_incomplete(X):
    """Whether some values are missing, NaN."""
    # The minimum of numbers with a NaN is NaN, and needs no memory.
    return bool(not is_sparse(X) and X.dtype.kind == "f" and X.size and np.isnan(X.min()))


def canonical(X, name="X"):
    """Convert a sparse matrix to a CSR array with valid indices, ascending and unique in rows."""
    if X.ndim != 2:
        raise ValueError(f"{name} must have two dimensions, got a sparse array of shape {X.shape}.")
    try:
        # SciPy does not check index arrays of users, and would read out of bounds.
        X = type(X)(X, copy=False)
        if hasattr(X, "check_format"):
            X.check_format(full_check=True)
        X = scipy.sparse.csr_array(X)
        if not X.has_canonical_format:
            X = X.copy()
            X.sum_duplicates()
    except (ValueError, IndexError) as error:
        raise ValueError(
            f"{name} must be a valid sparse matrix, got one with wrong indices: {error}"
        ) from error
    return X


def blocks(n_items, n_entries):
    """Divide items into slices of about `BLOCK_ENTRIES` entries each."""
    size = max(1, int(BLOCK_ENTRIES * n_items / max(1, n_entries)))
    return [slice(first, min(first + size, n_items)) for first in range(0, n_items, size)]


def row_blocks(X, *, dense=False):
    """Divide rows into `blocks`; for sparse rows only stored entries count.

    With `dense`, all entries count: the blocks will be converted to dense arrays.
    """
    return blocks(X.shape[0], X.nnz if is_sparse(X) and not dense else np.prod(X.shape))


def column_sums(X, function=None):
    """Sum a function of the entries over rows."""
    function = function or (lambda x, columns: x)
    n_rows, n_columns = X.shape
    if is_sparse(X):
        zero, entries = function(np.zeros(1, X.dtype), slice(None)), (np.ones(X.nnz), X.indices)
        columns = scipy.sparse.csc_array((*entries, np.arange(X.nnz + 1)), (n_columns, X.nnz))
        # An entry may have several values.
        return ((n_rows - columns.sum(1)) * zero.T).T + columns @ function(X.data, X.indices)
    out = np.empty(n_columns)
    for columns in blocks(n_columns, X.size):
        out[columns] = np.sum(function(X[:, columns], columns), axis=0, dtype=np.float64)
    return out


def column_moments(X):
    """Compute mean and variance of each column, float64 arrays of shape (n_columns,)."""
    mean = column_sums(X) / X.shape[0]
    return mean, column_sums(X, lambda x, columns: (x - mean[columns]) ** 2) / X.shape[0]


def nonzero_values(X):
    """Return all entries that are not zero, row by row."""
    values = X.data if is_sparse(X) else X
    return values[values != 0]


def present_rows(X, weights):
    """Return the rows of positive weight, and their weights, None if all weights are equal."""
    if weights is None:
        return X, None
    present = weights > 0
    if not present.all():
        X, weights = X[present], weights[present]
    return X, None if (weights == weights[0]).all() else weights


def is_dask(value):
    """Whether a value is a Dask array, without importing Dask."""
    return hasattr(value, "to_delayed") and hasattr(value, "chunks")
