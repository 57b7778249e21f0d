"""Matrices of columns that stay in their stored form.

The entries are an array of small integers, a memory-mapped file or a sparse matrix, with scaled
rows and columns, minus a product of low rank, as for centred columns. Products convert some columns
at a time; with a sparse matrix they are sparse products, if no digits cancel.
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
        # Pair of scaled entries and `right`, for sparse products; None if columns are converted.
        self.sparse = self._scaled()

    @property
    def shape(self):
        """Numbers of rows and columns."""
        return self.stored.shape

    def _scaled(self):
        if not is_sparse(self.stored):
            return None
        scaled = scipy.sparse.csc_array(self.stored.multiply(self.column_scale))
        scaled.data *= self.row_scale[scaled.indices]
        pair = scaled, self.right
        # A centred column with a zero has at least a fraction 1 / n_rows of its sum of squares.
        precise = self._squares(pair) * len(self) >= scaled.power(2).sum(0)
        return pair if precise.all() else None

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
        return table_rows.blocks(self.shape[1], 4 * np.prod(self.shape))

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
        part = part.toarray() if is_sparse(part) else np.asarray(part)
        out = np.multiply(part, self.column_scale[columns], order="F")
        out *= self.row_scale[:, None]
        out -= self.left @ self.right[:, columns]
        return out

    def __matmul__(self, W):
        W = np.asarray(W, np.float64)
        if self.sparse is not None:
            entries, right = self.sparse
            return entries @ W - self.left @ (right @ W)
        return sum(self[:, chunk] @ W[chunk] for chunk in self.chunks())

    @property
    def T(self):
        """The transposed matrix, for products."""
        return _Transposed(self)

    def transposed_product(self, columns, E):
        """Multiply some columns, transposed, by a vector or matrix."""
        if self.sparse is None:
            return self[:, columns].T @ E
        entries, right = self.sparse
        return entries[:, columns].T @ E - right[:, columns].T @ (self.left.T @ E)

    def outer(self, weights):
        """Compute X diag(weights) X' by sparse products."""
        entries, right = self.sparse
        weighted, low = entries * weights, (right * weights) @ right.T
        across = (weighted @ right.T - self.left @ low / 2) @ self.left.T
        return (weighted @ entries.T).toarray() - across - across.T

    def squares(self):
        """Compute sums of squares of the columns."""
        if self.sparse is not None:
            return self._squares(self.sparse)
        parts = (self[:, chunk] for chunk in self.chunks())
        return np.concatenate([np.einsum("ij,ij->j", part, part) for part in parts])

    def _squares(self, pair):
        """Compute sums of squares of the columns from sparse entries and `right`."""
        entries, right = pair
        low = self.left.T @ self.left @ right - 2 * (entries.T @ self.left).T
        return np.maximum(entries.power(2).sum(0) + (low * right).sum(0), 0)

    def _changed(self, **values):
        """Return a copy with other values of some attributes."""
        out = copy(self)
        vars(out).update(values)
        out.sparse = out._scaled()
        return out

    def less(self, left, right):
        """Subtract another product of low rank."""
        return self._changed(left=np.c_[self.left, left], right=np.r_[self.right, right])

    def times(self, scale):
        """Multiply the columns by numbers."""
        return self._changed(column_scale=self.column_scale * scale, right=self.right * scale)

    def without(self, columns):
        """Set some columns, given as indices or a mask, to zero."""
        present = np.ones(self.shape[1])
        present[columns] = 0
        return self.times(present)

    def take(self, columns, axis):
        """Select columns (axis 1), as for an array, in their stored form."""
        scale, right = self.column_scale[columns], self.right[:, columns]
        return self._changed(stored=self.stored[:, columns], column_scale=scale, right=right)

    def mixed(self, mixing):
        """Multiply by a sparse matrix of shape (n_columns, n_columns) on the right."""
        out = copy(self)
        out.mixing = scipy.sparse.csc_array(mixing)
        if self.sparse is not None:
            out.sparse = tuple(part @ out.mixing for part in self.sparse)
        return out


class _Transposed:
    """The transposed matrix of `StoredColumns`."""

    __array_ufunc__ = None

    def __init__(self, columns):
        self._columns = columns

    def __matmul__(self, E):
        columns = self._columns
        return np.concatenate([columns.transposed_product(k, E) for k in columns.chunks()])

    def __rmatmul__(self, W):
        return (self._columns @ np.asarray(W).T).T
