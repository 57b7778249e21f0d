"""Which features share a block: as found in the data, and changed where the posterior shows it.

Blocks that were found in the data change by one rule, as long as it applies:

- Where parallel updates do not converge, an effect most often has a place in two blocks, each of
  which takes it for the other's: the blocks of the two features that move most, weighted by their
  correlation, become one.
- A block whose largest patterns hold much of the weight has more effects than are summed
  over: it is cut in two. Parts are not joined again.
- At the end, correlated features of two blocks may share an effect that is open, and each block
  knows only the Gaussian of the other: the two blocks are joined, once.
"""

from typing import NamedTuple

import numpy as np

from fastmf._threads.workers import one_blas_thread
from fastmf.inference.ep.correlated import MAX_FEATURES, correlated_blocks, cut, unit_columns
from fastmf.inference.gaussian.blocks import labels_of, members_of

# Largest weight of the largest patterns of a block.
MAX_FULL = 0.2
# Features that move most, whose correlations are computed, and how often blocks are joined.
MOST_MOVING, MAX_JOINS = 64, 8
# Probabilities of inclusion this near to 0 and to 1 leave nothing to decide, and of a feature that
# is never zero, such as a constant column, but for rounding.
NEARLY_ZERO, NEARLY_ONE, SURELY_ONE = 0.1, 1e-3, 1 - 1e-9
# Smallest correlation of features that share an effect, and smallest probabilities of having one
# and none where that is open; patterns of larger blocks take three times as long as a fit.
SHARING_CORRELATION, OPEN, MAX_SHARING = 0.3, 0.05, 40


class FoundBlocks(NamedTuple):
    """Blocks that were found in the data, and may be joined and cut."""

    labels: np.ndarray  # int, (n_features,)
    max_joins: int = MAX_JOINS  # number of times that two blocks are joined without convergence
    shares: bool = False  # whether two blocks that may share an effect are joined at the end
    lead: object = None  # result with single sites, from which a solve without `init` starts


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
    """The blocks of a result whose largest patterns hold much of the weight."""
    if result.block_sites is None:
        return []
    pairs = zip(result.block_sites, result.full_probability, strict=True)
    return [units for (units, _), full in pairs if full > MAX_FULL]


def cut_blocks(X, members, result):
    """Blocks, full ones cut in two; None if no block is full."""
    full = {int(units[0]) for units in full_blocks(result)}
    if not full:
        return None
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
    return _joined(X, members, moved, np.zeros(n, bool), 0.0, MAX_FEATURES)


def sharing_blocks(X, members, result):
    """Blocks, two of them joined, that may share an effect; None if there are none."""
    included = result.inclusion_probability[: X.shape[1]]
    weights = np.where((included < OPEN) | (included > SURELY_ONE), 0, included)
    return _joined(X, members, weights, included > 1 - OPEN, SHARING_CORRELATION, MAX_SHARING)


def _joined(X, members, weights, decided, threshold, largest):
    """Blocks, those two joined whose features correlate most by their weights; None if none are.

    Features that are both decided, or correlate by less than the threshold, do not count.
    """
    n = X.shape[1]
    units = np.argsort(-weights)[:MOST_MOVING]
    columns, roots = unit_columns(X[:, units]), np.sqrt(weights[units])
    correlations = abs(columns.T @ columns)
    labels = labels_of(members, n)
    of_units = labels[units]
    sizes = np.bincount(labels)[of_units]
    excluded = (of_units[:, None] == of_units) | (sizes[:, None] + sizes > largest)
    excluded |= (correlations < threshold) | np.logical_and.outer(decided[units], decided[units])
    scores = np.where(excluded, 0, correlations * np.outer(roots, roots))
    first, second = np.unravel_index(scores.argmax(), scores.shape)
    if not scores[first, second] > 0:
        return None
    labels[labels == of_units[second]] = of_units[first]
    return members_of(labels)
