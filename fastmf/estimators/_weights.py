"""Weights of rows, as estimators take them."""

import numpy as np
from sklearn.utils.validation import _check_sample_weight


def checked_weights(sample_weight, X):
    """Weights of the rows of X as float64, or None if none are given.

    Raises
    ------
    ValueError
        If they are not one for each row, one is negative or not finite, or all are zero.
    """
    if sample_weight is None:
        return None
    weights = _check_sample_weight(sample_weight, X, dtype=np.float64)
    if (weights < 0).any() or not weights.any():
        raise ValueError("sample_weight must be at least 0, and positive for some row.")
    return weights


def whole_weights(sample_weight, X):
    """Weights of the rows of X as integers, for estimators to which a weight is so many rows.

    Raises
    ------
    ValueError
        As `checked_weights`, and if they are not whole numbers.
    """
    weights = checked_weights(sample_weight, X)
    copies = weights.astype(np.int64)
    if (copies != weights).any():
        raise ValueError(
            "sample_weight must be whole numbers, the numbers of equal rows that rows stand for: "
            "multiply fractions by a common denominator, or round them."
        )
    return copies
