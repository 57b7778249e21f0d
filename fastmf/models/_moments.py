"""Rows that have given moments: a linear model needs no more of its data than X'X, X'y and y'y.

With U'U = X'X a pivoted Cholesky factorisation, of as many rows as the matrix has rank, the rows U
with the target v of U'v = X'y have the same moments. What is left of y'y is orthogonal to all
features.
"""

from typing import NamedTuple

import numpy as np
from scipy import linalg, sparse
from scipy.linalg.lapack import dpstrf
from scipy.sparse.csgraph import connected_components

from fastmf._common.arguments import doubles, number

# Rounding of a matrix of moments, relative to its diagonal, in double precision; and in the product
# with its factor, beyond which the matrix was not positive semidefinite.
MOMENT_ROUNDING, MAX_MOMENT_ERROR = 1e-12, 1e-6
# A matrix with fewer elements than this fraction is taken apart into its blocks.
MAX_BLOCK_DENSITY = 0.5
# Blocks are joined up to so many features.
SMALL = 200


class Rows(NamedTuple):
    """Rows, their target, and the sum of squares that is orthogonal to all features.

    Parameters
    ----------
    X : array of shape (rank, n_features)
    y : array of shape (rank,)
    absent_square : float
    """

    X: np.ndarray
    y: np.ndarray
    absent_square: float


def factor(gram, rounding=MOMENT_ROUNDING):
    """Rows U of which U'U is a positive semidefinite matrix, and the order of the pivots."""
    n = len(gram)
    scale = np.sqrt(np.maximum(gram.diagonal(), 0))
    scale[scale == 0] = 1.0
    upper, pivots, rank, _ = dpstrf(gram / scale / scale[:, None], tol=rounding)
    U = np.zeros((max(rank, 1), n))
    U[:rank, pivots - 1] = np.triu(upper)[:rank]
    probe = np.random.default_rng(0).choice([-1.0, 1.0], (n, 4))
    expected = gram / scale / scale[:, None] @ probe
    error = abs(U.T @ (U @ probe) - expected).max(initial=0)
    if not error <= MAX_MOMENT_ERROR * np.sqrt(n) * max(1.0, abs(expected).max(initial=0)):
        raise ValueError("not positive semidefinite")
    return U * scale, pivots[:rank] - 1


def rows_of(gram, moment, rounding=MOMENT_ROUNDING):
    """Rows and target with these moments, and the part of the moment X'y that no rows have."""
    X, pivots = factor(gram, rounding)
    y = np.zeros(len(X))
    if len(pivots):
        y[:] = linalg.solve_triangular(X[:, pivots], moment[pivots], trans=1)
    return X, y, moment - y @ X


def checked_moments(gram, moment, y_square, n):
    """A matrix and a vector of float64, and two numbers, or an error that says what is wrong."""
    gram, moment = doubles("gram", gram), doubles("moment", moment)
    if gram.ndim != 2 or gram.shape[0] != gram.shape[1]:
        raise ValueError(f"gram must be a square matrix, X'X, got shape {gram.shape}.")
    if moment.shape != gram.shape[:1]:
        raise ValueError(f"moment must have shape {gram.shape[:1]}, X'y, got {moment.shape}.")
    for name, value in {"gram": gram, "moment": moment}.items():
        if not np.isfinite(value).all():
            raise ValueError(f"{name} must be finite, got NaN or infinity.")
        if (largest := abs(value).max(initial=0)) > np.sqrt(np.finfo(float).max):
            raise ValueError(
                f"{name} must have squares below 1.8e308, got {largest:g}: take larger units."
            )
    diagonal = gram.diagonal()
    if (diagonal < 0).any():
        raise ValueError(f"gram must have no negative squares, got {diagonal.min():g}.")
    scale = np.sqrt(np.outer(diagonal, diagonal)) if len(gram) <= 500 else diagonal.max()
    if (abs(gram - gram.T) > 1e-6 * np.maximum(scale, 1e-300)).any():
        raise ValueError("gram must be symmetric, X'X.")
    return gram, moment, _positive("y_square", y_square, zero=True), _positive("n", n)


def _positive(name, value, zero=False):
    value = number(name, value, -np.inf, np.inf)
    if not (0 < value < np.inf or (zero and value == 0)):
        raise ValueError(f"{name} must be positive and finite, got {value:g}.")
    return float(value)


def rows_of_moments(gram, moment, y_square):
    """Rows with checked moments, which those of some data must be."""
    try:
        X, y, rest = rows_of(gram, moment)
    except ValueError:
        raise ValueError(
            "gram must be positive semidefinite, as X'X is: it is not, beyond rounding. Add a "
            "multiple of the identity, or compute it in double precision."
        ) from None
    limit = 1e-5 * np.sqrt(np.maximum(gram.diagonal() * y_square, 0)) + 1e-300
    if (abs(rest) > limit).any():
        raise ValueError(
            f"moment must be X'y for the X of gram: element {int(np.argmax(abs(rest) - limit))} is "
            "none, as gram says that its feature is a combination of others."
        )
    absent = y_square - float(y @ y)
    if absent < -1e-6 * y_square:
        raise ValueError(
            f"y_square must be y'y: gram and moment alone explain {y @ y:g}, got {y_square:g}."
        )
    return Rows(X, y, max(absent, 0.0))


def absent_of(targets, y_square, n):
    """The number of rows, and the square that is in none of these targets of blocks of features.

    Blocks that are taken for uncorrelated, or correlations of other rows, may explain more than
    there is, or have a higher rank than there are rows. What is left has then no likelihood, and
    the noise is that of the rows of the blocks.
    """
    rank = sum(map(len, targets))
    absent = y_square - sum(float(y @ y) for y in targets)
    if rank > n or absent < -1e-6 * y_square:
        return float(rank), 0.0
    return float(n), max(absent, 0.0)


def blocks_of(matrix, name="gram"):
    """The blocks of a block-diagonal matrix, each with the features in it."""
    if isinstance(matrix, (list, tuple)) and len(matrix) and np.ndim(matrix[0]) == 2:
        parts = [doubles(name, part) for part in matrix]
        for k, part in enumerate(parts):
            if part.ndim != 2 or part.shape[0] != part.shape[1]:
                raise ValueError(f"{name}[{k}] must be a square matrix, got shape {part.shape}.")
        ends = np.cumsum([len(part) for part in parts])
        return [(np.arange(e - len(part), e), part) for e, part in zip(ends, parts, strict=True)]
    if not sparse.issparse(matrix):
        matrix = doubles(name, matrix)
        dense = matrix.ndim != 2 or np.count_nonzero(matrix) > MAX_BLOCK_DENSITY * matrix.size
        if dense or matrix.shape[0] != matrix.shape[1]:
            return [(np.arange(len(matrix)) if matrix.ndim else np.zeros(0, int), matrix)]
        pattern = sparse.csr_array(matrix)
    else:
        pattern = matrix = sparse.csr_array(matrix, dtype=np.float64)
        if matrix.shape[0] != matrix.shape[1]:
            raise ValueError(f"{name} must be a square matrix, got shape {matrix.shape}.")
    n_blocks, labels = connected_components(pattern, directed=False)
    order = np.argsort(labels, kind="stable")
    each = np.split(order, np.cumsum(np.bincount(labels, minlength=n_blocks))[:-1])
    joined = _joined(each)
    return [(units, pattern[units][:, units].toarray()) for units in joined]


def _joined(parts):
    """Small ones joined: a problem of some features costs no more than one of a single one."""
    joined, size = [[]], 0
    for part in parts:
        if size + len(part) > SMALL and size:
            joined.append([])
            size = 0
        joined[-1].append(part)
        size += len(part)
    return [np.concatenate(group) for group in joined]
