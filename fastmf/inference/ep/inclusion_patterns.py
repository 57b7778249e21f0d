"""Which of some features are not zero together, under their common cavity.

The features have the cavity exp(g'w - w'Pw / 2), as in `block_sites`, but there may be many of
them: patterns of inclusion are not enumerated but searched. All of up to two features are weighed;
the heaviest of each size are then extended by every other feature, until what larger patterns add
is small.
"""

from typing import NamedTuple

import numpy as np
from numpy.linalg import LinAlgError

# Nats below the heaviest pattern, of those that are kept; patterns of each size that are extended;
# and largest size.
DEPTH, MAX_EXTENDED, MAX_SIZE = 14.0, 200, 30
# Weight of the patterns of a size, relative to all, at which the search ends.
NEGLIGIBLE = 1e-4
# Smallest part of the precision of a feature that the others leave it.
MIN_OWN_PRECISION = 1e-12


class Patterns(NamedTuple):
    """Inclusion patterns and their probabilities.

    Parameters
    ----------
    included : bool array of shape (n_patterns, n_features)
    probability : array of shape (n_patterns,)
    """

    included: np.ndarray
    probability: np.ndarray

    @classmethod
    def mixed(cls, members, weights):
        """The mixture of several, of the same features."""
        included = np.concatenate([patterns.included for patterns in members])
        probability = [w * p.probability for w, p in zip(weights, members, strict=True)]
        return cls(included, np.concatenate(probability))

    def inclusion(self):
        """The inclusion probability of every feature."""
        return self.probability @ self.included

    def any_of(self, features):
        """Probability that at least one of these features is not zero."""
        return float(self.probability @ self.included[:, features].any(1))


def cavity_of(covariance, mean, linear, precision):
    """Linear terms and precisions of the Gaussian of some units, without their sites."""
    marginal = np.linalg.inv(covariance)
    marginal = (marginal + marginal.T) / 2
    return marginal @ mean - linear, marginal - precision


def search_patterns(linear, precision, log_odds, slab_precision):
    """The inclusion patterns of spike-and-slab units under a cavity.

    Parameters
    ----------
    linear : array of shape (n,)
    precision : array of shape (n, n)
    log_odds, slab_precision : array of shape (n,)
        Log-odds of the prior, and precisions of its slabs of mean 0.

    Returns
    -------
    Patterns
    """
    n = len(linear)
    own, Q = log_odds + np.log(slab_precision) / 2, precision + np.diag(slab_precision)
    kept, level = [((), 0.0)], [((), 0.0)]
    total = top = 0.0
    for size in range(1, min(n, MAX_SIZE) + 1):
        found = {}
        for pattern, weight in level:
            weights = weight + _extensions(pattern, linear, Q) + own
            for j in np.flatnonzero(weights > top - DEPTH if size > 1 else weights > -np.inf):
                found[tuple(sorted((*pattern, int(j))))] = float(weights[j])
        if not found:
            break
        level = sorted(found.items(), key=lambda item: -item[1])
        kept += level
        values = np.array(list(found.values()))
        top, added = max(top, level[0][1]), np.logaddexp.reduce(values)
        total = np.logaddexp(total, added)
        if size > 1 and added < total + np.log(NEGLIGIBLE):
            break
        # All single ones are extended: two may be likely only together.
        level = level if size == 1 else level[:MAX_EXTENDED]
    kept = [item for item in kept if item[1] > top - DEPTH]
    included = np.zeros((len(kept), n), bool)
    for row, (pattern, _) in zip(included, kept, strict=True):
        row[list(pattern)] = True
    weights = np.exp(np.array([weight for _, weight in kept]) - top)
    return Patterns(included, weights / weights.sum())


def _extensions(pattern, linear, Q):
    """Gains of the log-weight of a pattern by every other unit, but for the prior's part."""
    members, diagonal = list(pattern), Q.diagonal()
    rest, along = diagonal.copy(), linear.copy()
    if members:
        try:
            lower = np.linalg.cholesky(Q[np.ix_(members, members)])
        except LinAlgError:
            return np.full(len(linear), -np.inf)
        whitened = np.linalg.solve(lower, np.column_stack([Q[members], linear[members]]))
        rest -= (whitened[:, :-1] ** 2).sum(0)
        along -= whitened[:, -1] @ whitened[:, :-1]
    proper = rest > MIN_OWN_PRECISION * abs(diagonal)
    proper[members] = False
    rest = np.where(proper, rest, 1.0)
    return np.where(proper, along * along / rest / 2 - np.log(rest) / 2, -np.inf)
