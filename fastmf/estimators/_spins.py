"""Conversion of two-valued data to spins -1 and +1, and back."""

import numpy as np

from fastmf.estimators._categories import codes, decoded, is_numeric, learned_categories
from fastmf.estimators._data import column_name, missing_entries

_SPINS, _BITS = (-1.0, 1.0), (0.0, 1.0)


def two_categories(estimator, X, declared):
    """The two values of each column.

    Parameters
    ----------
    estimator : estimator
    X : array of shape (n_samples, n_features)
    declared : dict of int to array
        Categories of columns that need not be found.

    Returns
    -------
    list of arrays of shape (2,)
        Columns that have a value in common have both. Where there is a single value, -1, 0 or 1, it
        is one of {-1, 1} or of {0, 1}.

    Raises
    ------
    ValueError
        If there are more values, or one that is none of these.
    """
    if is_numeric(X) and not declared:
        for values in (_SPINS, _BITS):
            if (np.isin(X, values) | missing_entries(X)).all():
                return [np.array(values)] * X.shape[1]
    categories = learned_categories(estimator, X, declared)
    return [_pair(estimator, X, known, j) for j, known in enumerate(categories)]


def _pair(estimator, X, known, j):
    """The two values of column j, of which these are known."""
    if len(known) == 1 and known[0] in (-1, 0, 1):
        known = np.array(_SPINS if known[0] else _BITS)
    if len(known) == 2:
        return known.astype(float) if is_numeric(known) else known
    advice = "give the estimator a threshold, or transform data (sklearn's Binarizer)"
    others = np.ones(X.shape, bool)
    if len(known) == 1:
        advice = f"column {column_name(estimator, j)} is constant: leave it out, or {advice}"
        others = X == known[0]
    elif is_numeric(X):
        others = ~np.isin(X, _BITS if 0 <= np.nanmin(X) < 1 else _SPINS)
    else:
        values, numbers = np.unique(X[:, j], return_counts=True)
        others[:, j] = np.isin(
            X[:, j], values[np.argsort(-numbers, kind="stable")[:2]], invert=True
        )
        others[:, :j] = others[:, j + 1 :] = False
    row, column = np.argwhere(others & ~missing_entries(X))[0]
    value = X[row].tolist()[column]
    shown = f"{value:g}" if is_numeric(X) else repr(value)
    raise ValueError(
        "X must be binary, with values in {-1, 1}, or all in {0, 1}, or two other values that are "
        f"the same in columns with one in common, got {shown} in row {row}, column "
        f"{column_name(estimator, column)}: {advice}."
    )


def to_spins(estimator, X, categories, threshold):
    """Data as -1 and +1, float64; missing values are NaN.

    Parameters
    ----------
    estimator : estimator
    X : array of shape (n_samples, n_features)
    categories : list of arrays of shape (2,)
        Of each column.
    threshold : float or None
        If given, values above it become +1 and all others -1.

    Raises
    ------
    TypeError
        If a threshold is given for data that are not numbers.
    ValueError
        For values that are none of the two of their column.
    """
    if threshold is not None:
        if not is_numeric(X):
            raise TypeError("X must hold numbers if there is a threshold, got strings.")
        return np.where(missing_entries(X), np.nan, np.where(X > threshold, 1.0, -1.0))
    pairs = _numbers(categories)
    if not is_numeric(X) or pairs is None:
        labels = codes(estimator, X, categories)
        return np.where(labels < 0, np.nan, 2.0 * labels - 1)
    low, high = pairs
    allowed = (X == low) | (X == high) | missing_entries(X)
    if not allowed.all():
        row, column = np.argwhere(~allowed)[0]
        raise ValueError(
            f"X must be binary, with values in {{{low[column]:g}, {high[column]:g}}}, as in fit, "
            f"got {X[row, column]:g} in row {row}, column {column_name(estimator, column)}."
        )
    return (2.0 * X - (high + low)) / (high - low)


def from_spins(means, categories):
    """Spins, or their means, in the values of the data; in between for numbers only."""
    pairs = _numbers(categories)
    if pairs is None:
        return decoded((means > 0).astype(int), categories)
    low, high = pairs
    return low + (high - low) * (means + 1) / 2


def _numbers(categories):
    """Lower and higher values of all columns as arrays, or None if some are not numbers."""
    if not all(is_numeric(known) for known in categories):
        return None
    return np.transpose(np.array(categories, float))
