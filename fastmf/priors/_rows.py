"""Queries to a prior about rows of data of any kind: see `fastmf._common.rows`.

Units are independent: a sum over the units of sparse rows is the sum at zero and, for each stored
entry, the difference, where `take(prior, X.indices)` is the prior of the units of the entries.
Groups of states are not independent: their sparse rows are made dense, some rows at a time.
"""

import numpy as np

from fastmf._common.rows import column_sums, is_sparse, row_blocks
from fastmf.priors._groups import as_states, columns_by_parts, has_groups
from fastmf.priors._protocol import (
    is_concatenated,
    joined,
    log_prob_gradient,
    parameter_names,
    take,
)
from fastmf.priors._queries import mean_log_prob

# Products with sparse rows take as long as with dense ones at about this fraction of stored
# entries (200 hidden units, float32: 0.15).
MAX_DENSITY = 0.1


def states(prior, X, dtype):
    """Some rows of data as a dense array of the values of all units."""
    X = X.toarray() if is_sparse(X) else X
    return np.ascontiguousarray(as_states("X", prior, X.astype(dtype, copy=False)))


def data_fields(prior, X, weights):
    """Compute X @ weights, (n_rows, n_hidden), of flat values or labels, dense or sparse."""
    if is_sparse(X):
        return X.astype(weights.dtype, copy=False) @ weights
    if X.dtype == weights.dtype and X.shape[1] == len(weights):
        return X @ weights
    return np.concatenate([states(prior, X[b], weights.dtype) @ weights for b in row_blocks(X)])


def few_stored(X):
    """Whether rows are sparse, and products with them faster than with dense ones."""
    return is_sparse(X) and X.nnz <= MAX_DENSITY * X.shape[0] * X.shape[1]


def sparse_or_states(prior, X, dtype):
    """Rows as they are if sparse products are faster for them, or else their `states`."""
    if few_stored(X) and not has_groups(prior):
        return X.astype(dtype, copy=False)
    return states(prior, X, dtype)


def log_prob_of_rows(prior, X, dtype):
    """Sum over units of `fastmf.priors._queries.mean_log_prob`."""
    if not is_sparse(X) or has_groups(prior):
        return _log_prob_of_dense_rows(prior, X, dtype)
    if is_concatenated(prior):
        return sum(log_prob_of_rows(*part, dtype) for part in columns_by_parts(prior, X))
    X, total = X.astype(dtype, copy=False), np.zeros(X.shape[0])
    at_zero = mean_log_prob(prior, np.zeros((1, X.shape[1]), dtype))[0]
    if not np.isfinite(at_zero).all():  # units that are never 0
        return _log_prob_of_dense_rows(prior, X, dtype)
    for rows in row_blocks(X):
        block = X[rows]
        if block.nnz:
            change = mean_log_prob(take(prior, block.indices), block.data) - at_zero[block.indices]
            row = np.repeat(np.arange(block.shape[0]), np.diff(block.indptr))
            total[rows] = np.bincount(row, change, block.shape[0])
    return total + at_zero.sum(dtype=np.float64)


def _log_prob_of_dense_rows(prior, X, dtype):
    """`log_prob_of_rows` of rows that are made dense a block at a time."""
    blocks = (states(prior, X[rows], dtype) for rows in row_blocks(X, dense=True))
    return np.concatenate([mean_log_prob(prior, x).sum(1, dtype=np.float64) for x in blocks])


def mean_log_prob_gradient(prior, X):
    """Derivatives of the average over sparse rows of log_prob, as the same NamedTuple."""
    if is_concatenated(prior):
        return joined(prior, [mean_log_prob_gradient(*part) for part in columns_by_parts(prior, X)])

    def mean_derivative(name):
        def derivative(x, columns):
            return getattr(log_prob_gradient(take(prior, columns), x), name)

        return column_sums(X, derivative) / X.shape[0]

    return prior._replace(**{name: mean_derivative(name) for name in parameter_names(prior)})
