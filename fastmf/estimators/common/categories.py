"""Tables of values of any kind, and their categories: the values of each column, in order."""

from numbers import Real

import numpy as np

from fastmf.estimators.common.data import (
    check_finite,
    checked_data,
    column_name,
    dense_frame,
    missing_entries,
)


def checked_table(estimator, X, *, reset, missing=False):
    """Rows of numbers, booleans or strings."""
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
        X = X.astype(np.float64)  # half and extended precision, which kernels do not take
    return X


def is_numeric(X):
    """Whether an array holds numbers or booleans."""
    return X.dtype.kind in "fiub"


def declared_categories(X):
    """Categories of the columns of a data frame that are pandas' categoricals or polars Enums."""
    is_pandas = hasattr(X, "iloc")
    if not hasattr(X, "dtypes") or not (is_pandas or hasattr(X, "get_column")):
        return {}
    dtypes = enumerate(np.atleast_1d(np.asarray(X.dtypes, object)))
    declared = {j: d for j, d in dtypes if is_pandas or type(d).__name__ == "Enum"}
    return {j: as_array(d.categories) for j, d in declared.items() if hasattr(d, "categories")}


def as_array(values):
    """Values as an array: of strings or numbers if all are, else of objects."""
    array = np.asarray(list(values))
    same = array.dtype.kind not in "US" or all(isinstance(value, str | bytes) for value in values)
    return array if same and array.ndim == 1 else np.array([*values, None], object)[:-1]


def learned_categories(estimator, X, declared):
    """Categories of all columns: sorted values, of all columns that have a value in common.

    So the letters of sequences have one alphabet, and questions with different answers each their
    own. Declared categories are taken as they are.
    """
    found = {}
    for j in range(X.shape[1]):
        if j not in declared:
            found[j] = column_values(estimator, X[:, j], j)
    alphabets = []  # pairs of the columns and the values that they have together
    for j, values in found.items():
        columns, values = [j], {(isinstance(value, bool), value) for value in values}
        apart = []
        for other in alphabets:
            if values.isdisjoint(other[1]):
                apart.append(other)
            else:
                columns, values = columns + other[0], values | other[1]
        alphabets = [*apart, (columns, values)]
    out = dict(declared)
    for columns, values in alphabets:
        out |= dict.fromkeys(columns, as_array(value for _, value in sorted(values)))
    return [out[j] for j in range(X.shape[1])]


def column_values(estimator, column, j):
    """Sorted distinct values of a column, as Python's own."""
    present = column[~missing_entries(column)]
    name = column_name(estimator, j)
    if not len(present):
        raise ValueError(f"X must have values in each column, got none in column {name}.")
    return _distinct(present, name)[0].tolist()


def _distinct(values, name):
    """Sorted distinct values of a column, and where they are."""
    try:
        return np.unique(values, return_inverse=True)
    except TypeError:
        raise TypeError(
            f"X must have values of one kind in each column, got strings and numbers in column "
            f"{name}."
        ) from None


def codes(estimator, X, categories):
    """Numbers of the categories that entries are, int64, and -1 where they are missing."""
    out = np.full(X.shape, -1)
    absent = missing_entries(X)
    for j, known in enumerate(categories):
        rows = np.flatnonzero(~absent[:, j])
        values, inverse = _distinct(X[rows, j], column_name(estimator, j))
        numbers = {value: k for k, value in enumerate(known.tolist())}
        for value in values.tolist():
            if value not in numbers:
                row = rows[np.argmax(X[rows, j] == value)]
                shown = ", ".join(map(repr, known[:10].tolist())) + ", ..." * (len(known) > 10)
                raise ValueError(
                    f"X must hold the values of fit, in column {column_name(estimator, j)} one of "
                    f"{shown}: got {value!r} in row {row}."
                )
        out[rows, j] = np.array([numbers[value] for value in values.tolist()], int)[inverse]
    return out


def decoded(labels, categories):
    """The categories of these numbers, an array of a type that holds all of them."""
    columns = [known[labels[:, j]] for j, known in enumerate(categories)]
    kinds = {column.dtype.kind in "US" for column in columns}
    if len(kinds) > 1 or any(column.dtype == object for column in columns):
        columns = [column.astype(object) for column in columns]
    return np.stack(columns, axis=1)
