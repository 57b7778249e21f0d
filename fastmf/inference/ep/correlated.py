"""Blocks of correlated features, which expectation propagation should not treat one by one.

A block has a feature that seems to have an effect, its lead, in the middle, and the features that
correlate with it. Where a chain of correlated features is cut next to an effect instead, both
blocks take the effect in turn: fixed points are then hard to find, and wrong.
"""

import numpy as np
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpstrf

from fastmf._common.stored_columns import StoredColumns

# Features correlate with their lead by more than this, and by this number of standard errors more
# than the largest correlation of independent columns, up to a limit.
MIN_BLOCK_CORRELATION, STANDARD_ERRORS, MAX_THRESHOLD = 0.4, 0.5, 0.95
# Features of the largest block; where there are more, those beyond the largest gap of correlations
# are left out, but no more of the largest block than this fraction.
MAX_FEATURES, SMALLEST_PART = 60, 0.5
# Leads whose correlations are computed at a time; and the most leads for each row, which cost as
# much as ten iterations, but not fewer than the last number in all.
LEADS_AT_A_TIME, LEADS_PER_ROW, MIN_LEADS = 128, 10, 2000
# Squared part of a column beyond its projection on columns on which it depends; coefficients that
# count; and numbers of columns among which all dependences are sought.
DEPENDENCE, MIN_COEFFICIENT, MAX_DEPENDENT = 1e-10, 1e-6, 2000
# Features that are one block, whether they correlate or not, where noise is Gaussian: it has all
# patterns (`fastmf.inference.ep.block_sites`), so that the posterior is exact.
FEATURES_OF_ONE_BLOCK = 11


def correlated_blocks(X, scores=None, n_rows=None, *, few_are_one=False):
    """Blocks of features that are strongly correlated, or linearly dependent.

    Clumps: the feature of largest score and those that are in no block yet and correlate with it by
    more than 0.4 (more where independent columns of this length might), and so on with the
    remaining features, up to 2000 leads or ten times the rows. Then linearly dependent columns
    share a block, if it stays small enough; dependences are sought among all columns, or with more
    columns than rows among columns that are linked by correlations. The cost is the products of
    leads and features.
    """
    n, p = n_rows or len(X), X.shape[1]
    columns = unit_columns(X)
    if few_are_one and p <= FEATURES_OF_ONE_BLOCK:
        present = np.flatnonzero(_are_present(columns))
        return [present] if len(present) > 1 else []
    by_chance = np.sqrt(2 * np.log(max(p * (p - 1) / 2, 1))) + STANDARD_ERRORS
    threshold = max(MIN_BLOCK_CORRELATION, min(by_chance / np.sqrt(n), MAX_THRESHOLD))
    # A pair at the threshold may be in or out: in single precision this takes half the time.
    stored = isinstance(columns, StoredColumns)
    single = columns if stored else columns.astype(np.float32)
    blocks, links = [], np.empty((2, 0), np.int64)
    n_leads = max(MIN_LEADS, LEADS_PER_ROW * len(columns))
    # Stored columns would have to be converted, and some of them kept, for pairs that come first.
    if not callable(scores) or stored or p > n_leads or _any_pair(single, threshold):
        scores = scores() if callable(scores) else scores
        order = np.arange(p) if scores is None else np.argsort(-np.asarray(scores), kind="stable")
        blocks, links = _clumps(single, order, threshold, n_leads)
    most = min(n - 1, MAX_DEPENDENT)
    for units in [np.arange(p)] if p <= most else _components(links, p):
        # More columns than rows all depend on each other.
        if len(units) <= most:
            blocks = _joined(blocks, _dependences(columns[:, units], units))
    return [block for block in blocks if len(block) > 1]


def _are_present(columns):
    """Which of some unit columns are not zero."""
    if isinstance(columns, StoredColumns):
        return columns.squares() > 0
    return columns.any(axis=0)


def _any_pair(columns, threshold):
    """Whether any two of these columns correlate by more than the threshold."""
    for start in range(0, columns.shape[1], LEADS_AT_A_TIME):
        following = columns[:, start:]
        products = (following.T @ following[:, :LEADS_AT_A_TIME]).T
        products[np.tril_indices(len(products))] = 0
        if max(products.max(), -products.min()) > threshold:
            return True
    return False


def _clumps(columns, order, threshold, n_left):
    """Blocks about leads, in this order, and all pairs of a lead and a feature that correlate."""
    p, free = columns.shape[1], np.ones(columns.shape[1], bool)
    blocks, links = [], [np.empty((2, 0), np.int64)]
    while n_left > 0 and len(order := order[free[order]]):
        leads, order = order[: min(LEADS_AT_A_TIME, n_left)], order[LEADS_AT_A_TIME:]
        n_left -= len(leads)
        products = abs(columns.T @ columns[:, leads]).T
        row, feature = np.divmod(np.flatnonzero(products > threshold), p)
        ends = np.searchsorted(row, np.arange(len(leads) + 1))
        for k, lead in enumerate(leads):
            linked = feature[ends[k] : ends[k + 1]]
            if not free[lead] or len(linked) < 2:
                continue
            links.append(np.stack([np.full(len(linked), lead), linked]))
            blocks.append(_nearest(linked[free[linked]], products[k], lead))
            free[blocks[-1]] = False
        free[leads] = False
    return blocks, np.concatenate(links, axis=1)


def _nearest(units, correlations, lead):
    """The units that correlate most with the lead, few enough; ascending."""
    if len(units) > MAX_FEATURES:
        units = np.append(lead, units[units != lead])
        values = np.append(2.0, correlations[units[1:]])
        order = np.argsort(-values, kind="stable")
        fewest = int(SMALLEST_PART * MAX_FEATURES)
        falls = -np.diff(values[order[fewest - 1 : MAX_FEATURES + 1]])
        last = len(falls) - 1 - np.argmax(falls[::-1])  # the last of equal ones
        units = units[order[: fewest + last]]
    return np.sort(units)


def _components(links, n):
    """Units that are linked by pairs, together."""
    if not links.size:
        return []
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    graph = coo_array((np.ones(links.shape[1], bool), tuple(links)), (n, n))
    _, label = connected_components(graph, directed=False)
    order = np.argsort(label, kind="stable")
    components = np.split(order, np.flatnonzero(np.diff(label[order])) + 1)
    return [np.sort(units) for units in components if len(units) > 1]


def cut(X, block):
    """Two blocks in the place of one, of features that correlate most; singles are left out."""
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


def _halves(columns, units):
    """Two clusters of some features by complete linkage, of any sizes."""
    from scipy.cluster.hierarchy import fcluster, linkage

    distance = 1 - abs(columns[:, units].T @ columns[:, units])
    tree = linkage(np.clip(distance[np.triu_indices(len(units), 1)], 0, 1), "complete")
    label = fcluster(tree, t=2, criterion="maxclust")
    parts = [units[label == k] for k in np.unique(label)]
    # Equal columns may not be told apart.
    return parts if len(parts) == 2 else [units[: len(units) // 2], units[len(units) // 2 :]]


def _dependences(columns, units):
    """Linearly dependent features, for each linear combination of columns that vanishes."""
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
        units[np.append(pivots[:rank][abs(column) > MIN_COEFFICIENT], dependent)]
        for column, dependent in zip(coefficients.T, pivots[rank:], strict=True)
    ]


def _joined(blocks, dependences):
    """Blocks joined with those that share a dependence, where that is not too large."""
    for features in dependences:
        touched = [block for block in blocks if np.isin(block, features).any()]
        joined = np.unique(np.concatenate([features, *touched]))
        if len(joined) <= MAX_FEATURES:
            blocks = [block for block in blocks if not np.isin(block, features).any()] + [joined]
    return blocks
