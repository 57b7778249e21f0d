"""Linear algebra of positive definite matrices, and Newton's step on functions that are not convex.

LAPACK is called without SciPy's checks of the arguments, which take longer than the factorisation
of a small matrix. LAPACK uses Fortran order: to avoid a copy of a symmetric matrix in C order, pass
its transpose, which is the same matrix.
"""

from typing import NamedTuple

import numpy as np
import scipy
from numpy.linalg import LinAlgError

# Eigenvalues below this fraction of the largest one are zero up to rounding.
MIN_EIGENVALUE = 1e-10


class Cholesky(NamedTuple):
    """Factorisation A = L L' of a positive definite matrix, in single or double precision."""

    lower: np.ndarray  # (n, n): L, with zeros in the upper triangle

    @property
    def half_log_determinant(self):
        """Half the log-determinant of A."""
        return np.log(self.lower.diagonal()).sum()

    def solve(self, right):
        """Multiply A^-1 by a vector or matrix."""
        return _lapack("potrs", self.lower)(self.lower, right, lower=1)[0]

    def inverse(self, overwrite=False):
        """Compute A^-1, in the memory of L if `overwrite`."""
        return symmetrize(self.inverse_lower(overwrite))

    def inverse_lower(self, overwrite=False):
        """Compute the lower triangle of A^-1, with zeros above."""
        return _lapack("potri", self.lower)(self.lower, lower=1, overwrite_c=overwrite)[0]

    def inverse_factor(self, overwrite=False):
        """Compute L^-1, which whitens: A^-1 = L^-T L^-1."""
        return _lapack("trtri", self.lower)(self.lower, lower=1, overwrite_c=overwrite)[0]


class ScaledCholesky(NamedTuple):
    """Factorisation of a positive definite matrix whose diagonal was scaled to ones."""

    factor: Cholesky  # factor of S A S with S = diag(scale)
    scale: np.ndarray  # (n,)

    def solve(self, right):
        """Multiply A^-1 by a vector or matrix."""
        scale = self.scale if right.ndim == 1 else self.scale[:, None]
        return scale * self.factor.solve(scale * right)

    @property
    def half_log_determinant(self):
        """Half the log-determinant of A."""
        return self.factor.half_log_determinant - np.log(self.scale).sum()

    def inverse(self):
        """Compute A^-1."""
        return self.scale[:, None] * self.factor.inverse() * self.scale


class Gram:
    """X'X of an array X that does not change, computed on first use."""

    def __init__(self, X):
        self.X, self._matrix = X, None

    def matrix(self):
        """Return X'X, in double precision."""
        if self._matrix is None:
            X = self.X.astype(np.float64, copy=False)
            self._matrix = X.T @ X
        return self._matrix


def cholesky(matrix, overwrite=False):
    """Compute the Cholesky factorisation of a positive definite matrix."""
    potrf = _lapack("potrf", matrix)
    lower, failed = potrf(matrix, lower=1, clean=1, overwrite_a=overwrite)
    if failed or not np.isfinite(lower.diagonal()).all():
        raise LinAlgError("the matrix is not positive definite.")
    return Cholesky(lower)


def _lapack(name, matrix):
    """Return a routine of LAPACK in the precision of a matrix, single or double."""
    return getattr(scipy.linalg.lapack, ("s" if matrix.dtype == np.float32 else "d") + name)


def inverse_factor(matrix):
    """Compute the inverse L^-1 of the Cholesky factor of a matrix, and half its log-determinant."""
    # In Fortran order the array is the transposed matrix, whose upper factor is L'.
    upper, failed = scipy.linalg.lapack.dpotrf(matrix.T, lower=0, clean=1, overwrite_a=1)
    diagonal = upper.diagonal()
    if failed or not np.isfinite(diagonal).all():
        raise LinAlgError("the matrix is not positive definite.")
    half_log_determinant = np.log(diagonal).sum()
    return scipy.linalg.lapack.dtrtri(upper, lower=0, overwrite_c=1)[0].T, half_log_determinant


def cholesky_with_ridge(matrix, ridge=0.0):
    """Factorise a matrix plus the smallest tried multiple of the identity that allows it."""
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
    """Factorise a positive definite matrix whose elements may differ by orders of magnitude."""
    diagonal = matrix.diagonal()
    if not ((diagonal > 0) & (diagonal < np.inf)).all():
        raise LinAlgError("the matrix is not positive definite.")
    scale = 1 / np.sqrt(diagonal)
    return ScaledCholesky(cholesky((scale[:, None] * matrix * scale).T, overwrite=True), scale)


def solve_positive_definite(matrix, right):
    """Solve linear equations with a positive definite matrix."""
    return cholesky(matrix.T).solve(right)


def newton_step(hessian, gradient, min_curvature):
    """Compute Newton's step -H^-1 g, or a descent direction if H is not positive definite."""
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
    """Copy the lower triangle of a matrix into the upper triangle, in place."""
    for start in range(0, len(matrix), block_rows):
        rows = slice(start, start + block_rows)
        matrix[:start, rows] = matrix[rows, :start].T
        block = matrix[rows, rows]
        np.copyto(block, block.T.copy(), where=~np.tri(len(block), dtype=bool))
    return matrix
