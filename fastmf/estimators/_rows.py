"""Rows of data as users give them to estimators of layered machines, checked."""

import numpy as np
from scipy.sparse import csr_array

from fastmf._common.rows import canonical, is_sparse, row_blocks
from fastmf.estimators._data import checked_data, column_name, with_nan
from fastmf.estimators._units import check_support
from fastmf.inference.missing.seen import is_incomplete
from fastmf.priors._groups import (
    as_states,
    column_is_group,
    column_sizes,
    has_groups,
    has_groups_of_states,
)
from fastmf.priors._protocol import is_unit_prior, n_units
from fastmf.priors._registry import REGISTRY
from fastmf.priors._rows import states


def checked_rows(estimator, X, *, reset, dtype, missing=False):
    """Rows of data with finite values and the right number of columns.

    Parameters
    ----------
    estimator : estimator
    X : array or SciPy sparse matrix of shape (n_samples, n_features)
    reset : bool
        Whether the estimator takes the number and the names of the features from `X`.
    dtype : dtype or list of dtypes
        Floating types, of which the first is that of what is not floating point.
    missing : bool
        Whether NaN is allowed, as a missing value. There are none in sparse rows.

    Returns
    -------
    array or csr_array
        Arrays of integers and booleans keep their type.

    Raises
    ------
    TypeError
        For sparse rows where values are missing.
    ValueError
        For other rows than these.
    """
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
    """Rows with NaN in the place of negative labels of categorical units.

    Parameters
    ----------
    visible : unit prior, class or str
        What all units are to be, or the units.
    X : array or csr_array of shape (n_samples, n_features)
    """
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
    """Raise for rows, and columns, of which all values are missing.

    Parameters
    ----------
    estimator : estimator
        For the names of columns.
    X : array or csr_array of shape (n_samples, n_features)
    weights : array of shape (n_samples,) or None
        Rows of weight 0 may be missing altogether, and do not count.
    columns : bool
        Whether each column must have a value.

    Raises
    ------
    ValueError
    """
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


def checked_values(visible, X, dtype, *, missing=False, means=True):
    """The rows, unless there are values that the visible units cannot take.

    Parameters
    ----------
    visible : unit prior
    X : array or csr_array of shape (n_samples, n_features)
        Rows as `checked_rows` returns them.
    dtype : numpy dtype
        Type of the model.
    missing : bool
        Whether labels may be missing.
    means : bool
        Whether two-valued units accept means of their values.

    Returns
    -------
    array or csr_array
        Floating-point labels of groups of states as one-hot rows; others as they are.

    Raises
    ------
    ValueError
    """
    grouped = has_groups(visible)
    if is_sparse(X):
        if grouped and X.shape[1] != n_units(visible):
            raise ValueError(
                "X must be a dense array of labels, got a sparse matrix: of categorical units only "
                f"one-hot rows of {n_units(visible)} columns may be sparse."
            )
    elif X.dtype.kind == "f":
        X = as_states("X", visible, X)
    if not missing and grouped and not is_sparse(X):
        _refuse_missing(visible, X)
    if missing and grouped and is_incomplete(X):
        _check_whole_groups(visible, X)
    check_support(visible, X, means, dtype)
    return X


def _check_whole_groups(visible, X):
    """Raise if some states of a group are missing, and others not."""
    if X.shape[1] != n_units(visible):
        return
    absent, sizes = np.isnan(X), column_sizes(visible)
    of_first = np.repeat(absent[:, np.cumsum(sizes) - sizes], sizes, axis=1)
    if (absent != of_first).any():
        row, column = np.argwhere(absent != of_first)[0]
        raise ValueError(
            "X must have NaN in all states of a categorical unit, or in none, got both in row "
            f"{row}, at column {column}."
        )


def _refuse_missing(visible, X):
    """Raise if labels are missing: negative ones, or NaN in the states of one."""
    if X.dtype.kind in "ub" or (X.dtype.kind == "i" and X.min() >= 0):
        return
    for rows in row_blocks(X):
        if np.isnan(states(visible, X[rows], np.float64)).any():
            raise ValueError(
                "X has missing labels (negative ones), which are not taken here: fill them in by "
                "`impute`, leave such rows out, or give missing values a state of their own."
            )
