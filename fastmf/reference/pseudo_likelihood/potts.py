"""The log-pseudo-likelihood of categorical units and its derivatives, in NumPy."""

from itertools import pairwise

import numpy as np

from fastmf._outcomes import ABSENT


def _one_hot(rows):
    """Convert rows of labels to (n_rows, n_fields) zeros and ones."""
    (first, start), n_positions = rows.bounds.T, np.diff(rows.bounds[:, 0])
    s, column = np.nonzero(rows.labels != ABSENT)
    block = np.searchsorted(first, column, "right") - 1
    place = start[block] + rows.labels[s, column] * n_positions[block] + column - first[block]
    out = np.zeros((len(rows.labels), start[-1]), rows.weights.dtype)
    out[s, place] = 1
    return out


def value_and_gradient(rows, couplings, field, workspaces, queue, gradient, field_gradient, values):
    """Compute the log-pseudo-likelihood of rows, and its derivatives by couplings and fields."""
    x, weights = _one_hot(rows), rows.weights[:, None]
    for block, ((first, start), (last, end)) in enumerate(pairwise(rows.bounds)):
        present = rows.labels[:, None, first:last] != ABSENT
        of_block = slice(start * x.shape[1], end * x.shape[1])
        eta = x @ couplings[of_block].reshape(x.shape[1], -1) + field[start:end]
        eta = eta.reshape(len(x), -1, present.shape[2])
        log_p = eta - eta.max(1, keepdims=True)
        log_p -= np.log(np.exp(log_p).sum(1, keepdims=True))
        observed = x[:, start:end]
        values[:, block] = rows.weights * (log_p * observed.reshape(log_p.shape)).sum((1, 2), float)
        residuals = weights * (observed - (np.exp(log_p) * present).reshape(observed.shape))
        gradient[of_block], field_gradient[start:end] = (x.T @ residuals).ravel(), residuals.sum(0)
