"""Couplings of a Potts machine: a matrix, or made on demand from coefficients of few rows."""

import numpy as np
import scipy


class DenseCouplings:
    """Couplings as a matrix J (n_states, n_states)."""

    def __init__(self, matrix, sizes):
        self.matrix, self.sizes = matrix, np.asarray(sizes)
        self.first = np.cumsum(self.sizes) - self.sizes

    def of_position(self, i):
        """The couplings J_ij(a, b) of the states a of a position, (q_i, n_states)."""
        return self.matrix[self.first[i] : self.first[i] + self.sizes[i]]

    def fields(self, labels):
        """Local fields X J of rows of labels, (n_rows, n_states)."""
        out = np.zeros((len(labels), len(self.matrix)), self.matrix.dtype)
        for j, first in enumerate(self.first):
            present = labels[:, j] >= 0
            out[present] += self.matrix[first + labels[present, j].astype(np.int64)]
        return out

    def dense(self):
        """J."""
        return self.matrix


class OfFewRows:
    """Couplings A'X + X'A off the blocks of a position with itself.

    The coefficients are A (n_rows, n_states), and X rows of labels (n_rows, n_groups).
    """

    def __init__(self, coefficients, labels, sizes):
        self.coefficients, self.labels = coefficients, labels
        self.sizes = np.asarray(sizes)
        self.first = np.cumsum(self.sizes) - self.sizes
        self._X = one_hot(labels, self.sizes, coefficients.dtype)

    def of_position(self, i):
        """The couplings J_ij(a, b) of the states a of a position, (q_i, n_states)."""
        A, states = self.coefficients, slice(self.first[i], self.first[i] + self.sizes[i])
        out = self._X[:, states].T @ A
        out += (self._X.T @ A[:, states]).T
        out[:, states] = 0
        return out

    def fields(self, labels):
        """Local fields X J of rows of labels, (n_rows, n_states)."""
        Y = one_hot(labels, self.sizes, self.coefficients.dtype)
        products = (Y @ self._X.T).toarray()
        return fields_of_few_rows(self.coefficients, self._X, Y, products, self.sizes)

    def dense(self):
        """J, made now."""
        return np.concatenate([self.of_position(i) for i in range(len(self.sizes))])


def fields_of_few_rows(A, X, Y, products, sizes):
    """Local fields Y J of rows Y with the couplings of `OfFewRows`, given the products Y X'."""
    out = products @ A
    out += (X.T @ (Y @ A.T).T).T
    for first, q in zip(np.cumsum(sizes) - sizes, sizes, strict=True):
        states = slice(first, first + q)
        # No products with this position's own states are wanted.
        within = X[:, states].T @ A[:, states]
        out[:, states] -= Y[:, states] @ (within + within.T)
    return out


def one_hot(labels, sizes, dtype=np.float64):
    """Rows of labels, negative if absent, as a sparse matrix (n_rows, n_states) of ones.

    In columns, since positions are read one by one.
    """
    first = np.cumsum(sizes) - sizes
    rows, positions = np.nonzero(labels >= 0)
    columns = first[positions] + labels[rows, positions]
    shape = len(labels), int(np.sum(sizes))
    return scipy.sparse.csc_array((np.ones(len(rows), dtype), (rows, columns)), shape=shape)
