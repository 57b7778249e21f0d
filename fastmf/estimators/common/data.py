"""Data as users pass them: masked arrays, frames, strings, NaN; checked rows, and their weights."""

import re

import numpy as np
from scipy.sparse import csr_array
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.validation import validate_data

from fastmf._common.arguments import unmasked
from fastmf._common.rows import canonical, is_incomplete, is_sparse, row_blocks
from fastmf._common.warning import warn_user
from fastmf.priors._groups import column_is_group, column_sizes, has_groups, has_groups_of_states
from fastmf.priors._protocol import is_unit_prior
from fastmf.priors._registry import REGISTRY

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


def types_of_columns(X):
    """Types of the columns of a data frame; the one of anything else, None if it has none."""
    types = getattr(X, "dtypes", getattr(X, "dtype", None))
    return np.atleast_1d(np.asarray(types, object)).tolist()


def refuse_dates(name, data):
    """Raise for columns of dates or times, which would count from 1970 in some unit."""
    columns = list(getattr(data, "columns", []))
    for k, dtype in enumerate(types_of_columns(data)):
        temporal = getattr(dtype, "is_temporal", bool)()  # of polars
        if temporal or getattr(dtype, "kind", "") in ("m", "M"):
            column = f" in column {k} ({columns[k]!r})" if columns else ""
            raise ValueError(f"{name} must hold numbers, got {dtype}{column}: {_DATES}.")


def dense_frame(X):
    """A data frame of pandas with dense columns in the place of sparse ones; all else as it is."""
    dtypes = enumerate(types_of_columns(X))
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
               for dtype in types_of_columns(X)):  # fmt: skip
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
    k = tuple(np.argwhere(wrong)[0])
    row, column = k if not is_sparse(X) else (places[k] for places in X.tocoo().coords)
    place = f"in row {row}, column {column_name(estimator, column)}"
    if infinite[k]:
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


# --- rows, their weights and moments of columns ---------------------------------------------------


# Usual codes of missing values; -1, 8 and 9 are values too often.
CODES = -9, *(sign * (10**n_digits - 1) for n_digits in (2, 3, 4) for sign in (-1, 1))


def checked_rows(estimator, X, *, reset, dtype, missing=False):
    """Rows of data with the right number of columns, finite or in dense rows perhaps `missing`."""
    missing = missing and not is_sparse(X)
    if is_sparse(X):
        X = canonical(X)
    elif isinstance(X := with_nan(X), np.ndarray) and X.dtype.kind in "iub":
        dtype = None
    X = checked_data(
        estimator, X, reset=reset, missing=missing, dtype=dtype, order="C", accept_sparse="csr"
    )
    return csr_array(X) if is_sparse(X) else X


def with_nan_labels(visible, X):
    """Rows with NaN in the place of negative labels of categorical units."""
    kind = REGISTRY.get(visible) if isinstance(visible, str) else visible
    if is_sparse(X) or X.dtype.kind not in "if":
        return X
    labelled = isinstance(kind, type) and has_groups_of_states(kind)
    if is_unit_prior(kind) and has_groups(kind) and X.shape[1] == len(column_sizes(kind)):
        labelled = column_is_group(kind)
    if not np.any(labelled):
        return X
    negative = (X < 0) & labelled
    return np.where(negative, np.nan, X) if negative.any() else X


def check_seen(estimator, X, weights=None, columns=True):
    """Raise for rows, and columns, without any value."""
    if not is_incomplete(X):
        return
    seen = ~np.isnan(X)
    present = np.ones(len(X), bool) if weights is None else weights > 0
    empty = present & ~seen.any(1)
    if empty.any():
        raise ValueError(
            f"X must have a value in each row, got {np.count_nonzero(empty)} rows without any, the "
            f"first of them row {np.argmax(empty)}: leave such rows out."
        )
    empty = ~seen[present].any(0)
    if columns and empty.any():
        name = column_name(estimator, int(np.argmax(empty)))
        raise ValueError(
            f"X must have a value in each column, got none in column {name}: leave it out."
        )


def some(X, rows):
    """Some rows in double precision."""
    part = X[rows]
    return (part.toarray() if is_sparse(part) else part).astype(np.float64, copy=False)


def mean_and_deviation(name, X, centred, weights=None):
    """Mean and standard deviation of columns, or of one, around 0 if not centred."""
    # Rounding errors of differences to the first row do not grow with the number of rows, and no
    # square in units of the largest difference overflows.
    columns = X if X.ndim > 1 else X[:, None]
    weights = np.ones(columns.shape[0]) if weights is None else weights
    mean, size, square = np.zeros((3, columns.shape[1]))
    blocks = row_blocks(columns, dense=True)
    if centred:
        first = some(columns, slice(0, 1))[0]
        differences = sum(weights[rows] @ (some(columns, rows) - first) for rows in blocks)
        mean = first + differences / weights.sum()
    for rows in blocks:
        size = np.maximum(size, abs(some(columns, rows) - mean).max(0))
    size[size == 0] = 1.0
    for rows in blocks:
        square += weights[rows] @ ((some(columns, rows) - mean) / size) ** 2
    deviation = size * np.sqrt(square / weights.sum())
    # Constant columns have none.
    deviation[deviation <= 10 * np.finfo(np.float64).eps * abs(mean)] = 0
    check_squares(name, deviation)
    return mean.reshape(X.shape[1:])[()], deviation.reshape(X.shape[1:])[()]


def check_squares(name, sizes, dtype=np.float64):
    """Raise unless sums of squares of values of these sizes are finite, and 0 only if they are."""
    largest = np.sqrt(np.finfo(dtype).max) / 1e4  # with room for sums of 1e8 squares
    for wrong, what, remedy in (
        (~(sizes <= largest), "finite", "divide"),
        ((sizes > 0) & (sizes < 1 / largest), "not rounded to 0", "multiply"),
    ):
        if wrong.any():
            column = int(np.argmax(wrong))
            raise ValueError(
                f"{name} must have values whose squares are {what}, got values of size "
                f"{sizes[column]:.1e} in column {column}: {remedy} by a constant."
            )


def missing_code(X, codes=CODES, seen=None):
    """A code of missing values in numbers, and its first column; None if there seems to be none.

    A code is far from all other values of its column, farther than they are from each other; or it
    is negative and they are not.
    """
    with np.errstate(invalid="ignore"):
        low, high = np.fmin.reduce(X, axis=0), np.fmax.reduce(X, axis=0)
    first, n_entries = {}, dict.fromkeys(codes, 0)
    for j in np.flatnonzero(np.isin(low, codes) | np.isin(high, codes)):
        column = X[:, j] if seen is None else np.append(seen[:, j], X[:, j])
        values, counts = np.unique(column[column == column], return_counts=True)
        values, counts = values.tolist(), counts.tolist()
        ends = {} if len(values) < 3 else {
            values[0]: (values[1] - values[0], values[-1] - values[1], counts[0]),
            values[-1]: (values[-1] - values[-2], values[-2] - values[0], counts[-1]),
        }  # fmt: skip
        for code, (gap, spread, n) in ends.items():
            if code in n_entries and (gap > spread or code == values[0] < 0 <= values[1]):
                first.setdefault(code, int(j))
                n_entries[code] += n
    # One entry alone may be a mistake of another kind.
    fewest = 2 if seen is None else 1
    return next(((int(c), j) for c, j in first.items() if n_entries[c] >= fewest), None)


def warn_of_missing_codes(estimator, X, name="X", codes=CODES, seen=None):
    """Warn of numbers that seem to mark missing values: see `missing_code`."""
    if is_sparse(X) or X.dtype.kind not in "iuf" or not X.size:
        return
    code_and_column = missing_code(X, codes, seen)
    if code_and_column is not None:
        code, j = code_and_column
        column = column_name(estimator, j) if name == "X" else j
        place = f" in column {column}" if X.shape[1] > 1 or name == "X" else ""
        warn_user(
            f"{name} has the value {code}{place}, unlike all others, which is taken "
            "as a number: if it marks missing values, replace it by NaN or fill it in."
        )


def check_counts(total, n_rows, option=""):
    """Warn if weights that count rows add up to next to none, as those that add up to 1 do."""
    float64 = np.finfo(float)
    # Squares of sums over rows are not rounded to 0, and numbers of rows are told apart.
    low, high = np.sqrt(float64.tiny) / float64.eps, 2 / float64.eps
    if not low <= total <= high:
        raise ValueError(
            f"sample_weight counts rows, and must add up to between {low:.1g} and {high:.1g}, got "
            f"{total:.3g}: multiply by a common factor."
        )
    if total < 2 < n_rows:
        advice = f", or fit with {option}" if option else ""
        warn_user(
            f"sample_weight counts rows, and {n_rows} rows count as {total:.3g} together: multiply "
            f"it by {n_rows} over its sum{advice}."
        )


def class_factors(class_weight, y, weights):
    """Factors of the weights of rows, by their classes; balanced classes have one total weight."""
    if isinstance(class_weight, str) and class_weight == "balanced":
        which = np.unique(y, return_inverse=True)[1]
        of_classes = np.bincount(which, weights)
        total = of_classes.sum() / np.count_nonzero(of_classes)
        return (total / np.where(of_classes > 0, of_classes, 1.0))[which]
    if not isinstance(class_weight, dict):
        raise ValueError(
            f"class_weight must be None, 'balanced' or a dict by class, got {class_weight!r:.60}."
        )
    return compute_sample_weight(class_weight, y)
