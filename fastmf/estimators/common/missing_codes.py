"""Codes of missing values among numbers, such as 999, which fits would take as values."""

import numpy as np

from fastmf._common.rows import is_sparse, row_blocks
from fastmf._common.warning import warn_user
from fastmf.estimators.common.data import column_name

# The usual ones; -1, 8 and 9 are values too often.
CODES = -9, *(sign * (10**n_digits - 1) for n_digits in (2, 3, 4) for sign in (-1, 1))


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
