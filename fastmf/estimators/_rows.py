"""Rows of data as users give them to estimators of layered machines, checked."""

import numpy as np
from scipy.sparse import csr_array

from fastmf._common.rows import canonical, is_sparse, row_blocks
from fastmf.estimators._data import checked_data, with_nan
from fastmf.estimators._units import check_support
from fastmf.priors._groups import as_states, has_groups
from fastmf.priors._protocol import n_units
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
            raise TypeError(
                "X must be a dense array with NaN for missing values, got a sparse matrix, whose "
                "zeros that are not stored are values: use X.toarray(), and set NaN."
            )
        X = canonical(X)
    elif isinstance(X := with_nan(X), np.ndarray) and X.dtype.kind in "iub":
        dtype = None
    X = checked_data(
        estimator, X, reset=reset, missing=missing, dtype=dtype, order="C", accept_sparse="csr"
    )
    return csr_array(X) if is_sparse(X) else X


def checked_values(visible, X, dtype, *, missing=False, means=True):
    """The rows, unless there are values that the visible units cannot take.

    Parameters
    ----------
    visible : unit prior
    X : array or csr_array of shape (n_samples, n_features)
        Of `checked_rows`.
    dtype : numpy dtype
        Of the model.
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
    check_support(visible, X, means, dtype)
    return X


def _refuse_missing(visible, X):
    """Raise if labels are missing: negative ones, or NaN in the states of one."""
    if X.dtype.kind in "ub" or (X.dtype.kind == "i" and X.min() >= 0):
        return
    for rows in row_blocks(X):
        if np.isnan(states(visible, X[rows], np.float64)).any():
            raise ValueError(
                "X has missing labels (negative ones), which only `impute` takes: leave such rows "
                "out, or give missing values a state of their own."
            )
