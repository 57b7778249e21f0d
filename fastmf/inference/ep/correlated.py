"""Blocks of correlated features, which expectation propagation should not treat one by one."""

import numpy as np
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpstrf

from fastmf._common.stored_columns import StoredColumns

# Features of a block correlate by more than this, and by so many standard errors more than the
# largest correlation of independent columns, up to a limit.
MIN_BLOCK_CORRELATION, STANDARD_ERRORS, MAX_THRESHOLD = 0.35, 0.5, 0.95
# Features beyond which only pairs above that limit are in blocks: along chains of correlated
# features effects cross the borders of blocks, and of thousands a fit would take minutes.
MAX_MODERATE = 1200
# Features of the largest block; larger ones are cut where they correlate least.
MAX_FEATURES = 60
# Columns whose correlations with all others are computed at a time.
COLUMNS_AT_A_TIME = 512
# Part of a column, squared, that others do not explain where it depends on them; coefficients that
# count; and numbers of columns among which all dependences are sought.
DEPENDENCE, MIN_COEFFICIENT, MAX_DEPENDENT = 1e-10, 1e-6, 2000


def correlated_blocks(X, n_rows=None):
    """Blocks of features that are strongly correlated, or linearly dependent.

    Parameters
    ----------
    X : array of shape (n_samples, n_features)
        Correlations are cosines of columns: center them first where there is an intercept.
    n_rows : float, optional
        How many rows the rows stand for.

    Returns
    -------
    list of int array
        The features of each block of two or more, at most `MAX_FEATURES`.

    Notes
    -----
    Complete linkage: all pairs of a block correlate by more than 0.35 (more where there are so few
    samples that independent columns might), and larger blocks are cut where correlations are
    smallest. Of more than 1200 features blocks are of near copies, correlated by more than 0.95.
    Then columns that are linear combinations of others join them, if the block stays
    small enough; these are sought among all, or with more columns than rows among those that are
    linked by such correlations. The cost is that of X'X; small correlations are not kept.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    n, p = n_rows or len(X), X.shape[1]
    columns = unit_columns(X)
    by_chance = np.sqrt(2 * np.log(max(p * (p - 1) / 2, 1))) + STANDARD_ERRORS
    threshold = max(MIN_BLOCK_CORRELATION, min(by_chance / np.sqrt(n), MAX_THRESHOLD))
    threshold = threshold if p <= MAX_MODERATE else MAX_THRESHOLD
    # A pair at the threshold may be in or out: in single precision this takes half the time.
    stored, pairs = isinstance(X, StoredColumns), [np.empty((2, 0), np.int64)]
    single = columns if stored else columns.astype(np.float32)
    for start in range(0, p, COLUMNS_AT_A_TIME):
        own = single[:, start : start + COLUMNS_AT_A_TIME]
        products = (single.T @ own)[start:] if stored else single[:, start:].T @ own
        np.abs(products, out=products)
        other, own = np.divmod(np.flatnonzero(products > threshold), products.shape[1])
        pairs.append(np.stack([own, other])[:, own < other] + start)
    own, other = np.concatenate(pairs, axis=1)
    graph = coo_array((np.ones(len(own), bool), (own, other)), (p, p))
    _, label = connected_components(graph, directed=False)
    order = np.argsort(label, kind="stable")
    components = np.split(order, np.flatnonzero(np.diff(label[order])) + 1)
    components = [np.sort(units) for units in components if len(units) > 1]
    blocks = [block for units in components for block in _clusters(columns, units, threshold)]
    few = min(n - 1, MAX_DEPENDENT)
    for units in [np.arange(p)] if p <= few else components:
        # More columns than rows all depend on each other.
        if len(units) <= few:
            blocks = _joined(blocks, _dependences(columns[:, units], units))
    return [block for block in blocks if len(block) > 1]


def cut(X, block):
    """Two blocks in the place of one, of features that correlate most; singles are left out.

    Parameters
    ----------
    X : array of shape (n_samples, n_features)
    block : int array

    Returns
    -------
    list of int array
    """
    columns = unit_columns(X[:, block])
    halves = _halves(columns, np.arange(len(block)))
    return [block[half] for half in halves if len(half) > 1]


def unit_columns(X):
    """Columns of length 1, or 0 if they are constant 0, in double precision."""
    if isinstance(X, StoredColumns):
        length = np.sqrt(X.squares())
        return X.times(1 / np.where(length > 0, length, 1.0))
    largest = abs(X).max(axis=0).astype(np.float64)
    columns = X / np.where(largest > 0, largest, 1.0)
    length = np.sqrt(np.einsum("ij,ij->j", columns, columns))
    return columns / np.where(length > 0, length, 1.0)


def _tree(columns, units):
    """Complete linkage of the features, by 1 - |correlation|."""
    from scipy.cluster.hierarchy import linkage

    distance = 1 - abs(columns[:, units].T @ columns[:, units])
    return linkage(np.clip(distance[np.triu_indices(len(units), 1)], 0, 1), "complete")


def _parts(tree, units, **criterion):
    """The clusters of a tree."""
    from scipy.cluster.hierarchy import fcluster

    label = fcluster(tree, **criterion)
    return [units[label == k] for k in np.unique(label)]


def _clusters(columns, units, threshold):
    """Clusters of a component, none of them too large."""
    tree = _tree(columns, units)
    parts, found = _parts(tree, units, t=1 - threshold, criterion="distance"), []
    while parts:
        part = parts.pop()
        if len(part) > MAX_FEATURES:
            parts += _halves(columns, part)
        else:
            found.append(part)
    return found


def _halves(columns, units):
    """Two clusters of a cluster, of any sizes."""
    parts = _parts(_tree(columns, units), units, t=2, criterion="maxclust")
    # Equal columns may not be told apart.
    return parts if len(parts) == 2 else [units[: len(units) // 2], units[len(units) // 2 :]]


def _dependences(columns, units):
    """Features of which one is a linear combination of the others, for each such combination."""
    gram = columns.T @ columns
    exist = gram.diagonal() > 0
    gram, units = gram[exist][:, exist], units[exist]
    if not len(units):
        return []
    upper, pivots, rank, _ = dpstrf(gram, tol=DEPENDENCE)
    pivots = pivots - 1
    # Where most columns depend on the others there are too few rows, not too many columns.
    if rank == len(units) or rank < len(units) / 2:
        return []
    upper = np.triu(upper)
    coefficients = solve_triangular(upper[:rank, :rank], upper[:rank, rank:])
    return [
        units[np.append(pivots[:rank][abs(own) > MIN_COEFFICIENT], dependent)]
        for own, dependent in zip(coefficients.T, pivots[rank:], strict=True)
    ]


def _joined(blocks, dependences):
    """Blocks joined with those that share a dependence, where that is not too large."""
    for features in dependences:
        touched = [block for block in blocks if np.isin(block, features).any()]
        whole = np.unique(np.concatenate([features, *touched]))
        if len(whole) <= MAX_FEATURES:
            blocks = [block for block in blocks if not np.isin(block, features).any()] + [whole]
    return blocks
