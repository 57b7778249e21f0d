"""Checks of data: masked arrays, data frames, strings, missing values, and row weights."""

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

# Advice on missing values, for estimators with and without `impute`.
_IMPUTE = "fill them in by `impute`, or leave such rows out"
_NO_IMPUTE = (
    "leave such rows out, or fill them in first, as by the `impute` of a machine of fastmf or by "
    "sklearn.impute.SimpleImputer"
)

_DATES = "give dates and times as numbers, such as days since the first one"
_ENCODE = (
    "encode strings first, as by sklearn.preprocessing.OrdinalEncoder "
    "(GeneralizedRBM takes them in data frames, and FullyVisibleBoltzmannMachine, "
    "OrdinalMachine and PottsMachine in any table)"
)


def checked_data(estimator, X, y="no_validation", *, reset, missing=False, **options):
    """Validate data with scikit-learn; errors name the location and a remedy."""
    options |= {"reset": reset, "ensure_all_finite": False}
    X, without_y = with_nan(X), isinstance(y, str)
    check_types("X", X)
    y = y if without_y else complete_target(y, options.get("y_numeric"))
    try:
        checked = validate_data(estimator, X, y, **options)
    except (TypeError, ValueError, OverflowError) as error:
        # scikit-learn's messages of several lines, without the name of the argument.
        text, kind = " ".join(str(error).split()), type(error)
        if "could not convert" in text or "float() argument" in text:
            raise kind(f"X must hold numbers: {text}; {_ENCODE}.") from error
        if "1d array" in text:
            raise kind(f"{text} Fit a model for each column (sklearn.multioutput).") from error
        if re.search(r"\b[Xy]\b", text):
            raise
        kind = TypeError if kind is TypeError else ValueError
        raise kind(f"X: {text}") from error
    X = checked if without_y else checked[0]
    if X.dtype.kind == "f":
        check_finite(estimator, X, missing)
    return checked


def types_of_columns(X):
    """Return the types of the columns of a data frame; of other data their dtype, or None."""
    refuse_lazy(X)
    types = getattr(X, "dtypes", getattr(X, "dtype", None))
    return np.atleast_1d(np.asarray(types, object)).tolist()


def check_types(name, data, refused="mMc"):
    """Raise for columns of dates or times, which have no natural origin, or complex numbers."""
    for k, dtype in enumerate(types_of_columns(data)):
        temporal = "M" if getattr(dtype, "is_temporal", bool)() else ""  # a dtype of polars
        if (kind := temporal or getattr(dtype, "kind", "O")) in refused:
            columns = list(getattr(data, "columns", []))
            column = f" in column {k} ({columns[k]!r})" if columns else ""
            if kind == "c":
                advice = f"give real and imaginary parts of {name}{column} as columns"
                raise ValueError(f"Complex data not supported: {advice}.")
            raise ValueError(f"{name} must hold numbers, got {dtype}{column}: {_DATES}.")


def refuse_lazy(data):
    """Raise a TypeError for a query, such as a LazyFrame of polars, which has no values yet."""
    if hasattr(type(data), "collect"):
        raise TypeError(f"a {type(data).__name__} has no values yet: pass its `.collect()`.")


def dense_frame(X):
    """Convert sparse columns of pandas, and dictionaries of Arrow, to columns and categories."""
    X = X.to_pandas() if type(X).__module__.partition(".")[0] == "pyarrow" else X
    new = {k: dtype.subtype if hasattr(dtype, "fill_value") else "category"
           for k, dtype in enumerate(types_of_columns(X))
           if hasattr(dtype, "fill_value") or str(dtype).startswith("dictionary")}  # fmt: skip
    if not new:
        return X
    if X.ndim == 1:
        return X.astype(new[0])
    return X.copy().set_axis(range(X.shape[1]), axis=1).astype(new).set_axis(X.columns, axis=1)


def with_nan(X):
    """Replace masked entries, None and pandas' NA by NaN."""
    refuse_lazy(X)
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
    """Whether lists contain objects other than numbers and strings, such as None and NA."""
    try:
        return np.asarray(rows).dtype == object
    except ValueError:  # rows of unequal lengths: scikit-learn raises an error
        return False


def missing_entries(X):
    """Return a mask of the entries that are NaN, None or pandas' NA, for any dtype."""
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
    """Return the index of a column as text, with its name if there is one."""
    names = getattr(estimator, "feature_names_in_", None)
    return f"{column}" if names is None else f"{column} ({names[column]!r})"


def complete_target(y, numeric=False):
    """Return targets unchanged; raise if any is missing, masked, or no number if `numeric`."""
    check_types("y", y, "mMc" if numeric else "c")
    if is_sparse(y) or y is None:
        return y
    y = with_nan(y)
    try:
        values = y.to_numpy() if hasattr(y, "to_numpy") else np.asarray(y)
        values = values.reshape(1) if values.ndim == 0 else values
    except ValueError:  # rows of unequal lengths
        raise ValueError(f"y must be an array, got {type(y).__name__}.") from None
    absent = missing_entries(values)
    if absent.any():
        row = int(np.argwhere(absent)[0][0])
        raise ValueError(
            f"y contains missing values (NaN, None or masked), the first in row {row}: leave such "
            "rows out, or give them labels."
        )
    if values.dtype.kind in "OSU":
        words = np.frompyfunc(lambda x: isinstance(x, str | bytes), 1, 1)(values).astype(bool)
        if numeric and words.any():
            raise ValueError(
                f"y must hold numbers, got {values[words].item(0)!r:.40}: convert texts by "
                "astype(float), or of classes take a classifier, such as SpikeSlabClassifier."
            )
        if words.any() and not words.all():
            raise TypeError(
                f"y must hold labels of one kind, got {values[words][0]!r:.40} and "
                f"{values[~words][0]!r:.40}: make all of them strings, or all numbers."
            )
    return y


# --- rows, weights and moments of columns ---------------------------------------------------------

# Usual codes of missing values, except for -1, 8 and 9, which are often valid values.
CODES = -9, *(sign * (10**n_digits - 1) for n_digits in (2, 3, 4) for sign in (-1, 1))


def checked_rows(estimator, X, *, reset, dtype, missing=False):
    """Check rows and their number of columns; NaN is accepted in dense rows if `missing`."""
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
    """Replace negative labels of categorical units by NaN."""
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
    """Raise for rows, and optionally columns, without any observed value."""
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


def dense_rows(X, rows):
    """Return some rows as a dense array in double precision."""
    part = X[rows]
    return (part.toarray() if is_sparse(part) else part).astype(np.float64, copy=False)


def mean_and_deviation(name, X, centred, weights=None):
    """Compute mean and standard deviation of columns, or of a vector; around 0 if not centred."""
    # Rounding errors of differences to the first row do not grow with the number of rows, and
    # squares relative to the largest difference do not overflow.
    columns = X if X.ndim > 1 else X[:, None]
    weights = np.ones(columns.shape[0]) if weights is None else weights
    mean, largest, square = np.zeros((3, columns.shape[1]))
    blocks = row_blocks(columns, dense=True)
    if centred:
        first = dense_rows(columns, slice(0, 1))[0]
        differences = sum(weights[rows] @ (dense_rows(columns, rows) - first) for rows in blocks)
        mean = first + differences / weights.sum()
    for rows in blocks:
        largest = np.maximum(largest, abs(dense_rows(columns, rows) - mean).max(0))
    largest[largest == 0] = 1.0
    for rows in blocks:
        square += weights[rows] @ ((dense_rows(columns, rows) - mean) / largest) ** 2
    deviation = largest * np.sqrt(square / weights.sum())
    # Rounding errors of constant columns.
    deviation[deviation <= 10 * np.finfo(np.float64).eps * abs(mean)] = 0
    check_squares(name, deviation)
    return mean.reshape(X.shape[1:])[()], deviation.reshape(X.shape[1:])[()]


def check_squares(name, sizes, dtype=np.float64):
    """Raise if sums of squares of values of these sizes would overflow or underflow."""
    limit = np.sqrt(np.finfo(dtype).max) / 1e4  # for sums of up to 1e8 squares
    for wrong, what, remedy in (
        (~(sizes <= limit), "finite", "divide"),
        ((sizes > 0) & (sizes < 1 / limit), "not rounded to 0", "multiply"),
    ):
        if wrong.any():
            column = int(np.argmax(wrong))
            raise ValueError(
                f"{name} must have values whose squares are {what}, got values of size "
                f"{sizes[column]:.1e} in column {column}: {remedy} by a constant."
            )


def missing_code(X, codes=CODES, seen=None):
    """Return a code that seems to mark missing values, and its first column; None without one.

    A code is the extreme value of a column and farther from the next value than the range of all
    other values; or it is negative, and no other value is.
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
    # A single entry may be an error of another kind.
    min_entries = 2 if seen is None else 1
    return next(((int(c), j) for c, j in first.items() if n_entries[c] >= min_entries), None)


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
    """Warn if frequency weights sum to less than two rows, for example if normalised to 1."""
    float64 = np.finfo(float)
    # Squares of sums over rows do not underflow, and sums of weights resolve single rows.
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
    """Return factors of row weights by class; balanced classes have equal total weights."""
    if isinstance(class_weight, str) and class_weight == "balanced":
        index = np.unique(y, return_inverse=True)[1]
        totals = np.bincount(index, weights)
        total = totals.sum() / np.count_nonzero(totals)
        return (total / np.where(totals > 0, totals, 1.0))[index]
    if not isinstance(class_weight, dict):
        raise ValueError(
            f"class_weight must be None, 'balanced' or a dict by class, got {class_weight!r:.60}."
        )
    return compute_sample_weight(class_weight, y)
