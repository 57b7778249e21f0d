"""Credible sets of features: the smallest ones that hold an effect with a given probability.

The features of correlated blocks that hold effects are taken together, with their cavity at the
fixed point of expectation propagation, and their inclusion patterns are searched
(`fastmf.inference.ep.inclusion_patterns`). Signals are told apart pattern by pattern: the most
probable feature leads, and each pattern's feature that correlates most with it, by more than
`MIN_LINK`, is where the signal is in that pattern; what is left makes the next signal.
"""

from typing import NamedTuple

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from fastmf.inference.ep.inclusion_patterns import Patterns, cavity_of, search_patterns
from fastmf.inference.gaussian.blocks import Blocks, members_of

# Correlation from which on features may have the same effect, or depend on each other's.
MIN_LINK = 0.5
# Inclusion probability from which on a feature links its block to others; and is in patterns, of
# which there are at most so many features.
LINKS, IN_PATTERNS, MAX_PATTERN_FEATURES = 1e-3, 1e-6, 300


class CredibleSet(NamedTuple):
    """Features of which one has an effect.

    Parameters
    ----------
    features : int array of shape (n,)
        The most probable first.
    probability : float
        Probability that at least one of them is not zero: at least the coverage that was asked for.
    coverage : float
        The same, given that there is an effect here, of these or of correlated features.
    purity : float
        Smallest absolute correlation of two of them.
    """

    features: np.ndarray
    probability: float
    coverage: float
    purity: float


class FittedPart(NamedTuple):
    """A part of a fitted model with independent features, at one value of the hyper-parameters.

    Parameters
    ----------
    units : int array of shape (n_features,)
        Its features.
    X : array of shape (n_rows, n_units)
        Features, and columns without a spike last.
    y : array of shape (n_rows,), or None
    noise_variance : float
    log_odds, precision : array of shape (n_units,)
        Log-odds and precisions of the prior.
    mean, var : array of shape (n_units,)
        Posterior means, and variances: of coefficients, averages over all values.
    labels : int array of shape (n_units,)
        Blocks.
    sites : array of shape (2, n_units)
    matrices : array
        Elements of the matrices of the sites of blocks, in the order of `Blocks`, and more.
    inverse : object
        The covariance of the Gaussian with sites.
    """

    units: np.ndarray
    X: np.ndarray
    y: np.ndarray | None
    noise_variance: float
    log_odds: np.ndarray
    precision: np.ndarray
    mean: np.ndarray
    var: np.ndarray
    labels: np.ndarray
    sites: np.ndarray
    matrices: np.ndarray
    inverse: object

    def with_blocks_of(self, units):
        """Units with all others of their blocks, ascending."""
        return np.flatnonzero(np.isin(self.labels, self.labels[units]))

    def patterns(self, units, active):
        """Inclusion patterns of some units of whole blocks; others of them are zero."""
        matrix = np.diag(self.sites[1, units])
        blocks = Blocks(members_of(self.labels), len(self.labels))
        for M, members in zip(blocks.matrices(self.matrices), blocks.by_size, strict=True):
            for T, own in zip(M, members, strict=True):
                if np.isin(own[0], units):
                    place = np.searchsorted(units, own)
                    matrix[np.ix_(place, place)] = T
        covariance = self.inverse.covariance(units)
        g, P = cavity_of(covariance, self.mean[units], self.sites[0, units], matrix)
        kept = np.searchsorted(units, active)
        prior = self.log_odds[active], self.precision[active]
        return search_patterns(g[kept], P[np.ix_(kept, kept)], *prior)

    def correlations(self, units):
        """Correlations of the columns of some units."""
        columns = np.asarray(self.X[:, units], np.float64)
        length = np.sqrt(np.einsum("ij,ij->j", columns, columns))
        columns = columns / np.where(length > 0, length, 1.0)
        return columns.T @ columns


def components_of(part, units):
    """Units with their blocks, joined where likely ones correlate.

    Parameters
    ----------
    part : FittedPart
    units : int array

    Returns
    -------
    list of int array
    """
    if not len(units):
        return []
    labels, near = part.labels[units], abs(part.correlations(units)) > MIN_LINK
    first, second = np.nonzero(np.triu(near, 1))
    n = int(part.labels.max()) + 1
    links = coo_array((np.ones(len(first), bool), (labels[first], labels[second])), (n, n))
    _, component = connected_components(links, directed=False)
    of_units = component[labels]
    return [part.with_blocks_of(units[of_units == k]) for k in np.unique(of_units)]


def joint_patterns(parts, weights, included, units):
    """Inclusion patterns of units of whole blocks, averaged over values of the hyper-parameters.

    Parameters
    ----------
    parts : list of FittedPart
        One for each value.
    weights : array of shape (n_values,)
    included : array of shape (n_units,)
        Inclusion probabilities.
    units : int array

    Returns
    -------
    int array of shape (n,)
        The units in patterns: the others are nearly surely zero.
    Patterns
    """
    probable = units[included[units] > IN_PATTERNS]
    if len(probable) > MAX_PATTERN_FEATURES:
        probable = np.sort(probable[np.argsort(-included[probable])[:MAX_PATTERN_FEATURES]])
    members = [part.patterns(units, probable) for part in parts]
    return probable, Patterns.mixed(members, weights)


def credible_sets(part, found, coverage):
    """The credible sets among some units.

    Parameters
    ----------
    part : FittedPart
    found : tuple
        Units and their patterns, as of `joint_patterns`.
    coverage : float

    Returns
    -------
    list of CredibleSet
        Sets of features, by their number in the model.
    """
    units, patterns = found
    R, left, sets = abs(part.correlations(units)), patterns.included.copy(), []
    probability = patterns.probability
    while True:
        marginal = probability @ left
        lead = int(np.argmax(marginal))
        near = R[lead] > MIN_LINK
        near[lead] = True
        likeness = np.where(left & near, R[lead] + (np.arange(len(units)) == lead), -1.0)
        place, exists = np.argmax(likeness, axis=1), (left & near).any(1)
        at = np.bincount(place[exists], probability[exists], len(units))
        total = at.sum()
        if not total >= coverage:
            return sets
        order = np.argsort(-np.round(at, 6), kind="stable")  # copies in their order
        size = int(np.searchsorted(np.cumsum(at[order]), coverage - 1e-9)) + 1
        own = order[:size]
        sets.append(
            CredibleSet(
                features=part.units[units[own]],
                probability=min(patterns.any_of(own), 1.0),
                coverage=min(float(at[own].sum() / total), 1.0),
                purity=float(R[np.ix_(own, own)].min()) if size > 1 else 1.0,
            )
        )
        rows = np.flatnonzero(exists)
        left[rows, place[rows]] = False
