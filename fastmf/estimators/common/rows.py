"""Rows of data as users give them to estimators of layered machines, checked."""

import numpy as np
from scipy.sparse import csr_array

from fastmf._common.rows import canonical, is_incomplete, is_sparse
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
