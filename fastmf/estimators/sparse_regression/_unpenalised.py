"""Columns of flat prior, which are never selected: they are projected out of y and the others.

With W these columns and X the others, the coefficients w of X have the posterior given the
residuals of y and X after regression on W; given w the coefficients of W are Gaussian, with

    mean  W+ y - K w,  K = W+ X,      covariance  noise variance times (W'W)+
"""

from typing import NamedTuple

import numpy as np

from fastmf._common.rows import row_blocks
from fastmf._common.stored_columns import StoredColumns, column_squares
from fastmf._common.warning import warn_user

# Norm of what a column adds to others, relative to its own and in roundings of its type, below
# which it is a combination of them.
MIN_NORM = 100


class Unpenalised(NamedTuple):
    """Regression of all features on unpenalised ones, of centred and scaled columns.

    Parameters
    ----------
    units : int array of shape (n_unpenalised,)
        Which of the features they are.
    gain : array of shape (n_unpenalised, n_features)
        K, for their own columns the identity.
    whiten : array of shape (n_unpenalised, rank)
        (W'W)+ = whiten whiten'.
    """

    units: np.ndarray
    gain: np.ndarray
    whiten: np.ndarray

    @classmethod
    def none(cls, n_features):
        """No such features."""
        return cls(np.zeros(0, np.int64), np.zeros((0, n_features)), np.zeros((0, 0)))

    @property
    def rank(self):
        """How many of the columns are linearly independent."""
        return self.whiten.shape[1]

    def residuals(self, rows):
        """Other rows of centred and scaled features, less what the unpenalised ones say."""
        return rows - rows[:, self.units] @ self.gain if len(self.units) else rows

    def noises(self, rows):
        """Variance that the coefficients give to the means of rows, in noise variances."""
        return ((rows[:, self.units] @ self.whiten) ** 2).sum(1)


class Projection(NamedTuple):
    """The regression of rows on their unpenalised columns.

    Parameters
    ----------
    residuals : array of shape (n_rows, n_features), or StoredColumns
        Residuals of all features, exactly 0 where nothing is left.
    basis : array of shape (n_rows, rank)
        Orthonormal.
    of_features : Unpenalised
    """

    residuals: np.ndarray
    basis: np.ndarray
    of_features: Unpenalised

    def split(self, y):
        """The coefficients of y on the columns, and its residuals."""
        along = y @ self.basis
        return self.of_features.whiten @ along, y - self.basis @ along


def projection_of(X, units):
    """The regression of all features on some of them."""
    W = X[:, units].astype(np.float64)
    scale = np.sqrt((W * W).sum(0))
    scale[scale == 0] = 1.0
    basis_of_rank, values, right = np.linalg.svd(W / scale, full_matrices=False)
    rounding = MIN_NORM * np.finfo(X.dtype).eps
    rank = int((values > rounding * max(W.shape)).sum())
    if rank < len(units):
        warn_user(
            f"{len(units) - rank} of the {len(units)} unpenalised columns are constant, or linear "
            "combinations of the others: their coefficients are those of smallest norm."
        )
    basis = basis_of_rank[:, :rank]
    whiten = (right[:rank] / values[:rank, None]).T / scale[:, None]
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
    gain = whiten @ along
    gain[:, units] = np.eye(len(units))
    return Projection(without_columns(X, is_zero), basis, Unpenalised(units, gain, whiten))


def without_columns(X, columns):
    """Features with zeros in these columns, a mask; an array is changed in place."""
    if isinstance(X, StoredColumns):
        return X.without(columns)
    X[:, columns] = 0
    return X


def projected_parts(parts, features, columns):
    """Independent parts of a regression, given by their moments, without unpenalised columns."""
    n_features, residuals, flat = sum(map(len, features)), [], np.zeros(len(columns))
    gain, whitens = np.zeros((len(columns), n_features)), [np.zeros((len(columns), 0))]
    for (X, y), features_of_part in zip(parts, features, strict=True):
        units = np.flatnonzero(np.isin(features_of_part, columns))
        if units.size:
            X, place = X.copy(), np.searchsorted(columns, features_of_part[units])
            _, basis, unpenalised = projection_of(X, units)
            complete, _ = np.linalg.qr(basis, mode="complete")
            complement = complete[:, unpenalised.rank :].T
            whiten = np.zeros((len(columns), unpenalised.rank))
            whiten[place], gain[place[:, None], features_of_part] = (
                unpenalised.whiten,
                unpenalised.gain,
            )
            flat[place] = unpenalised.whiten @ (y @ basis)
            whitens.append(whiten)
            X, y = complement @ X, complement @ y
        residuals.append((X, y))
    return residuals, flat, Unpenalised(columns, gain, np.concatenate(whitens, axis=1))


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
