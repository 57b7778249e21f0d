"""Linear algebra of positive definite matrices, and Newton's step on functions that are not convex.

LAPACK is called without SciPy's checks of the arguments, which take longer than the factorisation
of a small matrix. Its own order is Fortran's: pass the transpose of a symmetric matrix in C order,
which is the same matrix, and it is not copied.
"""

from typing import NamedTuple

import numpy as np
import scipy
from numpy.linalg import LinAlgError

# Eigenvalues below this part of the largest one are zero but for rounding.
MIN_EIGENVALUE = 1e-10


class Cholesky(NamedTuple):
    """Factorisation A = L L' of a positive definite matrix, of single or double precision."""

    lower: np.ndarray  # (n, n): L, its upper triangle zero

    @property
    def half_log_determinant(self):
        """Half the log-determinant of A."""
        return np.log(self.lower.diagonal()).sum()

    def solve(self, right):
        """A^-1 times a vector or matrix."""
        return _lapack("potrs", self.lower)(self.lower, right, lower=1)[0]

    def inverse(self, overwrite=False):
        """A^-1, in the memory of L if that may be overwritten."""
        return symmetrize(self.inverse_lower(overwrite))

    def inverse_lower(self, overwrite=False):
        """The lower triangle of A^-1; above it the matrix is zero."""
        return _lapack("potri", self.lower)(self.lower, lower=1, overwrite_c=overwrite)[0]

    def inverse_factor(self, overwrite=False):
        """L^-1, which whitens: A^-1 = L^-T L^-1."""
        return _lapack("trtri", self.lower)(self.lower, lower=1, overwrite_c=overwrite)[0]


class ScaledCholesky(NamedTuple):
    """Factorisation of a positive definite matrix whose diagonal was scaled to ones."""

    factor: Cholesky  # factor of S A S with S = diag(scale)
    scale: np.ndarray  # (n,)

    def solve(self, right):
        """A^-1 times a vector or matrix."""
        scale = self.scale if right.ndim == 1 else self.scale[:, None]
        return scale * self.factor.solve(scale * right)

    @property
    def half_log_determinant(self):
        """Half the log-determinant of A."""
        return self.factor.half_log_determinant - np.log(self.scale).sum()

    def inverse(self):
        """A^-1."""
        return self.scale[:, None] * self.factor.inverse() * self.scale


class Gram:
    """X'X of an array X that does not change, computed where it is first needed."""

    def __init__(self, X):
        self.X, self._matrix = X, None

    def matrix(self):
        """X'X, in double precision."""
        if self._matrix is None:
            X = self.X.astype(np.float64, copy=False)
            self._matrix = X.T @ X
        return self._matrix


def cholesky(matrix, overwrite=False):
    """The Cholesky factorisation of a positive definite matrix."""
    potrf = _lapack("potrf", matrix)
    lower, failed = potrf(matrix, lower=1, clean=1, overwrite_a=overwrite)
    if failed or not np.isfinite(lower.diagonal()).all():
        raise LinAlgError("the matrix is not positive definite.")
    return Cholesky(lower)


def _lapack(name, matrix):
    """A routine of LAPACK in the precision of a matrix, single or double."""
    return getattr(scipy.linalg.lapack, ("s" if matrix.dtype == np.float32 else "d") + name)


def inverse_factor(matrix):
    """The inverse L^-1 of the Cholesky factor of a matrix, and half its log-determinant."""
    # In Fortran's order the matrix is its transpose, whose factor is L'.
    upper, failed = scipy.linalg.lapack.dpotrf(matrix.T, lower=0, clean=1, overwrite_a=1)
    diagonal = upper.diagonal()
    if failed or not np.isfinite(diagonal).all():
        raise LinAlgError("the matrix is not positive definite.")
    half_log_determinant = np.log(diagonal).sum()
    return scipy.linalg.lapack.dtrtri(upper, lower=0, overwrite_c=1)[0].T, half_log_determinant


def cholesky_with_ridge(matrix, ridge=0.0):
    """Factor the matrix plus the smallest tried multiple of the identity that makes it definite."""
    if not np.isfinite(matrix).all():
        raise LinAlgError("the matrix is not finite.")
    largest = abs(matrix.diagonal()).max()
    while True:
        shifted = np.array(matrix, order="F")
        shifted.flat[:: len(shifted) + 1] += ridge
        try:
            return cholesky(shifted, overwrite=True)
        except LinAlgError:
            ridge = max(10 * ridge, 1e-14 * largest, 1e-300)


def scaled_cholesky(matrix):
    """The factorisation of a positive definite matrix whose elements may differ by many orders."""
    diagonal = matrix.diagonal()
    if not ((diagonal > 0) & (diagonal < np.inf)).all():
        raise LinAlgError("the matrix is not positive definite.")
    scale = 1 / np.sqrt(diagonal)
    return ScaledCholesky(cholesky((scale[:, None] * matrix * scale).T, overwrite=True), scale)


def solve_positive_definite(matrix, right):
    """The solution of linear equations whose matrix is positive definite."""
    return cholesky(matrix.T).solve(right)


def newton_step(hessian, gradient, min_curvature):
    """Newton's step -H^-1 g towards a minimum; a descent direction where H is not positive too."""
    hessian = (hessian + np.swapaxes(hessian, -1, -2)) / 2
    if hessian.ndim == 2:
        try:
            return -solve_positive_definite(hessian, gradient)
        except LinAlgError:
            pass
    values, vectors = np.linalg.eigh(hessian)
    positive = values[..., :1] > 0
    curvature = np.where(positive, values, np.maximum(abs(values), min_curvature))
    along = np.einsum("...ji,...j->...i", vectors, gradient) / curvature
    return -np.einsum("...ij,...j->...i", vectors, along)


def symmetrize(matrix, block_rows=512):
    """Copy the lower triangle of a matrix into its upper one, in place."""
    for start in range(0, len(matrix), block_rows):
        rows = slice(start, start + block_rows)
        matrix[:start, rows] = matrix[rows, :start].T
        block = matrix[rows, rows]
        np.copyto(block, block.T.copy(), where=~np.tri(len(block), dtype=bool))
    return matrix
