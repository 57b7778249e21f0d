"""Blocks of correlated features, which expectation propagation should not treat one by one.

A block has a feature that seems to have an effect, its lead, in the middle, and the features that
correlate with it. Where a chain of correlated features is cut next to an effect instead, both
blocks take the effect in turn: fixed points are then hard to find, and wrong.

Blocks that were found in the data change where the posterior shows that they must:

- Where updates do not converge, an effect most often has a place in two blocks; at the end, two
  blocks may share an effect, as each knows only the Gaussian of the other. The two blocks whose
  undecided features are most alike become one, and so on.
- A block whose largest patterns hold much of the weight has more effects than are summed over: it
  is cut in two. Parts are not joined again.
"""

from math import comb
from typing import NamedTuple

import numpy as np
import scipy

from fastmf._common.stored_columns import StoredColumns, column_squares
from fastmf._threads.workers import one_blas_thread
from fastmf.inference.gaussian.blocks import labels_of, members_of

# Sum of the squared sizes of the patterns of a block, which limits their size (to all patterns of
# 11 features, four of 20, but never below three), and features of the largest block that is found.
MAX_COST, MAX_FEATURES = 100_000, 60
# Smallest correlation with the lead of a block, which independent columns exceed with this
# probability at most.
MIN_CORRELATION, CHANCE = 0.4, 0.2
# Leads whose correlations are computed at a time, and features whose blocks may be joined.
LEADS_AT_A_TIME = 128
# Largest weight of the largest patterns of a block.
MAX_FULL = 0.2
# Smallest likeness of undecided features of two blocks that share an effect.
MIN_LIKENESS = 0.1


class FoundBlocks(NamedTuple):
    """Blocks that were found in the data, and may be joined and cut."""

    labels: np.ndarray  # int, (n_features,)
    # Whether two blocks that may share an effect are joined at the end, blocks that do not converge
    # by their last state, and blocks cut only if their parts converge: not in a search.
    shares: bool = False


def most_included(c):
    """Number of features that patterns of a block of c features may include."""
    cost = 0
    for size in range(1, c + 1):
        cost += comb(c, size) * size * size
        if cost > MAX_COST and size > 3:
            return size - 1
    return c


def members_with(blocks, n_features):
    """The features of each block of two or more, given by labels, `FoundBlocks` or None."""
    if blocks is None:
        return []
    if not isinstance(blocks, FoundBlocks):
        return members_of(checked_labels(blocks, n_features))
    return members_of(blocks.labels)


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


def one_block(X):
    """One block of all features that are not constant; None if it would not have all patterns.

    Where noise is Gaussian, the posterior is then exact.
    """
    if X.shape[1] > most_included(X.shape[1]):
        return None
    present = np.flatnonzero(column_squares(unit_columns(X)) > 0)
    return [present] if len(present) > 1 else []


def correlated_blocks(X, scores=None, n_rows=None, free=None):
    """Blocks of features, or of the free ones, that are strongly correlated.

    The feature of largest score leads a block of the free features that correlate most with it, and
    so on with the features that remain. There are no more leads than rows.
    """
    p, n, columns = X.shape[1], n_rows or len(X), unit_columns(X)
    free = np.ones(p, bool) if free is None else free.copy()
    # A pair of independent columns exceeds t with probability (1 - t^2)^((n - 2) / 2).
    by_chance = np.sqrt(1 - (CHANCE / max(p * (p - 1) / 2, 1)) ** (2 / max(n - 2, 1)))
    threshold = max(MIN_CORRELATION, by_chance)
    # A pair at the threshold may be in or out: in single precision this takes half the time.
    columns = columns if isinstance(columns, StoredColumns) else columns.astype(np.float32)
    order = np.arange(p) if scores is None else np.argsort(-np.asarray(scores), kind="stable")
    blocks, n_leads = [], min(int(n), p)
    while n_leads > 0 and len(order := order[free[order]]):
        leads = order[: min(LEADS_AT_A_TIME, n_leads)]
        with one_blas_thread(len(X)):  # threads of BLAS would spin into what follows
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
    """Columns of length 1, or 0 if they are constant 0, in double precision."""
    if isinstance(X, StoredColumns):
        length = np.sqrt(X.squares())
        return X.times(1 / np.where(length > 0, length, 1.0))
    largest = abs(X).max(axis=0).astype(np.float64)
    columns = X / np.where(largest > 0, largest, 1.0)
    length = np.sqrt(np.einsum("ij,ij->j", columns, columns))
    return columns / np.where(length > 0, length, 1.0)


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
    parts = []
    for units in members:
        parts += _halves(X, np.sort(units)) if int(np.min(units)) in full else [units]
    return [units for units in parts if len(units) > 1]


def _halves(X, units):
    """Two clusters of some features by complete linkage, of any sizes."""
    columns = unit_columns(X[:, units])
    distance = 1 - abs(columns.T @ columns)
    distance = np.clip(distance[np.triu_indices(len(units), 1)], 0, 1)
    tree = scipy.cluster.hierarchy.linkage(distance, "complete")
    first = scipy.cluster.hierarchy.fcluster(tree, t=2, criterion="maxclust") == 1
    # Equal columns may not be told apart.
    first = np.arange(len(units)) < len(units) // 2 if first.all() else first
    return [units[first], units[~first]]


def joined_blocks(X, members, result):
    """Blocks, two of them joined, those of the undecided features most alike; None if none are.

    Likeness is |correlation| times the roots of 4 p (1 - p), with p the probabilities of inclusion;
    without convergence only features that move count, by how far they do.
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
