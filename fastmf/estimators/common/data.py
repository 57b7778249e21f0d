"""Data as users pass them: masked arrays, data frames with missing values, strings, NaN."""

import re

import numpy as np
from sklearn.utils.validation import validate_data

from fastmf._common.arguments import unmasked
from fastmf._common.rows import is_sparse

# What to do about missing values, for estimators that can fill them in and for those that cannot.
_IMPUTE = "fill them in by `impute`, or leave such rows out"
_NO_IMPUTE = (
    "leave such rows out, or fill them in first, as by the `impute` of a machine of fastmf or by "
    "sklearn.impute.SimpleImputer"
)

_DATES = "give dates and times as numbers, such as days since the first one"
_ENCODE = (
    "encode strings first, as by sklearn.preprocessing.OrdinalEncoder "
    "(FullyVisibleBoltzmannMachine, OrdinalMachine and PottsMachine take them as they are)"
)


def checked_data(estimator, X, y="no_validation", *, reset, missing=False, **options):
    """Rows of data as scikit-learn checks them, with errors that say where and what to do."""
    options |= {"reset": reset, "ensure_all_finite": False}
    X, alone = with_nan(X), isinstance(y, str)
    refuse_dates("X", X)
    numeric_y = not alone and options.get("y_numeric")
    if numeric_y:
        refuse_dates("y", y)
    try:
        checked = validate_data(estimator, X, y if alone else complete_target(y), **options)
    except (TypeError, ValueError, OverflowError) as error:
        # scikit-learn's messages of several lines, without the name of the argument.
        text, kind = " ".join(str(error).split()), type(error)
        if "could not convert" in text or "float() argument" in text:
            raise kind(f"X must hold numbers: {text}; {_ENCODE}.") from error
        if re.search(r"\b[Xy]\b", text):
            raise
        raise (TypeError if kind is TypeError else ValueError)(f"X: {text}") from error
    X = checked if alone else checked[0]
    if numeric_y and checked[1].dtype.kind not in "fiub":
        raise ValueError(
            f"y must hold numbers, got {checked[1].item(0)!r:.40} in row 0: of classes take a "
            "classifier, such as SpikeSlabClassifier."
        )
    if X.dtype.kind == "f":
        check_finite(estimator, X, missing)
    return checked


def refuse_dates(name, data):
    """Raise for columns of dates or times, which would count from 1970 in some unit."""
    dtypes = getattr(data, "dtypes", None)
    dtypes = [getattr(data, "dtype", None)] if dtypes is None else np.atleast_1d(dtypes).tolist()
    columns = list(getattr(data, "columns", []))
    for k, dtype in enumerate(dtypes):
        temporal = getattr(dtype, "is_temporal", bool)()  # of polars
        if temporal or getattr(dtype, "kind", "") in ("m", "M"):
            column = f" in column {k} ({columns[k]!r})" if columns else ""
            raise ValueError(f"{name} must hold numbers, got {dtype}{column}: {_DATES}.")


def dense_frame(X):
    """A data frame of pandas with dense columns in the place of sparse ones; all else as it is."""
    if not hasattr(X, "iloc") or not hasattr(X, "dtypes"):
        return X
    dtypes = enumerate(np.atleast_1d(np.asarray(X.dtypes, object)))
    sparse = {k: dtype.subtype for k, dtype in dtypes if hasattr(dtype, "fill_value")}
    if not sparse:
        return X
    if X.ndim == 1:
        return X.astype(sparse[0])
    return X.copy().set_axis(range(X.shape[1]), axis=1).astype(sparse).set_axis(X.columns, axis=1)


def with_nan(X):
    """Data with NaN in the place of masked entries, None or pandas' NA."""
    if np.ma.isMaskedArray(X):
        return unmasked("X", X, missing=True)
    if hasattr(X, "isna") and hasattr(X, "iloc"):
        if any(getattr(dtype, "kind", "O") not in "fiub" or not isinstance(dtype, np.dtype)
               for dtype in np.atleast_1d(X.dtypes)):  # fmt: skip
            absent = X.isna()
            return X.astype(object).where(~absent, np.nan) if absent.to_numpy().any() else X
        return X
    if isinstance(X, list | tuple) and _holds_objects(X):
        X = np.asarray(X, object)
    if isinstance(X, np.ndarray) and X.dtype == object:
        absent = missing_entries(X)
        if absent.any():
            X = np.where(absent, np.nan, X)
    return X


def _holds_objects(rows):
    """Whether lists hold other things than numbers and strings, as None and NA are."""
    try:
        return np.asarray(rows).dtype == object
    except ValueError:  # rows of unequal lengths: scikit-learn says so
        return False


def missing_entries(X):
    """Which entries of an array of any type are NaN, None or pandas' NA."""
    if X.dtype.kind == "f":
        return np.isnan(X)
    if X.dtype != object:
        return np.zeros(X.shape, bool)
    return np.asarray(np.frompyfunc(_is_missing, 1, 1)(X), bool)


def _is_missing(value):
    if isinstance(value, str):
        return False
    if value is None or type(value).__name__ in ("NAType", "NaTType", "MaskedConstant"):
        return True
    return isinstance(value, float | np.floating) and value != value


def check_finite(estimator, X, missing=False):
    """Raise for infinity, and for NaN unless values may be missing."""
    values = X.data if is_sparse(X) else X
    absent, floating = missing_entries(values), values.dtype.kind == "f"
    infinite = np.isinf(values) if floating else np.zeros(values.shape, bool)
    wrong = infinite if missing else infinite | absent
    if not wrong.any():
        return
    k = np.argwhere(wrong)[0]
    if is_sparse(X):
        coordinates = X.tocoo()
        row, column = coordinates.row[k[0]], coordinates.col[k[0]]
    else:
        row, column = k
    place = f"in row {row}, column {column_name(estimator, column)}"
    if infinite[tuple(k)]:
        raise ValueError(f"X must be finite, got infinity {place}.")
    advice = _IMPUTE if hasattr(estimator, "impute") else _NO_IMPUTE
    if hasattr(estimator, "missing"):
        advice = f"fit with missing='em' or 'drop', {advice}"
    raise ValueError(
        f"X has missing values (NaN), {np.count_nonzero(absent)} in all, the first {place}: "
        f"{advice}."
    )


def column_name(estimator, column):
    """The number of a column, and its name if there is one."""
    names = getattr(estimator, "feature_names_in_", None)
    return f"{column}" if names is None else f"{column} ({names[column]!r})"


def complete_target(y):
    """Targets as they are given, provided that none is missing or masked."""
    if is_sparse(y) or y is None:
        return y
    if np.ma.isMaskedArray(y):
        y = unmasked("y", y)
    try:
        values = y.to_numpy() if hasattr(y, "to_numpy") else np.asarray(y)
        values = values.reshape(1) if values.ndim == 0 else values
    except ValueError:  # rows of unequal lengths
        raise ValueError(f"y must be an array, got {type(y).__name__}.") from None
    absent = missing_entries(values)
    if absent.any():
        row = int(np.argwhere(absent)[0][0])
        raise ValueError(
            f"y contains missing values (NaN or None), the first in row {row}: leave such "
            "rows out, or give them labels."
        )
    if values.dtype == object:
        words = np.frompyfunc(lambda value: isinstance(value, str), 1, 1)(values).astype(bool)
        if words.any() and not words.all():
            raise TypeError(
                f"y must hold labels of one kind, got {values[words][0]!r:.40} and "
                f"{values[~words][0]!r:.40}: make all of them strings, or all numbers."
            )
    return y
