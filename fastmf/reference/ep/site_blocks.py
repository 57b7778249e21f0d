"""NumPy twin of `fastmf.kernels.ep.site_blocks`."""

from itertools import chain, combinations

import numpy as np
from numpy.linalg import LinAlgError


def tilt_blocks(blocks, linear, precision, work, units, covariance, totals):
    """Compute moments and log-partition of each block under the tilt of its cavity."""
    for k, largest in enumerate(blocks.largest):
        block = slice(*blocks.starts[k : k + 2])
        square, c = slice(*blocks.squares[k : k + 2]), block.stop - block.start
        try:
            patterns = slabs(blocks.prior[:, block], linear[block], precision[square], largest)
        except LinAlgError:
            totals[:, k] = np.nan
            units[:, block], covariance[square] = np.nan, np.nan
            continue
        totals[0, k] = np.logaddexp.reduce([log_weight for _, log_weight, *_ in patterns])
        mean, included, alone = np.zeros((3, c))
        second, full = np.zeros((c, c)), 0.0
        for S, log_weight, m, V in patterns:
            weight = np.exp(log_weight - totals[0, k])
            mean[S] += weight * m
            included[S] += weight
            alone[S] += weight * (len(S) == 1)
            second[np.ix_(S, S)] += weight * (np.outer(m, m) + V)
            full += weight * (len(S) == largest < c)
        units[:, block] = mean, included, alone
        covariance[square] = (second - np.outer(mean, mean)).ravel()
        totals[1, k] = full


def slabs(prior, linear, precision, largest):
    """Return units, log-weight, mean and covariance of each pattern up to a number of units."""
    c = len(linear)
    sizes = (combinations(range(c), s) for s in range(largest + 1))
    matrix = precision.reshape(c, c)
    return [(S, *slab(prior, linear, matrix, S)) for S in map(list, chain(*sizes))]


def slab(prior, linear, precision, S):
    """Return the log-weight of the pattern S, and mean and covariance of its units."""
    log_weight, field, slab = prior[:, S]
    Q, h = precision[np.ix_(S, S)] + np.diag(slab), linear[S] + field
    lower = np.linalg.cholesky(Q)
    z = np.linalg.solve(lower, h)
    V = np.linalg.inv(Q)
    return log_weight.sum() + z @ z / 2 - np.log(lower.diagonal()).sum(), V @ h, V
