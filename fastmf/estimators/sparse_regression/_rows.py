"""Moments of columns, and features that are not made floating-point arrays as a whole.

Sparse matrices, memory-mapped files, and integers of one or two bytes, such as genotypes, are
converted in blocks. With at least as many rows as features the rows are read twice, for means and
scales and for the moments, which take their place; with fewer, columns are converted in each
iteration.
"""

import numpy as np
from scipy.linalg import solve_triangular
from scipy.sparse import csc_array, csr_array, issparse

from fastmf._common import rows as table_rows
from fastmf._common.stored_columns import StoredColumns
from fastmf._common.warning import warn_user
from fastmf.estimators.common.missing_codes import warn_of_missing_codes
from fastmf.estimators.common.rows import some
from fastmf.estimators.sparse_regression._moments import factor


def is_stored(X):
    """Whether X, as the user gave it, is converted in blocks if it is large."""
    if issparse(X) or isinstance(X, np.memmap):
        return True
    return isinstance(X, np.ndarray) and X.dtype.kind in "iub" and X.dtype.itemsize <= 2


def is_large(X):
    """Whether features are more than one block."""
    return np.prod(X.shape, dtype=float) > table_rows.BLOCK_ENTRIES


def as_array(estimator, X):
    """Checked features as they are; small ones, of one block, as an array of floats.

    Warns of codes of missing values.
    """
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


class StoredRows:
    """Standardised and weighted rows of a regression, or an equivalent of them.

    Parameters
    ----------
    X : array, or sparse matrix
    weights : array of shape (n_rows,) or None
    offset, scale : array of shape (n_features,)
    constant : bool array of shape (n_features,)
        Features that are taken for 0.

    Attributes
    ----------
    X : array of shape (rank, n_features), or StoredColumns of shape (n_rows, n_features)
        Rows with the same moments.
    """

    def __init__(self, X, weights, offset, scale, constant):
        n, p = X.shape
        self._roots = np.ones(n) if weights is None else np.sqrt(weights)
        factors = np.where(constant, 0.0, 1 / scale)
        self._given, self._offset, self._factors = X, offset, factors
        if n < p:
            columns = csc_array(X) if issparse(X) else X
            factor_left, right = self._roots[:, None], (offset * factors)[None]
            self.X, self._pivots = (
                StoredColumns(columns, self._roots, factors, factor_left, right),
                None,
            )
            return
        if issparse(X):
            self._given = csr_array(X)
        gram = np.zeros((p, p))
        for rows in table_rows.row_blocks(X, dense=True):
            part = self._standardised(rows)
            gram += part.T @ part
        self.X, self._pivots = factor(gram)
        self._triangle = self.X[:, self._pivots].copy()  # X is changed in place

    def _standardised(self, rows):
        part = some(self._given, rows) - self._offset
        part *= self._factors
        part *= self._roots[rows, None]
        return part

    def target(self, y):
        """A target, weighted, for these rows, and what of its square they do not have."""
        if self._pivots is None:
            return y, 0.0
        moment = np.zeros(self.X.shape[1])
        for rows in table_rows.row_blocks(self._given, dense=True):
            moment += y[rows] @ self._standardised(rows)
        reduced = np.zeros(len(self.X))
        if len(self._pivots):
            reduced[:] = solve_triangular(self._triangle, moment[self._pivots], trans=1)
        return reduced, max(float(y @ y - reduced @ reduced), 0.0)
