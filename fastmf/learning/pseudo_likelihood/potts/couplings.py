"""Couplings of a Potts machine as a matrix over all states: scores, and naive mean-field inversion.

Contact scores are norms of couplings. The couplings of naive mean-field inversion (mean-field DCA)
are minus the inverse of the covariance matrix of all states except one of each position (Morcos et
al. 2011), with frequencies f <- (1 - p) f + p / q and f_ij <- (1 - p) f_ij + p / (q_i q_j). The
means of the data are then a fixed point of naive mean field.
"""

import numpy as np
import scipy

from fastmf._common.linalg import LinAlgError, cholesky
from fastmf.learning.pseudo_likelihood.existence import MAX_CONDITION
from fastmf.models._gauge import PositionStates


def of_coefficients(coefficients, labels, sizes):
    """Return couplings A'X + X'A, zero within positions, given coefficients A of rows X."""
    half, position = one_hot(labels, sizes).T @ coefficients, PositionStates(sizes).position
    return np.where(position[:, None] == position, 0.0, half + half.T)


def one_hot(labels, sizes, dtype=np.float64):
    """Encode labels, negative if absent, as a sparse one-hot matrix (n_rows, n_states).

    The matrix is stored by columns, as positions are read one by one.
    """
    first = np.cumsum(sizes) - sizes
    rows, positions = np.nonzero(labels >= 0)
    columns = first[positions] + labels[rows, positions]
    shape = len(labels), int(np.sum(sizes))
    return scipy.sparse.csc_array((np.ones(len(rows), dtype), (rows, columns)), shape=shape)


# --- contact scores -------------------------------------------------------------------------------


def norms(couplings, sizes, gauge="zero-sum", ignore=None):
    """Compute the Frobenius norms of the couplings of all pairs of positions."""
    positions = PositionStates(np.asarray(sizes))
    n_groups = len(positions.sizes)
    out = np.zeros((n_groups, n_groups))
    for i, first in enumerate(positions.first):
        block = couplings[first : first + positions.sizes[i]]
        if gauge:
            block = positions.zero_sum(block - block.mean(0))
        block = np.square(block)
        if ignore is not None:
            block[:, (positions.first + ignore)[positions.sizes > ignore]] = 0
            block[ignore : ignore + 1] = 0
        out[i] = np.add.reduceat(block.sum(0), positions.first)
    np.fill_diagonal(out, 0)
    # The two triangles may differ by rounding errors.
    return np.sqrt((out + out.T) / 2)


def average_product_corrected(scores):
    """Apply the average product correction F_ij - F_i. F_.j / F_.. (Dunn et al. 2008)."""
    n = len(scores)
    if n < 2 or not scores.any():
        return scores.copy()
    means = scores.sum(1) / (n - 1)
    out = scores - np.outer(means, means) / means.mean()
    np.fill_diagonal(out, 0)
    return out


# --- naive mean-field inversion -------------------------------------------------------------------


def pair_frequencies(labels, weights, sizes, pseudocount):
    """Compute frequencies of states and of pairs of states, over rows with observed positions."""
    sizes, position = np.asarray(sizes), PositionStates(sizes).position
    x, seen = one_hot(labels, sizes), (labels >= 0).astype(float)
    pairs, present = (x.T @ (x * weights[:, None])).toarray(), seen.T @ (weights[:, None] * seen)
    pairs /= np.where(present > 0, present, 1)[position][:, position]
    q = sizes[position]
    pairs = (1 - pseudocount) * pairs + pseudocount / (q[:, None] * q)
    single = np.array(pairs.diagonal())
    single += pseudocount / q * (1 - 1 / q)
    pairs[position[:, None] == position] = 0
    pairs[np.diag_indices_from(pairs)] = single
    return single, pairs


def naive_mean_field(labels, weights, sizes, pseudocount, l2=0.0):
    """Compute couplings and field by naive mean-field inversion in the lattice gauge."""
    positions = PositionStates(sizes)
    first, position = positions.first, positions.position
    f, pairs = pair_frequencies(labels, weights, sizes, pseudocount)
    free = np.ones(len(f), bool)
    free[first] = False
    covariance = (pairs - np.outer(f, f))[np.ix_(free, free)]
    covariance[np.diag_indices_from(covariance)] += l2
    remedy = "give a ridge penalty l2"
    if (f <= 0).any():
        raise ValueError(f"naive mean-field inversion: some states were never seen; {remedy}.")
    try:
        factor = cholesky(covariance.T)
        unexplained = factor.lower.diagonal() ** 2
    except LinAlgError:
        unexplained = -np.inf
    # Compare each variance with its part that is not explained by previous variables.
    if (unexplained * MAX_CONDITION < covariance.diagonal()).any():
        raise ValueError(
            f"naive mean-field inversion: the covariance matrix is singular; {remedy}."
        )
    couplings = np.zeros((len(f), len(f)))
    couplings[np.ix_(free, free)] = -factor.inverse(overwrite=True)
    couplings[position[:, None] == position] = 0
    field = np.log(f / f[first][position]) - couplings @ f
    field[first] = 0
    return couplings, field
