"""Matrices of columns that stay in their stored form, and are converted in products.

The entries are an array of small integers, a memory-mapped file or a sparse matrix, with scaled
rows and columns, minus a product of low rank. Centred columns, and residuals of a regression, have
this form, and need no copy in floating point.
"""

from copy import copy

import numpy as np
import scipy

from fastmf._common import rows as table_rows
from fastmf._common.rows import is_sparse

_FACTORS = "row_scale", "column_scale", "left", "right"


def column_squares(X):
    """Compute sums of squares of the columns of an array or of `StoredColumns`."""
    if isinstance(X, StoredColumns):
        return X.squares()
    return np.einsum("ij,ij->j", X, X, dtype=np.float64)


class StoredColumns:
    """A matrix diag(row_scale) X diag(column_scale) - left right, whose columns may be mixed.

    Parameters
    ----------
    X : array or csc_array of shape (n_rows, n_columns)
    row_scale : array of shape (n_rows,)
    column_scale : array of shape (n_columns,)
    left : array of shape (n_rows, rank)
    right : array of shape (rank, n_columns)
    """

    dtype, ndim = np.dtype(np.float64), 2
    __array_ufunc__ = None  # so that products with arrays on the left use this class

    def __init__(self, X, row_scale, column_scale, left, right):
        self.stored, self.row_scale, self.column_scale = X, row_scale, column_scale
        self.left, self.right, self.mixing = left, right, None

    @property
    def shape(self):
        """Numbers of rows and columns."""
        return self.stored.shape

    def arrays(self):
        """Return the matrix as a dict of arrays, for files; mixed columns are not supported."""
        X = self.stored
        arrays = {name: getattr(self, name) for name in _FACTORS}
        if not is_sparse(X):
            return arrays | {"X": np.asarray(X)}
        parts = {"data": X.data, "indices": X.indices, "indptr": X.indptr}
        return arrays | parts | {"shape": np.array(X.shape)}

    @classmethod
    def from_arrays(cls, arrays):
        """Make the matrix from the dict of `arrays`."""
        X = arrays.get("X")
        if X is None:
            parts = arrays["data"], arrays["indices"], arrays["indptr"]
            X = scipy.sparse.csc_array(parts, shape=tuple(arrays["shape"]))
        return cls(X, *(arrays[name] for name in _FACTORS))

    def __len__(self):
        return self.stored.shape[0]

    def chunks(self):
        """Return slices of columns that are converted at a time."""
        n, p = self.shape
        width = max(1, table_rows.BLOCK_ENTRIES // 4 // n)
        return [slice(first, min(first + width, p)) for first in range(0, p, width)]

    def __getitem__(self, key):
        rows, columns = key
        if not (isinstance(rows, slice) and rows == slice(None)):
            raise IndexError("only whole columns can be taken.")
        columns = np.arange(self.shape[1])[columns]
        if self.mixing is None:
            return self._converted(columns)
        mixing = self.mixing[:, columns]
        needed = np.unique(mixing.indices)
        return (mixing[needed].T @ self._converted(needed).T).T

    def _converted(self, columns):
        part = self.stored[:, columns]
        part = part.toarray() if is_sparse(part) else part
        out = np.asarray(part, np.float64, order="F")
        out = out * self.column_scale[columns] if out is part else np.multiply(
            out, self.column_scale[columns], out=out
        )  # fmt: skip
        out *= self.row_scale[:, None]
        out -= self.left @ self.right[:, columns]
        return out

    def __matmul__(self, W):
        W = np.asarray(W, np.float64)
        return sum(self[:, chunk] @ W[chunk] for chunk in self.chunks())

    @property
    def T(self):
        """The transposed matrix, for products."""
        return _Transposed(self)

    def squares(self):
        """Compute sums of squares of the columns."""
        parts = (self[:, chunk] for chunk in self.chunks())
        return np.concatenate([np.einsum("ij,ij->j", part, part) for part in parts])

    def less(self, left, right):
        """Subtract another product of low rank."""
        out = copy(self)
        out.left = np.concatenate([self.left, left], axis=1)
        out.right = np.concatenate([self.right, right], axis=0)
        return out

    def times(self, scale):
        """Multiply the columns by numbers."""
        out = copy(self)
        out.column_scale, out.right = self.column_scale * scale, self.right * scale
        return out

    def without(self, columns):
        """Set some columns, given as indices or a mask, to zero."""
        out = copy(self)
        out.column_scale, out.right = self.column_scale.copy(), self.right.copy()
        out.column_scale[columns], out.right[:, columns] = 0, 0
        return out

    def take(self, columns, axis):
        """Select columns (axis 1), as for an array, in their stored form."""
        out = copy(self)
        out.stored, out.right = self.stored[:, columns], self.right[:, columns]
        out.column_scale = self.column_scale[columns]
        return out

    def mixed(self, mixing):
        """Multiply by a sparse matrix of shape (n_columns, n_columns) on the right."""
        out = copy(self)
        out.mixing = scipy.sparse.csc_array(mixing)
        return out


class _Transposed:
    """The transposed matrix of `StoredColumns`."""

    __array_ufunc__ = None

    def __init__(self, columns):
        self._columns = columns

    def __matmul__(self, E):
        columns = self._columns
        return np.concatenate([columns[:, chunk].T @ E for chunk in columns.chunks()])

    def __rmatmul__(self, W):
        return (self._columns @ np.asarray(W).T).T
