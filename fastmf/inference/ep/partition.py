"""Blocks of correlated features, which expectation propagation should not treat one by one.

A block consists of a feature that seems to have an effect, its lead, and the features that
correlate with it. If a chain of correlated features were cut next to an effect instead, both blocks
would explain the effect in turn: fixed points are then hard to reach, and wrong.

Blocks that were chosen from the data change if the posterior shows the need:

- If updates do not converge, an effect most often fits into two blocks; after convergence, two
  blocks may share an effect, as each sees only a Gaussian approximation of the other. The two
  blocks with the most similar undecided features are joined, repeatedly.
- A block whose largest patterns have much of the weight has more effects than its patterns include:
  it is cut in two. The parts are not joined again.
"""

from math import comb
from typing import NamedTuple

import numpy as np
import scipy

from fastmf._common.stored_columns import StoredColumns, column_squares
from fastmf._threads.workers import one_blas_thread
from fastmf.inference.gaussian.blocks import labels_of, members_of

# Maximum sum of the squared sizes of the patterns of a block, which limits their size (11 of 11
# features, 4 of 20, but at least 3), and maximum number of features of a block that is chosen.
MAX_COST, MAX_FEATURES = 100_000, 60
# Smallest correlation with the lead of a block, and the largest probability that any pair of
# independent columns exceeds the threshold.
MIN_CORRELATION, CHANCE = 0.4, 0.2
# Number of leads whose correlations are computed together, and of features considered in joins.
LEADS_AT_A_TIME = 128
# Weight of the largest patterns above which a block is cut.
MAX_FULL = 0.2
# Smallest similarity of undecided features of two blocks that are joined.
MIN_LIKENESS = 0.1


class FoundBlocks(NamedTuple):
    """Blocks that were chosen from the data, and may be joined and cut."""

    labels: np.ndarray  # int, (n_features,)
    # Whether blocks that may share an effect are joined after convergence, and blocks are cut only
    # if their parts converge. False in a search.
    shares: bool = False


def most_included(c):
    """Return the number of features that patterns of a block of c features may include."""
    cost = 0
    for size in range(1, c + 1):
        cost += comb(c, size) * size * size
        if cost > MAX_COST and size > 3:
            return size - 1
    return c


def members_with(blocks, n_features):
    """Return the features of each block of two or more, from labels, `FoundBlocks` or None."""
    if blocks is None:
        return []
    if not isinstance(blocks, FoundBlocks):
        return members_of(checked_labels(blocks, n_features))
    return members_of(blocks.labels)


def checked_labels(blocks, n_features):
    """Check labels of the blocks of features, and return them as an array."""
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


def one_block(X):
    """Return one block of all features that are not constant; None if not all patterns fit.

    With Gaussian noise, the posterior is then exact.
    """
    if X.shape[1] > most_included(X.shape[1]):
        return None
    present = np.flatnonzero(column_squares(unit_columns(X)) > 0)
    return [present] if len(present) > 1 else []


def correlated_blocks(X, scores=None, n_rows=None, free=None):
    """Choose blocks of strongly correlated features, among the free ones if given.

    The feature of largest score leads a block of the free features that correlate most with it, and
    so on with the features that remain. There are at most n_rows leads.
    """
    p, n, columns = X.shape[1], n_rows or len(X), unit_columns(X)
    free = np.ones(p, bool) if free is None else free.copy()
    # A pair of independent columns exceeds t with probability (1 - t^2)^((n - 2) / 2).
    by_chance = np.sqrt(1 - (CHANCE / max(p * (p - 1) / 2, 1)) ** (2 / max(n - 2, 1)))
    threshold = max(MIN_CORRELATION, by_chance)
    # Single precision takes half the time; it may decide differently only at the threshold.
    columns = columns if isinstance(columns, StoredColumns) else columns.astype(np.float32)
    order = np.arange(p) if scores is None else np.argsort(-np.asarray(scores), kind="stable")
    blocks, n_leads = [], min(int(n), p)
    while n_leads > 0 and len(order := order[free[order]]):
        leads = order[: min(LEADS_AT_A_TIME, n_leads)]
        with one_blas_thread(len(X)):  # waiting threads of BLAS would slow the next lines down
            products = abs(columns.T @ columns[:, leads]).T.copy()
        for lead, correlation in zip(leads, products, strict=True):
            if not free[lead]:
                continue
            free[lead], n_leads = False, n_leads - 1
            linked = np.flatnonzero(correlation > threshold)
            linked = linked[free[linked]]
            if len(linked):
                nearest = np.argsort(-correlation[linked], kind="stable")[: MAX_FEATURES - 1]
                free[linked[nearest]] = False
                blocks.append(np.sort(np.append(lead, linked[nearest])))
    return blocks


def unit_columns(X):
    """Scale columns to length 1 (0 if they are constant 0), in double precision."""
    if isinstance(X, StoredColumns):
        length = np.sqrt(X.squares())
        return X.times(1 / np.where(length > 0, length, 1.0))
    largest = abs(X).max(axis=0).astype(np.float64)
    columns = X / np.where(largest > 0, largest, 1.0)
    length = np.sqrt(np.einsum("ij,ij->j", columns, columns))
    return columns / np.where(length > 0, length, 1.0)


def full_blocks(result):
    """Return the blocks of a result whose largest patterns have much of the weight."""
    if result.block_sites is None:
        return []
    pairs = zip(result.block_sites, result.full_probability, strict=True)
    return [units for (units, _), full in pairs if full > MAX_FULL]


def cut_blocks(X, members, result):
    """Cut full blocks in two, and return all blocks; None if no block is full."""
    full = {int(units[0]) for units in full_blocks(result)}
    if not full:
        return None
    parts = []
    for units in members:
        parts += _halves(X, np.sort(units)) if int(np.min(units)) in full else [units]
    return [units for units in parts if len(units) > 1]


def _halves(X, units):
    """Split features into two clusters, of any sizes, by complete linkage."""
    columns = unit_columns(X[:, units])
    distance = 1 - abs(columns.T @ columns)
    distance = np.clip(distance[np.triu_indices(len(units), 1)], 0, 1)
    tree = scipy.cluster.hierarchy.linkage(distance, "complete")
    first = scipy.cluster.hierarchy.fcluster(tree, t=2, criterion="maxclust") == 1
    # Equal columns may all be in one cluster.
    first = np.arange(len(units)) < len(units) // 2 if first.all() else first
    return [units[first], units[~first]]


def joined_blocks(X, members, result):
    """Join the two blocks with the most similar undecided features; None if no two are similar.

    Similarity is |correlation| times the roots of 4 p (1 - p), with p the probabilities of
    inclusion; without convergence, features are also weighted by their last change.
    """
    n = X.shape[1]
    included, threshold = result.inclusion_probability[:n], MIN_LIKENESS
    weights = 4 * included * (1 - included)
    if not result.converged:
        deviation = np.sqrt(np.maximum(result.var[:n], np.finfo(float).tiny))
        moved = abs(result.gaussian_mean - result.mean)[:n] / deviation
        weights, threshold = weights * np.minimum(moved, 1), 0.0
    units = np.argsort(-weights, kind="stable")[:LEADS_AT_A_TIME]
    columns, roots = unit_columns(X[:, units]), np.sqrt(weights[units])
    likeness = abs(columns.T @ columns) * np.outer(roots, roots)
    labels = labels_of(members, n)
    blocks = labels[units]
    sizes = np.bincount(labels)[blocks]
    apart = (blocks[:, None] != blocks) & (sizes[:, None] + sizes <= MAX_FEATURES)
    likeness = np.where(apart, likeness, 0.0)
    first, second = np.unravel_index(likeness.argmax(), likeness.shape)
    if not likeness[first, second] > threshold:
        return None
    labels[labels == blocks[second]] = blocks[first]
    return members_of(labels)
