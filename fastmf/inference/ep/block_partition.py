"""Which features are in a block: as found in the data, and changed where posteriors show it.

A block that would include more features than its patterns may is cut. Where parallel updates do not
converge, an effect most often has a place in two blocks, each of which takes it for the other's:
the blocks of the features that move most become one.
"""

from typing import NamedTuple

import numpy as np

from fastmf._threads.workers import one_blas_thread
from fastmf.inference.ep.correlated import MAX_FEATURES, correlated_blocks, cut, unit_columns
from fastmf.inference.gaussian.blocks import labels_of, members_of

# Largest probability that a block includes as many features as its patterns may, and how often
# blocks in which it is larger are cut; up to the last, whole ones are better than parts that do not
# converge: so it was in three of 20 windows of genotypes, after which this rule was made.
MAX_FULL, MAX_CUTS, MAX_FULL_WHOLE = 0.05, 4, 0.5
# Features that move most, whose correlations are computed, and how often blocks are joined.
MOST_MOVING, MAX_JOINS = 64, 8
# Smallest correlation of features that share an effect, and smallest probabilities of having one
# and none where that is open. Of 20 problems in which joining by these changed a probability by
# more than 0.01 all came nearer to enumeration or chains over models, most by a factor of 2.
# Patterns of larger blocks took three times as long as the rest of a fit, and were of no use.
SHARING_CORRELATION, OPEN, MAX_SHARING = 0.3, 0.05, 40
# Probabilities of inclusion this near to 0 and to 1 leave nothing to decide.
NEARLY_ZERO, NEARLY_ONE = 0.1, 1e-3
# Probability of what is never zero, such as a constant column, but for rounding.
SURELY_ONE = 1 - 1e-9


class FoundBlocks(NamedTuple):
    """Blocks that were found in the data.

    Parameters
    ----------
    labels : int array of shape (n_features,)
    max_joins : int
        How often two of them may be joined: 0 for those that were cut.
    lead : ExpectationPropagation, optional
        Result with single sites by which they were found, from which a solve without `init` starts.
    """

    labels: np.ndarray
    max_joins: int
    lead: object = None


def blocks_of(X, blocks, n_rows=None, scores=None, *, few_are_one=False):
    """The features of each block of two or more."""
    if blocks is None:
        return []
    if isinstance(blocks, FoundBlocks):
        return members_of(blocks.labels)
    if isinstance(blocks, str):
        if blocks != "auto":
            raise ValueError(f"blocks must be 'auto', None or labels, got {blocks!r:.40}.")
        # Threads of BLAS would spin into what follows.
        with one_blas_thread(len(X)):
            return correlated_blocks(X, scores, n_rows, few_are_one=few_are_one)
    return members_of(checked_labels(blocks, X.shape[1]))


def checked_labels(blocks, n_features):
    """Labels of the blocks of features, as an array."""
    try:
        labels = np.asarray(blocks)
    except ValueError:  # lists of unequal lengths
        labels = np.asarray(None)
    if labels.shape != (n_features,):
        raise ValueError(
            f"blocks must have a label for each feature, shape ({n_features},), or be 'auto' or "
            f"None, got shape {labels.shape}."
        )
    if labels.dtype.kind not in "biufUSO":
        raise TypeError(f"blocks must be numbers or names, got {labels.dtype}.")
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise ValueError("blocks must name the block of every feature, got NaN or infinity.")
    return labels


def full_blocks(result):
    """The blocks of a result that would include more features than their patterns may."""
    return [
        units
        for (units, _), full in zip(result.block_sites, result.full_probability, strict=True)
        if full > MAX_FULL
    ]


def may_stay_whole(result):
    """Whether a result is of use with its full blocks whole: most weight is below the limit."""
    full = () if result.full_probability is None else result.full_probability
    return result.converged and max(full, default=0) < MAX_FULL_WHOLE


def without_full_blocks(X, members, result):
    """Blocks, those cut in two that would include more features than their patterns may."""
    full = {int(units[0]) for units in full_blocks(result)}
    return [
        part
        for units in members
        for part in (cut(X, np.sort(units)) if int(np.min(units)) in full else [units])
    ]


def joined_blocks(X, members, result):
    """Blocks, two of them joined, for a result that has not converged; None if none can be."""
    n = X.shape[1]
    included = result.inclusion_probability[:n]
    deviation = np.sqrt(np.maximum(result.var[:n], np.finfo(float).tiny))
    moved = abs(result.gaussian_mean - result.mean)[:n] / deviation
    moved = np.minimum(moved, 1) * np.minimum(included / NEARLY_ZERO, 1)
    moved *= np.where(included < SURELY_ONE, np.minimum((1 - included) / NEARLY_ONE, 1), 0)
    return _joined(X, members, moved)


def sharing_blocks(X, members, result):
    """Blocks, two of them joined, that may share an effect; None if there are none.

    Features of either correlate, and whether one of them has an effect is open: that may depend on
    the other, of which the block of the first knows only the Gaussian.
    """
    included = result.inclusion_probability[: X.shape[1]]
    weights = np.where(included < OPEN, 0, included)
    limits = SHARING_CORRELATION, MAX_SHARING
    return _joined(X, members, weights, included > 1 - OPEN, *limits)


def _joined(X, members, weights, decided=None, threshold=0.0, largest=MAX_FEATURES):
    """Blocks, those two joined whose features correlate most by their weights; None if none are.

    Features that are both decided, or correlate by less than the threshold, do not count.
    """
    n = X.shape[1]
    units = np.argsort(-weights)[:MOST_MOVING]
    columns, roots = unit_columns(X[:, units]), np.sqrt(weights[units])
    scores = abs(columns.T @ columns)
    scores[scores < threshold] = 0
    scores *= np.outer(roots, roots)
    labels = labels_of(members, n)
    sizes, own = np.bincount(labels)[labels[units]], labels[units]
    if decided is not None:
        scores[np.logical_and.outer(decided[units], decided[units])] = 0
    scores[(own[:, None] == own) | (sizes[:, None] + sizes > largest)] = 0
    first, second = np.unravel_index(scores.argmax(), scores.shape)
    if not scores[first, second] > 0:
        return None
    labels[labels == own[second]] = own[first]
    return members_of(labels)
