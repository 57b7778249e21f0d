"""Conversion of two-valued data to spins -1 and +1."""

import numpy as np

_BINARY_VALUES = ((-1.0, 1.0), (0.0, 1.0))


def binary_values(X):
    """The two values of data: (-1, 1) or (0, 1).

    Raises
    ------
    ValueError
        If there are other values.
    """
    # In data with -1, 0 and 1 the zeros are reported.
    values = _BINARY_VALUES[1 if 0 <= X.min() < 1 else 0]
    allowed = X * X == (1 if values[0] else X)
    if allowed.all():
        return values
    raise _not_binary_error(X, "in {-1, 1}, or all in {0, 1}", allowed)


def _not_binary_error(X, expected, allowed):
    row, column = np.argwhere(~allowed)[0]
    return ValueError(
        f"X must be binary, with values {expected}, got {X[row, column]:g} in row {row}, column "
        f"{column}: give the estimator a threshold, or transform data (sklearn's Binarizer)."
    )


def to_spins(X, values, threshold):
    """Data as -1 and +1; missing values stay NaN.

    Parameters
    ----------
    X : array
    values : tuple of two floats
    threshold : float or None
        If given, values above it become +1 and all others -1.
    """
    if threshold is not None:
        return np.where(np.isnan(X), np.nan, np.where(X > threshold, 1.0, -1.0))
    low, high = values
    allowed = (X == low) | (X == high) | np.isnan(X)
    if not allowed.all():
        raise _not_binary_error(X, f"in {{{low:g}, {high:g}}}, as in fit", allowed)
    return encoded(X, values)


def encoded(X, values):
    """Data of these two values as -1 and +1."""
    return X if values[0] == -1 else 2 * X - 1
