"""Sums over the edges and triangles of sparse couplings, for checks of fixed points."""

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from fastmf.models._couplings import stored, with_entries

POWER_ITERATIONS = 50


def edges_of(couplings):
    """Rows, columns and values of the couplings above the diagonal."""
    rows, columns, values = stored(couplings)
    upper = rows < columns
    return rows[upper], columns[upper], values[upper]


def radius_exceeds_one(squares, var):
    """Whether the spectral radius of walks that do not turn back exceeds 1.

    Parameters
    ----------
    squares : csr_array of shape (n_units, n_units)
        Symmetric, with sorted indices.
    var : array of shape (n_units,)
    """
    rows, columns, values = stored(squares)
    n_trees = connected_components(squares, directed=False, return_labels=False)
    if len(values) // 2 == squares.shape[0] - n_trees:
        return False  # a forest: walks end at its leaves
    # Entries in the order of the transposed matrix.
    in_reverse = np.lexsort((rows, columns))
    weights = values * np.square(var)[rows]

    def after_step(x):
        new = weights * x
        return (np.bincount(columns, new, len(var))[columns] - new)[in_reverse]

    return grow(after_step, np.full(len(values), 1 / max(len(values), 1)))


def grow(after_step, x):
    """Whether positive numbers grow in the long run; `after_step` is linear in them."""
    growth = 0.0
    for _ in range(POWER_ITERATIONS):
        new = after_step(x)
        growth = new.sum()
        if not growth > 0:
            return False
        # The added multiple of x damps oscillations.
        x = new / growth + 0.1 * x
        x /= x.sum()
    return bool(growth > 1)


def triangles(couplings, var):
    """Sum over triangles of W_ij W_jl W_li v_i v_j v_l, for one row of variances.

    Edges point to the unit of the higher degree, so that a unit with many neighbours costs little.
    """
    rows, columns, values = stored(couplings)
    rank = np.empty(len(var), np.int64)
    rank[np.argsort(np.diff(couplings.indptr), kind="stable")] = np.arange(len(var))
    up = rank[rows] < rank[columns]
    parts = values[up], (rank[rows[up]], rank[columns[up]])
    upward = csr_array(parts, shape=couplings.shape)
    v = np.empty_like(var)
    v[rank] = var
    weighted = with_entries(upward, lambda w: w * v[upward.indices])
    total = 0.0
    step = max(1, len(var) >> 4)
    for first in range(0, len(var), step):  # the product of all rows may not fit into memory
        here = slice(first, first + step)
        paths = (weighted[here] @ upward).multiply(weighted[here])
        total += v[here] @ paths.sum(1)
    return float(total)
