"""Categories of ordinal items, in their order: of codes, strings or pandas' categories."""

import numpy as np

from fastmf._common.arguments import real_array
from fastmf._common.warning import warn_user
from fastmf.estimators.common.categories import (
    as_array,
    column_values,
    is_numeric,
    learned_categories,
)
from fastmf.estimators.common.data import column_name

# Categories of an item beyond which numbers are taken for measurements, not for codes.
MAX_CATEGORIES = 100


def item_categories(estimator, X, n_categories, declared):
    """The values that the scores 0, 1, ... of each item stand for."""
    if n_categories is not None:
        return _given(X, n_categories)
    numeric = is_numeric(X)
    found = None if numeric else learned_categories(estimator, X, declared)
    out = []
    for j in range(X.shape[1]):
        if j in declared:
            known = declared[j]
        elif numeric or is_numeric(found[j]):
            known = _range(estimator, column_values(estimator, X[:, j], j), j)
        else:
            known = _in_order(estimator, found[j], j)
        if len(known) < 2:
            raise ValueError(
                f"item {column_name(estimator, j)} has the single category {known.tolist()[0]!r}: "
                "leave it out, or declare its categories (n_categories, or pandas' categories)."
            )
        if len(known) > MAX_CATEGORIES:
            raise ValueError(
                f"items must have at most {MAX_CATEGORIES} categories, got {len(known)} in column "
                f"{column_name(estimator, j)}: bin values first."
            )
        out.append(known)
    return out


def _given(X, n_categories):
    """Codes of the given numbers of categories."""
    sizes = real_array("n_categories", n_categories)
    if sizes.dtype.kind not in "iu" or sizes.shape not in ((), (X.shape[1],)):
        raise TypeError(
            f"n_categories must be None, an integer or one for each of {X.shape[1]} items, got "
            f"{n_categories!r:.40}."
        )
    if sizes.min() < 2 or sizes.max() > MAX_CATEGORIES:
        raise ValueError(
            f"n_categories must be in [2, {MAX_CATEGORIES}], got {n_categories!r:.40}."
        )
    if not is_numeric(X):
        raise TypeError(
            "n_categories is the number of codes 0, 1, ...: give None for strings, whose "
            "categories are found in the data, or declared by a pandas categorical or polars Enum."
        )
    first = int(not (X == 0).any())
    return [np.arange(first, first + size) for size in np.broadcast_to(sizes, X.shape[1])]


def _range(estimator, values, j):
    """All integers from the smallest to the largest value, or the codes -1 and +1."""
    low, high = values[0], values[-1]
    if len(values) == 2 and (low, high) == (-1, 1):
        return np.array([-1, 1])
    if any(value != round(value) for value in values):
        wrong = next(value for value in values if value != round(value))
        raise ValueError(
            f"X must hold integer codes or strings, got {wrong:g} in column "
            f"{column_name(estimator, j)}: bin values first, as by "
            "sklearn.preprocessing.KBinsDiscretizer."
        )
    # More are refused by their number.
    return np.arange(int(low), min(int(high), int(low) + MAX_CATEGORIES) + 1)


def _in_order(estimator, values, j):
    """Strings in the order of their numbers, or in alphabetical order, which warns."""
    try:
        return as_array(sorted(values.tolist(), key=float))
    except (TypeError, ValueError):
        pass
    if len(values) > 2:
        warn_user(
            f"the categories of column {column_name(estimator, j)} are taken in alphabetical "
            f"order, {', '.join(map(str, values[:10]))}: declare their order by a pandas "
            "categorical or polars Enum, or give codes.",
        )
    return values
