"""Contact scores of pairs of positions, from the norms of their couplings."""

import numpy as np

from fastmf.models._gauge import PositionStates, position_in_zero_sum


def norms(couplings, gauge="zero-sum", ignore=None):
    """Frobenius norms of the couplings of all pairs of positions."""
    positions = PositionStates(couplings.sizes)
    n_groups = len(positions.sizes)
    out = np.zeros((n_groups, n_groups))
    for i in range(n_groups):
        block = couplings.of_position(i)
        block = np.square(position_in_zero_sum(block, positions) if gauge else block)
        if ignore is not None:
            block[:, (positions.first + ignore)[positions.sizes > ignore]] = 0
            block[ignore : ignore + 1] = 0
        out[i] = np.add.reduceat(block.sum(0), positions.first)
    np.fill_diagonal(out, 0)
    # The two triangles differ by rounding.
    return np.sqrt((out + out.T) / 2)


def average_product_corrected(scores):
    """Scores less what mean scores explain: F_ij - F_i. F_.j / F_.. (Dunn et al. 2008)."""
    n = len(scores)
    if n < 2 or not scores.any():
        return scores.copy()
    means = scores.sum(1) / (n - 1)
    out = scores - np.outer(means, means) / means.mean()
    np.fill_diagonal(out, 0)
    return out
