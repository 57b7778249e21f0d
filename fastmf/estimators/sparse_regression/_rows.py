"""Moments of columns, and features that are not made floating-point arrays as a whole.

Sparse matrices, memory-mapped files, and integers of one or two bytes, such as genotypes, are
converted in blocks. If there are no fewer rows than features, rows are read twice, for means and
scales and for the moments, which take their place; with fewer, columns are converted in each
iteration.
"""

import numpy as np
from scipy.sparse import csc_array, csr_array, issparse

from fastmf._common import rows as table_rows
from fastmf._common.stored_columns import StoredColumns
from fastmf._common.warning import warn_user
from fastmf.estimators.common.rows import some, warn_of_missing_codes
from fastmf.estimators.sparse_regression._moments import factor, solved


def is_stored(X):
    """Whether X, as the user gave it, is converted in blocks if it is large."""
    if issparse(X) or isinstance(X, np.memmap):
        return True
    return isinstance(X, np.ndarray) and X.dtype.kind in "iub" and X.dtype.itemsize <= 2


def is_large(X):
    """Whether features are more than one block."""
    return np.prod(X.shape, dtype=float) > table_rows.BLOCK_ENTRIES


def as_array(estimator, X):
    """Checked features, small ones as an array of floats; warns of codes of missing values."""
    if (code := genotype_code(X)) is None:
        warn_of_missing_codes(estimator, X)
    else:
        warn_user(
            f"X has values {code} beside 0, 1 and 2, which are taken as numbers: if they mark "
            "missing genotypes, fill them in first, as by the means of columns."
        )
    if is_large(X):
        return X
    X = X.toarray() if issparse(X) else X
    return X if X.dtype in (np.float32, np.float64) else X.astype(np.float64)


def genotype_code(X):
    """-9 or -1, if it is in X beside 0, 1 and 2 alone, as where genotypes are missing; else None.

    Values -1, 0 and 1 alone are another coding of genotypes.
    """
    values = X.data if issparse(X) else X
    low = values.min(initial=0)
    if low not in (-9, -1) or values.max() > 2 or (low == -1 and values.max() < 2):
        return None
    parts = (values,) if values.ndim == 1 else (values[p] for p in table_rows.row_blocks(values))
    return int(low) if all(np.isin(part, (-9, -1, 0, 1, 2)).all() for part in parts) else None


def as_floats(X):
    """Checked features as an array, large ones in single precision unless they are doubles."""
    X = X.toarray() if issparse(X) else X
    return X if X.dtype in (np.float32, np.float64) else X.astype(np.float32)


def rows_of_stored(X, y, weights, offset, scale, constant):
    """Return rows and a target with the moments of standardised ones, and what y'y lacks."""
    n, p = X.shape
    roots = np.sqrt(weights)
    factors = np.where(constant, 0.0, 1 / scale)
    if n < p:
        columns = csc_array(X) if issparse(X) else X
        offsets = roots[:, None], (offset * factors)[None]
        return StoredColumns(columns, roots, factors, *offsets), y, 0.0
    X = csr_array(X) if issparse(X) else X
    gram, moment = np.zeros((p, p)), np.zeros(p)
    for rows in table_rows.row_blocks(X, dense=True):
        part = some(X, rows) - offset
        part *= factors
        part *= roots[rows, None]
        gram += part.T @ part
        moment += y[rows] @ part
    X, pivots = factor(gram)
    target = solved(X, pivots, moment)
    return X, target, max(float(y @ y - target @ target), 0.0)
