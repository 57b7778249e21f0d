"""Columns of flat prior, which are never selected: they are projected out of y and the features.

With W these columns and X the other features, the coefficients w of X have the posterior given the
residuals of y and X after regression on W; given w the coefficients of W are Gaussian, with

    mean  W+ y - K w,  K = W+ X,      covariance  noise variance times (W'W)+
"""

import numpy as np

from fastmf._common.rows import row_blocks
from fastmf._common.stored_columns import StoredColumns, column_squares
from fastmf._common.warning import warn_user

# Norm of what a column adds to others, relative to its own and in roundings of its type, below
# which it is a combination of them.
MIN_NORM = 100


def without_unpenalised(rows, units, columns):
    """Project the unpenalised columns out of parts (X, y), whose arrays X change in place.

    Returns the residuals of the parts, the rank of the columns in each, the coefficients of y on
    the columns, K, which is zero for the columns themselves, and a root of (W'W)+.
    """
    n_columns, residuals, ranks, roots = len(columns), [], [], []
    flat, gain = np.zeros(n_columns), np.zeros((n_columns, sum(map(len, units))))
    for (X, y), features in zip(rows, units, strict=True):
        members = np.flatnonzero(np.isin(features, columns))
        place = np.searchsorted(columns, features[members])
        root = np.zeros((n_columns, 0))
        if members.size:
            X, basis, of_part, along = _projection(X, members)
            flat[place], y = of_part @ (y @ basis), y - basis @ (y @ basis)
            gain[place[:, None], features] = of_part @ along
            root = np.zeros((n_columns, basis.shape[1]))
            root[place] = of_part
        residuals.append((X, y))
        ranks.append(root.shape[1])
        roots.append(root)
    gain[:, columns] = 0
    return residuals, ranks, flat, gain, np.concatenate(roots, axis=1)


def _projection(X, units):
    """Residuals of all features on some, whose orthonormal basis, root of (W'W)+ and products."""
    W = X[:, units].astype(np.float64)
    scale = np.sqrt((W * W).sum(0))
    scale[scale == 0] = 1.0
    basis, values, right = np.linalg.svd(W / scale, full_matrices=False)
    rounding = MIN_NORM * np.finfo(X.dtype).eps
    rank = int((values > rounding * max(W.shape)).sum())
    if rank < len(units):
        warn_user(
            f"{len(units) - rank} of the {len(units)} unpenalised columns are constant, or linear "
            "combinations of the others: their coefficients are those of smallest norm."
        )
    basis = basis[:, :rank]
    root = (right[:rank] / values[:rank, None]).T / scale[:, None]
    before = column_squares(X)
    if isinstance(X, StoredColumns):
        along = (X.T @ basis).T
        X = X.less(basis, along)
    else:
        along = sum(basis[rows].T @ X[rows] for rows in row_blocks(X))
        for rows in row_blocks(X):
            X[rows] -= basis[rows] @ along
    is_zero = column_squares(X) <= before * rounding**2 * len(X)
    is_zero[units] = True
    return without_columns(X, is_zero), basis, root, along


def without_columns(X, columns):
    """Features with zeros in these columns, a mask; an array is changed in place."""
    if isinstance(X, StoredColumns):
        return X.without(columns)
    X[:, columns] = 0
    return X


def columns_of(names, unpenalised, n_features, argument="unpenalised"):
    """The numbers of columns given by numbers, names or a mask, ascending."""
    if unpenalised is None:
        return np.zeros(0, np.int64)
    try:
        given = np.asarray(unpenalised)
    except ValueError:  # lists of unequal lengths
        given = np.asarray(None)
    if given.ndim != 1:
        raise ValueError(
            f"{argument} must be a list of numbers or names of columns, got {unpenalised!r:.60}."
        )
    if given.dtype == bool:
        if len(given) != n_features:
            raise ValueError(
                f"{argument}, a mask, must have length {n_features}: got {len(given)}."
            )
        return np.flatnonzero(given)
    if given.dtype.kind in "OU":
        if names is None:
            raise ValueError(
                f"{argument} has names of columns, but X has none: give a data frame, or numbers."
            )
        place = {name: k for k, name in enumerate(names)}
        unknown = [name for name in given if name not in place]
        if unknown:
            raise ValueError(f"{argument} must name columns of X: {unknown[0]!r} is none.")
        given = np.array([place[name] for name in given], np.int64)
    if given.size and (
        given.dtype.kind not in "iu" or given.min() < -n_features or given.max() >= n_features
    ):
        raise ValueError(
            f"{argument} must be numbers of columns below {n_features}, got {unpenalised!r:.60}."
        )
    columns = np.unique(given.astype(np.int64) % n_features)
    if len(columns) == n_features and argument == "unpenalised":
        raise ValueError("unpenalised must leave a feature that is selected, got all columns.")
    return columns
