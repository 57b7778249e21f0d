"""Conversion of two-valued data to spins -1 and +1, and back."""

from collections import Counter

import numpy as np

from fastmf.estimators.common.categories import (
    as_array,
    codes,
    column_values,
    decoded,
    is_numeric,
    learned_categories,
)
from fastmf.estimators.common.data import column_name, missing_entries

_SPINS, _BITS = (-1.0, 1.0), (0.0, 1.0)


def two_categories(estimator, X, declared):
    """The two values of each column."""
    if is_numeric(X) and not declared:
        for values in (_SPINS, _BITS):
            if (np.isin(X, values) | missing_entries(X)).all():
                return [np.array(values)] * X.shape[1]
    shared = learned_categories(estimator, X, declared)
    return [_pair(estimator, X, known, j, j in declared) for j, known in enumerate(shared)]


def _pair(estimator, X, known, j, declared):
    """The two values of column j, which with those of other columns has these."""
    if len(known) == 1 and known[0] in (-1, 0, 1):
        known = np.array(_SPINS if known[0] else _BITS)
    if len(known) > 2 and not declared and _are_codes(known):
        own = as_array(column_values(estimator, X[:, j], j))
        known = own if len(own) == 2 else known
    if len(known) != 2:
        _refuse(estimator, X, known, j)
    return known.astype(float) if is_numeric(known) else known


def _are_codes(values):
    """Whether columns may each have two of these values: strings, or integers.

    Not of -1, 0 and 1, which are spins and zeros of another meaning, whatever column has them.
    """
    if not is_numeric(values):
        return True
    return not {-1, 0, 1}.issuperset(values.tolist()) and (values == np.rint(values)).all()


def _refuse(estimator, X, known, j):
    """Raise for the first entry that is none of two values, with which it shares a column."""
    values, advice = known.tolist(), "or transform data (sklearn's Binarizer)"
    entries = Counter(x for row in X.tolist() for x in row if x in values)
    kept = [value for value, _ in entries.most_common(2)]
    if is_numeric(known) and (-1 in values or 0 in values):
        kept = _SPINS if -1 in values else _BITS
    if len(values) == 1:
        kept, advice = (), f"{advice}; column {column_name(estimator, j)} is constant: leave it out"
    wrong = set(values) - set(kept)
    places = (
        (i, k) for i, entries in enumerate(X.tolist()) for k, x in enumerate(entries) if x in wrong
    )
    row, column = next(places, (None, None))
    if row is None:
        raise ValueError(
            f"X must be binary, got the declared categories {values[:10]} of column "
            f"{column_name(estimator, j)}, of which no row has {sorted(wrong, key=str)[:10]}: "
            "leave them out (pandas: cat.remove_unused_categories), or take OrdinalMachine or "
            "PottsMachine."
        )
    value = X[row].tolist()[column]
    raise ValueError(
        "X must be binary, with values in {-1, 1}, or all in {0, 1}, or two other values in each "
        f"column, got {f'{value:g}' if is_numeric(X) else repr(value)} in row {row}, column "
        f"{column_name(estimator, column)}: give the estimator a threshold, {advice}."
    )


def to_spins(estimator, X, categories, threshold):
    """Data as -1 and +1, float64; missing values are NaN."""
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
