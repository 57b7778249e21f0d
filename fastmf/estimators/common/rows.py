"""Rows of data as users give them, checked, and moments of their columns."""

import numpy as np
from scipy.sparse import csr_array

from fastmf._common.rows import canonical, is_incomplete, is_sparse, row_blocks
from fastmf.estimators.common.data import checked_data, column_name, with_nan
from fastmf.priors._groups import column_is_group, column_sizes, has_groups, has_groups_of_states
from fastmf.priors._protocol import is_unit_prior
from fastmf.priors._registry import REGISTRY


def checked_rows(estimator, X, *, reset, dtype, missing=False):
    """Rows of data with finite values and the right number of columns."""
    if is_sparse(X):
        if missing:
            refuse_sparse_missing(X)
        X = canonical(X)
    elif isinstance(X := with_nan(X), np.ndarray) and X.dtype.kind in "iub":
        dtype = None
    X = checked_data(
        estimator, X, reset=reset, missing=missing, dtype=dtype, order="C", accept_sparse="csr"
    )
    return csr_array(X) if is_sparse(X) else X


def refuse_sparse_missing(X):
    """Raise a TypeError for sparse rows, where values are missing."""
    if is_sparse(X):
        raise TypeError(
            "X must be a dense array with NaN for missing values, got a sparse matrix, whose "
            "zeros that are not stored are values: use X.toarray(), and set NaN."
        )


def with_nan_labels(visible, X):
    """Rows with NaN in the place of negative labels of categorical units."""
    kind = REGISTRY.get(visible) if isinstance(visible, str) else visible
    if is_sparse(X) or X.dtype.kind not in "if":
        return X
    labelled = isinstance(kind, type) and has_groups_of_states(kind)
    if is_unit_prior(kind) and has_groups(kind) and X.shape[1] == len(column_sizes(kind)):
        labelled = column_is_group(kind)
    if not np.any(labelled):
        return X
    negative = (X < 0) & labelled
    return np.where(negative, np.nan, X) if negative.any() else X


def check_seen(estimator, X, weights=None, columns=True):
    """Raise for rows, and columns, without any value."""
    if not is_incomplete(X):
        return
    seen = ~np.isnan(X)
    present = np.ones(len(X), bool) if weights is None else weights > 0
    empty = present & ~seen.any(1)
    if empty.any():
        raise ValueError(
            f"X must have a value in each row, got {np.count_nonzero(empty)} rows without any, the "
            f"first of them row {np.argmax(empty)}: leave such rows out."
        )
    empty = ~seen[present].any(0)
    if columns and empty.any():
        name = column_name(estimator, int(np.argmax(empty)))
        raise ValueError(
            f"X must have a value in each column, got none in column {name}: leave it out."
        )


def some(X, rows):
    """Some rows in double precision."""
    part = X[rows]
    return (part.toarray() if is_sparse(part) else part).astype(np.float64, copy=False)


def mean_and_deviation(name, X, centred, weights=None):
    """Mean and standard deviation of columns, or of one, around 0 if not centred.

    Deviations of the order of rounding in double precision are 0, so that constant columns have
    none. Sums are of differences to the first row, whose rounding errors do not grow with the
    number of rows, and squares in units of the largest difference, so that none overflows.
    """
    columns = X if X.ndim > 1 else X[:, None]
    weights = np.ones(columns.shape[0]) if weights is None else weights
    mean, size, square = np.zeros((3, columns.shape[1]))
    blocks = row_blocks(columns, dense=True)
    if centred:
        first = some(columns, slice(0, 1))[0]
        differences = sum(weights[rows] @ (some(columns, rows) - first) for rows in blocks)
        mean = first + differences / weights.sum()
    for rows in blocks:
        size = np.maximum(size, abs(some(columns, rows) - mean).max(0))
    size[size == 0] = 1.0
    for rows in blocks:
        square += weights[rows] @ ((some(columns, rows) - mean) / size) ** 2
    deviation = size * np.sqrt(square / weights.sum())
    deviation[deviation <= 10 * np.finfo(np.float64).eps * abs(mean)] = 0
    check_variances(name, deviation)
    return mean.reshape(X.shape[1:])[()], deviation.reshape(X.shape[1:])[()]


def check_variances(name, deviations):
    """Raise unless squares of these standard deviations are finite, and 0 only if they are."""
    largest = np.finfo(float).max ** 0.49
    for wrong, what, remedy in (
        (~(deviations <= largest), "finite", "divide"),
        ((deviations > 0) & (deviations < 1 / largest), "not rounded to 0", "multiply"),
    ):
        if wrong.any():
            column = int(np.argmax(wrong))
            raise ValueError(
                f"{name} must have values whose squares are {what}, got a standard deviation of "
                f"{deviations[column]:.1e} in column {column}: {remedy} by a constant."
            )
