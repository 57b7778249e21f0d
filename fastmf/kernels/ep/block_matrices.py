"""Inverses of the matrices of many small blocks, which one call of LAPACK each would take longer.

Matrices are one-dimensional arrays, row by row, one after another, as in `site_blocks`. With
A = LL', A^-1 is the sum of the outer products of the rows of L^-1. Inner loops run along rows.
"""

import numpy as np

from fastmf._jit.kernel import kernel


@kernel
def invert_matrices(starts, squares, elements, work, inverses, log_determinants):
    """Inverses and log-determinants of positive definite matrices."""
    for k in range(len(log_determinants)):
        first, c = squares[k], starts[k + 1] - starts[k]
        log_determinants[k] = _whiten(elements, first, c, work)
        if log_determinants[k] == log_determinants[k]:
            _square(work, c, inverses, first)


@kernel(mode="merged")
def _whiten(elements, first, c, work):
    """Fill the second half of `work` with L^-1: the log-determinant, or NaN."""
    for i in range(c):
        for j in range(i + 1):
            work[j * c + i] = elements[first + i * c + j]
    log_determinant, whiten = 0.0, c * c
    for r in range(c):
        pivot, row = work[r * c + r], r * c
        if not (pivot > 0 and pivot < np.inf):
            log_determinant = np.nan
            break
        log_determinant += np.log(pivot)
        scale = 1 / np.sqrt(pivot)
        for j in range(r, c):
            work[row + j] *= scale
        for i in range(r + 1, c):
            factor = work[row + i]
            for j in range(i, c):
                work[i * c + j] -= factor * work[row + j]
        for j in range(r):
            work[whiten + row + j] = 0.0
        work[whiten + row + r] = scale
        for i in range(r):
            factor = work[i * c + r] * scale
            for j in range(i + 1):
                work[whiten + row + j] -= factor * work[whiten + i * c + j]
    return log_determinant


@kernel(mode="merged")
def _square(work, c, inverses, first):
    """Fill an inverse with the sum of the outer products of the rows of L^-1."""
    whiten = c * c
    for i in range(c * c):
        inverses[first + i] = 0.0
    for r in range(c):
        row = whiten + r * c
        for i in range(r + 1):
            factor, here = work[row + i], first + i * c
            for j in range(i + 1):
                inverses[here + j] += factor * work[row + j]
    for i in range(c):
        for j in range(i):
            inverses[first + j * c + i] = inverses[first + i * c + j]
