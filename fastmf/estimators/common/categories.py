"""Categories of the columns of a table, and its encoding by category indices.

Categories are defined for binary columns (`two_categories`), for ordinal items with ordered codes
(`item_categories`), and for categorical positions, with negative labels for missing values
(`position_categories`). Values of all three are encoded by `codes`.
"""

from itertools import groupby
from numbers import Real

import numpy as np

from fastmf._common.arguments import real_array
from fastmf._common.warning import listed, warn_user
from fastmf.estimators.common.data import (
    check_finite,
    checked_data,
    column_name,
    dense_frame,
    missing_entries,
    types_of_columns,
)

# Largest number of categories of a column, which fits into a byte.
MAX_CATEGORIES = 254
_SPINS, _BITS = (-1.0, 1.0), (0.0, 1.0)


def checked_table(estimator, X, *, reset, missing=False):
    """Check a table of numbers, booleans or strings."""
    X = dense_frame(X)
    X = checked_data(estimator, X, reset=reset, missing=missing, dtype=None, order="C")
    if X.dtype == object:
        absent = missing_entries(X)
        check_finite(estimator, X, missing)
        kinds = {type(value) for value in X[~absent].tolist()}
        if all(issubclass(kind, Real | np.bool_) for kind in kinds):
            try:
                X = np.where(absent, np.nan, X).astype(np.float64)
            except OverflowError as error:
                raise ValueError(f"X must hold numbers of double precision: {error}.") from error
            check_finite(estimator, X, missing)
        elif not all(issubclass(kind, Real | np.bool_ | str) for kind in kinds):
            named = ", ".join(sorted(kind.__name__ for kind in kinds))
            raise TypeError(f"X must hold numbers, booleans or strings, got {named}.")
    elif X.dtype.kind not in "fiubU":
        raise TypeError(f"X must hold numbers, booleans or strings, got dtype {X.dtype}.")
    if X.dtype.kind == "f" and X.dtype not in (np.float32, np.float64):
        X = X.astype(np.float64)  # kernels do not support half and extended precision
    return X


def is_numeric(X):
    """Whether an array holds numbers or booleans."""
    return X.dtype.kind in "fiub"


def declared_categories(X):
    """Return the types of columns that are pandas categoricals or polars Enums."""
    is_pandas, dtypes = hasattr(X, "iloc"), enumerate(types_of_columns(X))
    declared = {j: d for j, d in dtypes if is_pandas or type(d).__name__ == "Enum"}
    return {j: d for j, d in declared.items() if hasattr(d, "categories")}


def as_array(values):
    """Return values as an array of strings or numbers if all are, else of objects."""
    array = np.asarray(list(values))
    is_plain = array.dtype.kind not in "US" or all(
        isinstance(value, str | bytes) for value in values
    )
    return array if is_plain and array.ndim == 1 else np.array([*values, None], object)[:-1]


def learned_categories(estimator, X, declared):
    """Return the categories of columns, declared or sorted values; columns may share a list."""
    alphabets = []  # groups of columns connected by common values, with the union of their values
    for j in sorted(set(range(X.shape[1])) - declared.keys()):
        present = column_values(estimator, X[:, j], j)
        columns, values = [j], {(isinstance(value, bool), value) for value in present}
        disjoint = []
        for alphabet in alphabets:
            if values.isdisjoint(alphabet[1]):
                disjoint.append(alphabet)
            else:
                columns, values = columns + alphabet[0], values | alphabet[1]
        alphabets = [*disjoint, (columns, values)]
    out = {j: as_array(dtype.categories) for j, dtype in declared.items()}
    for columns, values in alphabets:
        out |= dict.fromkeys(columns, as_array(value for _, value in sorted(values)))
    return [out[j] for j in range(X.shape[1])]


def column_values(estimator, column, j):
    """Return the sorted distinct values of a column as Python objects."""
    present = column[~missing_entries(column)]
    name = column_name(estimator, j)
    if not len(present):
        raise ValueError(f"X must have values in each column, got none in column {name}.")
    try:
        return np.unique(present).tolist()
    except TypeError:
        raise TypeError(
            f"X must have values of one kind in each column, got strings and numbers in column "
            f"{name}."
        ) from None


def codes(estimator, X, categories):
    """Return the category index of each entry, int64; -1 for missing entries."""
    out, start = np.empty(X.shape, np.int64, order="F"), 0
    # Adjacent columns with equal categories are compared at once.
    for _, run in groupby(categories, np.ndarray.tolist):
        values, *equal = run
        columns = slice(start, start + 1 + len(equal))
        table, numbers = np.ascontiguousarray(X[:, columns]), np.uint8(0)
        for k, value in enumerate(values, 1):
            numbers = numbers + (table == value) * np.uint8(k)
        if not numbers.all() and (wrong := (numbers == 0) & ~missing_entries(table)).any():
            j, row = np.argwhere(wrong.T)[0].tolist()
            raise ValueError(
                f"X must hold the values of fit, in column {column_name(estimator, start + j)} one "
                f"of {_listed(values)}: got {_shown(table[row].tolist()[j])} in row {row}."
            )
        np.subtract(numbers, 1, out=out[:, columns], dtype=np.int64)
        start = columns.stop
    return out


def _listed(values):
    """Format the first values for a message."""
    return listed(values.tolist(), text=_shown)


def _shown(value):
    """Format a value for a message."""
    return f"{value:g}" if type(value) is float else repr(value)


def decoded(labels, categories):
    """Return the categories of these indices, as an array with a common dtype."""
    columns = [values[labels[:, j]] for j, values in enumerate(categories)]
    kinds = {column.dtype.kind in "US" for column in columns}
    if len(kinds) > 1 or any(column.dtype == object for column in columns):
        columns = [column.astype(object) for column in columns]
    return np.stack(columns, axis=1)


def given_sizes(name, given, X):
    """Check an option that gives the number of categories; return the number for each column."""
    sizes = real_array(name, given)
    if sizes.dtype.kind not in "iu" or sizes.shape not in ((), (X.shape[1],)):
        raise TypeError(
            f"{name} must be None, an integer or one for each of {X.shape[1]} columns, got "
            f"{given!r:.40}."
        )
    if sizes.min() < 2 or sizes.max() > MAX_CATEGORIES:
        raise ValueError(f"{name} must be in [2, {MAX_CATEGORIES}], got {given!r:.40}.")
    if not is_numeric(X):
        raise TypeError(
            f"{name} is the number of codes 0, 1, ...: give None for strings, whose categories are "
            "learned from the data, or declared by a pandas categorical or polars Enum."
        )
    return np.broadcast_to(sizes, X.shape[1]).astype(np.int64)


def _checked(estimator, categories):
    """Return the categories; raise if a column has a single one or too many."""
    for j, values in enumerate(categories):
        if len(values) < 2:
            raise ValueError(
                f"column {column_name(estimator, j)} has the single value {values.tolist()[0]!r}: "
                "leave it out, or declare its categories by an option, or by pandas' categories."
            )
        if len(values) > MAX_CATEGORIES:
            raise ValueError(
                f"columns must have at most {MAX_CATEGORIES} categories, got {len(values)} or more "
                f"in column {column_name(estimator, j)}: merge rare ones, or bin values first."
            )
    return categories


# --- pairs of values ----------------------------------------------------------------------------


def two_categories(estimator, X, declared):
    """Return the two values of each column."""
    if is_numeric(X) and not declared:
        for values in (_SPINS, _BITS):
            if (np.isin(X, values) | missing_entries(X)).all():
                return [np.array(values)] * X.shape[1]
    shared = learned_categories(estimator, X, declared)
    return [_pair(estimator, X, values, j, j in declared) for j, values in enumerate(shared)]


def _pair(estimator, X, values, j, declared):
    """Return the two values of column j, given all values of the columns that share one with it."""
    if len(values) == 1 and values[0] in (-1, 0, 1):
        values = np.array(_SPINS if values[0] else _BITS)
    present = column_values(estimator, X[:, j], j)
    # Columns with values -1, 0 and 1 are not reduced to two values: 0 may mark missing spins.
    is_code = not is_numeric(values) or (
        not {-1, 0, 1}.issuperset(values.tolist()) and (values == np.rint(values)).all()
    )
    if len(values) > 2 and not declared and is_code and len(present) == 2:
        values = as_array(present)
    if len(values) != 2:
        absent = [value for value in values.tolist() if value not in present] if declared else []
        reason = "" if len(values) > 1 else ", which is constant: leave it out"
        reason += f", of which no row has {absent[:10]}: leave them out" if absent else ""
        raise ValueError(
            "X must be binary, with values in {-1, 1}, or all in {0, 1}, or two other values in "
            f"each column, got {_listed(values)} in column {column_name(estimator, j)}{reason}; or "
            "take OrdinalMachine or PottsMachine, or transform data (sklearn's Binarizer)."
        )
    return values.astype(float) if is_numeric(values) else values


def from_spins(means, categories):
    """Convert spins, or their means, to values of the data; interpolate if these are numbers."""
    if not all(is_numeric(values) for values in categories):
        return decoded((means > 0).astype(int), categories)
    low, high = np.transpose(np.array(categories, float))
    return low + (high - low) * (means + 1) / 2


# --- codes of items -----------------------------------------------------------------------------


def item_categories(estimator, X, n_categories, declared):
    """Return the values of each item that have the scores 0, 1, ..."""
    if n_categories is not None:
        first, sizes = int(not (X == 0).any()), given_sizes("n_categories", n_categories, X)
        return [np.arange(first, first + size) for size in sizes]
    categories, unordered = learned_categories(estimator, X, declared), []
    for j in range(X.shape[1]):
        if j in declared and getattr(declared[j], "ordered", True):
            continue
        if is_numeric(categories[j]) and j not in declared:
            categories[j] = _range(estimator, column_values(estimator, X[:, j], j), j)
            continue
        try:
            categories[j] = as_array(sorted(categories[j].tolist(), key=float))
        except (TypeError, ValueError):
            unordered += [j] if len(categories[j]) > 2 else []
    if unordered:
        named = ", ".join(column_name(estimator, j) for j in unordered[:10])
        warn_user(
            f"nothing says how the categories of {len(unordered)} columns ({named}) are ordered, "
            "which are taken in alphabetical or their listed order, such as "
            f"{_listed(categories[unordered[0]])}: declare their order by a pandas categorical "
            "with ordered=True or a polars Enum, or give codes."
        )
    return _checked(estimator, categories)


def _range(estimator, values, j):
    """Return all integers from the smallest to the largest value, or the codes -1 and +1."""
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
    # One more than allowed, so that `_checked` raises an error.
    return np.arange(int(low), min(int(high), int(low) + MAX_CATEGORIES) + 1)


# --- labels of positions ------------------------------------------------------------------------


def position_categories(estimator, X, n_states, declared):
    """Return the values of each position that have the states 0, 1, ..."""
    if n_states is not None:
        return [np.arange(size) for size in given_sizes("n_states", n_states, X)]
    if is_numeric(X) and not declared:
        X = whole_labels(X)
        present = X[X >= 0]
        first, last = (int(present.min()), int(present.max())) if present.size else (0, 1)
        if first == last and present.size < X.size:
            raise ValueError(
                f"X must have two labels at least, got {first} alone beside missing ones: negative "
                "labels are missing, so that -1 and 1 must be recoded, as by 0 and 1."
            )
        if first in (0, 1):
            labels = np.arange(first, min(max(last, first + 1), first + MAX_CATEGORIES) + 1)
            return _checked(estimator, [labels] * X.shape[1])
        X = np.where(X < 0, np.nan, X)
    categories = _checked(estimator, learned_categories(estimator, X, declared))
    return [whole_labels(values) if values.dtype.kind == "f" else values for values in categories]


def whole_labels(X):
    """Return numbers as int64 labels; missing ones, negative or NaN, are -1."""
    if X.dtype.kind == "f":
        X = np.where(np.isnan(X), -1, X)
        if (X != np.rint(X)).any():
            wrong = X[np.rint(X) != X][0]
            raise ValueError(
                f"X must hold integer labels (negative or NaN: missing) or strings, got {wrong:g}: "
                "encode values first, as by sklearn.preprocessing.KBinsDiscretizer."
            )
    # Larger integers are not exact in floating-point types.
    return np.clip(X, -1, 2**53).astype(np.int64)


def coded_labels(estimator, X, categories):
    """Return the state index of each entry, int64; -1 for missing or negative entries."""
    return codes(estimator, np.where(X < 0, np.nan, X) if is_numeric(X) else X, categories)
