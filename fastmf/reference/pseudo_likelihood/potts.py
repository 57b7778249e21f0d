"""The log-pseudo-likelihood of categorical units and its derivatives, in NumPy."""

import numpy as np

from fastmf._outcomes import ABSENT


def _one_hot(rows, n_blocks, width):
    """Convert rows of labels to (n_rows, n_blocks * width) zeros and ones."""
    n_rows, n_columns = rows.labels.shape
    n_positions = n_columns // n_blocks
    s, column = np.nonzero(rows.labels != ABSENT)
    block, position = np.divmod(column, n_positions)
    out = np.zeros((n_rows, n_blocks * width), rows.weights.dtype)
    out[s, block * width + rows.labels[s, column].astype(int) * n_positions + position] = 1
    return out


def value_and_gradient(rows, couplings, field, workspaces, queue, gradient, field_gradient, values):
    """Compute the log-pseudo-likelihood of rows, and its derivatives by couplings and fields."""
    n_blocks, _, width = couplings.shape
    x, weights = _one_hot(rows, n_blocks, width), rows.weights[:, None]
    for block in range(n_blocks):
        present = np.split(rows.labels, n_blocks, axis=1)[block][:, None] != ABSENT
        eta = (x @ couplings[block] + field[block]).reshape(len(x), -1, present.shape[2])
        log_p = eta - eta.max(1, keepdims=True)
        log_p -= np.log(np.exp(log_p).sum(1, keepdims=True))
        observed = x[:, block * width : (block + 1) * width]
        values[:, block] = rows.weights * (log_p * observed.reshape(log_p.shape)).sum((1, 2), float)
        residuals = weights * (observed - (np.exp(log_p) * present).reshape(observed.shape))
        gradient[block], field_gradient[block] = x.T @ residuals, residuals.sum(0)
