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


def _by_position(array, n_positions):
    """Reshape (n_rows, width) to (n_rows, states, positions)."""
    return array.reshape(len(array), -1, n_positions)


def _present(rows, n_blocks, block):
    """Return whether the positions of a block are present, (n_rows, 1, n_positions)."""
    n_positions = rows.labels.shape[1] // n_blocks
    return rows.labels[:, None, block * n_positions : (block + 1) * n_positions] != ABSENT


def _log_conditionals(rows, x, couplings, field, block):
    """Compute log-probabilities of the states of the positions of a block."""
    n_positions = rows.labels.shape[1] // len(couplings)
    eta = _by_position(x @ couplings[block] + field[block], n_positions)
    eta -= eta.max(1, keepdims=True)
    return eta - np.log(np.exp(eta).sum(1, keepdims=True))


def value_and_gradient(rows, couplings, field, workspaces, queue, gradient, field_gradient, values):
    """Compute the log-pseudo-likelihood of rows, and its derivatives by couplings and fields."""
    n_blocks, _, width = couplings.shape
    x, weights = _one_hot(rows, n_blocks, width), rows.weights[:, None]
    for block in range(n_blocks):
        log_p = _log_conditionals(rows, x, couplings, field, block)
        observed = x[:, block * width : (block + 1) * width]
        values[:, block] = rows.weights * (log_p * observed.reshape(log_p.shape)).sum((1, 2), float)
        p = np.exp(log_p) * _present(rows, n_blocks, block)
        residuals = weights * (observed - p.reshape(observed.shape))
        gradient[block], field_gradient[block] = x.T @ residuals, residuals.sum(0)


def gather_gradient(tables, vectors, l2, scale, places, queue, tiles):
    """Compute derivatives by tiles of centred couplings from the tables of both sides."""
    n_blocks, width = vectors.shape[1:]
    J, G = tables.reshape(2, n_blocks, n_blocks, width, width)
    f, g = vectors
    for t, (p, r) in enumerate(places):
        total = G[p, r] + G[r, p].T - np.outer(f[r], g[p]) - np.outer(g[r], f[p])
        tiles[t] = scale[t] * (total - tables.dtype.type(l2) * J[p, r]).reshape(-1)
