"""Naive mean-field inversion (mean-field DCA): couplings from a covariance matrix.

Couplings are minus the inverse of the covariance matrix of all states but one of each position
(Morcos et al. 2011), with frequencies f <- (1 - p) f + p / q and f_ij <- (1 - p) f_ij + p / (q_i
q_j). The means of the data are then a fixed point of naive mean field.
"""

import numpy as np

from fastmf._common.linalg import LinAlgError, cholesky
from fastmf.learning.pseudo_likelihood.existence import MAX_CONDITION
from fastmf.learning.pseudo_likelihood.potts.couplings import one_hot
from fastmf.models._gauge import PositionStates


def pair_frequencies(labels, weights, sizes, pseudocount):
    """Frequencies of states and of pairs of states, among rows where the positions are present."""
    sizes, position = np.asarray(sizes), PositionStates(sizes).position
    pairs, present = np.zeros((len(position), len(position))), np.zeros((len(sizes), len(sizes)))
    for start in range(0, len(labels), 1024):
        x, w = labels[start : start + 1024], weights[start : start + 1024, None]
        rows = one_hot(x, sizes).toarray()
        pairs += rows.T @ (w * rows)
        present += (x >= 0).T @ (w * (x >= 0))
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
    inverse = _inverse(covariance)
    if inverse is None:
        raise ValueError(
            f"naive mean-field inversion: the covariance matrix is singular; {remedy}."
        )
    couplings = np.zeros((len(f), len(f)))
    couplings[np.ix_(free, free)] = -inverse
    couplings[position[:, None] == position] = 0
    field = np.log(f / f[first][position]) - couplings @ f
    field[first] = 0
    return couplings, field


def _inverse(covariance):
    """The inverse of a covariance matrix; None if it is singular."""
    try:
        factor = cholesky(covariance.T)
    except LinAlgError:
        return None
    # The share of each variance that the variables before it do not explain.
    if (factor.lower.diagonal() ** 2 * MAX_CONDITION < covariance.diagonal()).any():
        return None
    return factor.inverse(overwrite=True)
