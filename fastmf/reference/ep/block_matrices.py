"""NumPy twin of `fastmf.kernels.ep.block_matrices`."""

import numpy as np
from numpy.linalg import LinAlgError


def invert_matrices(starts, squares, elements, work, inverses, log_determinants):
    """Inverses and log-determinants of positive definite matrices."""
    for k, c in enumerate(np.diff(starts)):
        own = slice(squares[k], squares[k + 1])
        matrix = elements[own].reshape(c, c)
        try:
            lower = np.linalg.cholesky(matrix)
        except LinAlgError:
            log_determinants[k] = np.nan
            continue
        inverses[own] = np.linalg.inv(matrix).ravel()
        log_determinants[k] = 2 * np.log(lower.diagonal()).sum()
