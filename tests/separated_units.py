"""Separated units of rows of spins, by one linear programme of dense matrices."""

import numpy as np
from scipy.optimize import linprog


def features(states):
    """Derivatives of the margins by fields and couplings, (n_rows, n_units, n_parameters)."""
    n, d = states.shape
    pairs = np.transpose(np.triu_indices(d, 1))
    out = np.zeros((n, d, d + len(pairs)))
    for j in range(d):
        out[:, j, j] = states[:, j]
        for c, (a, b) in enumerate(pairs):
            if j in (a, b):
                out[:, j, d + c] = states[:, a] * states[:, b]
    return out


def separated(states):
    """Units separated along any direction, by one linear programme of dense matrices."""
    M = features(states).reshape(states.size, -1)
    m, p = M.shape
    found = linprog(
        np.r_[np.zeros(p), -np.ones(m)], np.hstack([-M, np.eye(m)]), np.zeros(m),
        bounds=[(None, None)] * p + [(0, 1)] * m,
    )  # fmt: skip
    return np.flatnonzero((found.x[p:].reshape(states.shape) > 0.5).any(0))
