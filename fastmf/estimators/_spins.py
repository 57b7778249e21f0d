"""Two-valued data as spins."""

import numpy as np

_CODINGS = ((-1.0, 1.0), (0.0, 1.0))


def binary_values(X):
    """The two values of data: (-1, 1), or (0, 1) if that is what they are.

    Raises
    ------
    ValueError
        If there are other values.
    """
    # Of data with all of -1, 0 and 1 the zeros are what is wrong.
    values = _CODINGS[1 if 0 <= X.min() < 1 else 0]
    allowed = X * X == (1 if values[0] else X)
    if allowed.all():
        return values
    raise _refusal(X, "in {-1, 1}, or all in {0, 1}", allowed)


def _refusal(X, expected, allowed):
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
        If given, what is above is +1 and all else -1, whatever the values.
    """
    if threshold is not None:
        return np.where(np.isnan(X), np.nan, np.where(X > threshold, 1.0, -1.0))
    low, high = values
    allowed = (X == low) | (X == high) | np.isnan(X)
    if not allowed.all():
        raise _refusal(X, f"in {{{low:g}, {high:g}}}, as in fit", allowed)
    return coded(X, values)


def coded(X, values):
    """Data that have these two values as -1 and +1."""
    return X if values[0] == -1 else 2 * X - 1
