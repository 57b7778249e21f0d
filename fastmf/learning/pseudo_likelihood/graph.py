"""User-defined graphs: the pairs of units that may be coupled."""

from collections.abc import Collection

import numpy as np
from scipy.sparse import coo_array, issparse

from fastmf._common.names import check_order

_EXPECTED = (
    "graph must be an adjacency matrix of shape ({0}, {0}), pairs of units, or a graph of "
    "networkx; got {1}."
)


def edges_of(graph, n_units, names=None):
    """Return the pairs of units that a graph couples, (n_edges, 2)."""
    if issparse(graph) or _shape(graph) == (n_units, n_units):
        check_order("graph", [graph], names, "X")
        first, second = _of_matrix(graph, n_units)
    else:
        pairs = list(graph.edges()) if hasattr(graph, "nodes") else graph
        # An iterator would be empty in the next fit.
        if isinstance(pairs, str) or not isinstance(pairs, Collection):
            raise TypeError(_EXPECTED.format(n_units, type(graph).__name__))
        first, second = _of_pairs(list(pairs), n_units, names)
    if (first == second).any():
        unit = int(first[first == second][0])
        raise ValueError(f"graph must couple different units, got unit {unit} with itself.")
    edges = np.stack([np.minimum(first, second), np.maximum(first, second)], 1)
    return np.unique(edges, axis=0).astype(np.int64).reshape(-1, 2)


def _shape(given):
    """Return the shape of an object; None if its parts have different lengths."""
    try:
        return np.shape(given)
    except ValueError:
        return None


def _of_matrix(graph, n_units):
    matrix = coo_array(graph)
    if matrix.shape != (n_units, n_units):
        raise ValueError(
            f"graph must be an adjacency matrix of shape ({n_units}, {n_units}), got "
            f"{matrix.shape}."
        )
    adjacent = matrix.tocsr() != 0
    if (adjacent != adjacent.T).nnz or np.isnan(matrix.data).any():
        raise ValueError("graph must be a symmetric adjacency matrix without NaN.")
    return adjacent.nonzero()


def _of_pairs(pairs, n_units, names):
    by_name = {} if names is None else {str(name): k for k, name in enumerate(names)}
    units = np.zeros((len(pairs), 2), np.int64)
    for k, pair in enumerate(pairs):
        if isinstance(pair, str) or _shape(pair) != (2,):
            raise ValueError(_EXPECTED.format(n_units, f"{pair!r:.60} for a pair"))
        for side, unit in enumerate(pair):
            number = by_name.get(str(unit)) if isinstance(unit, str) else unit
            is_integer = isinstance(number, int | np.integer) and not isinstance(number, bool)
            if not is_integer or not 0 <= number < n_units:
                raise ValueError(
                    f"graph must name units by numbers from 0 to {n_units - 1}"
                    + (", or by names of columns" if by_name else "")
                    + f"; got {unit!r:.60}."
                )
            units[k, side] = number
    return units.T


def coupled_units(edges, n_units):
    """Return a mask of the coupled pairs, (n_units, n_units); all pairs if `edges` is None."""
    coupled = np.full((n_units, n_units), edges is None)
    if edges is not None:
        coupled[tuple(edges.T)] = coupled[tuple(edges.T[::-1])] = True
    np.fill_diagonal(coupled, False)
    return coupled
