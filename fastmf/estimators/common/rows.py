"""Rows of data as users give them, checked, with moments of columns and weights of rows."""

import numpy as np
from scipy.sparse import csr_array

from fastmf._common.arguments import row_weights
from fastmf._common.rows import canonical, is_incomplete, is_sparse, row_blocks
from fastmf._common.warning import warn_user
from fastmf.estimators.common.data import checked_data, column_name, with_nan
from fastmf.priors._groups import column_is_group, column_sizes, has_groups, has_groups_of_states
from fastmf.priors._protocol import is_unit_prior
from fastmf.priors._registry import REGISTRY

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
    parts = list(row_blocks(X))
    with np.errstate(invalid="ignore"):
        low = np.fmin.reduce([np.fmin.reduce(X[rows], axis=0) for rows in parts])
        high = np.fmax.reduce([np.fmax.reduce(X[rows], axis=0) for rows in parts])
    first, n_entries = {}, dict.fromkeys(codes, 0)
    for j in np.flatnonzero(np.isin(low, codes) | np.isin(high, codes)):
        column = X[:, j] if seen is None else np.append(seen[:, j], X[:, j])
        values, counts = np.unique(column, return_counts=True)
        counts = counts[values == values].tolist()
        values = values[values == values].tolist()
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
    """Factors of the weights of rows, by their classes."""
    classes, which = np.unique(y, return_inverse=True)
    if isinstance(class_weight, str) and class_weight == "balanced":
        of_classes = np.bincount(which, weights)
        total = of_classes.sum() / np.count_nonzero(of_classes)
        return (total / np.where(of_classes > 0, of_classes, 1.0))[which]
    if not isinstance(class_weight, dict):
        raise ValueError(
            f"class_weight must be None, 'balanced' or a dict of factors by class, got "
            f"{class_weight!r:.60}."
        )
    names = classes.tolist()
    if unknown := [name for name in class_weight if name not in names]:
        raise ValueError(
            f"class_weight has {unknown[0]!r}, which is none of the classes {names} of y."
        )
    factors = row_weights(
        [class_weight.get(name, 1.0) for name in names], len(names), "class_weight"
    )
    return factors[which]
