"""Spanning trees of a graph: edge probabilities of tree-reweighted belief propagation.

Where a graph has several components, its spanning forests take the place of trees.
"""

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree

# Up to so many vertices the probabilities of uniform spanning trees are computed exactly.
MAX_DENSE_VERTICES = 2000
# Trees that are chosen for larger graphs, if they have all edges; and at most.
N_TREES, MAX_TREES = 8, 4096


def edge_probabilities(edges, n_vertices):
    """Probability of each edge in a random spanning tree, above 0 for all.

    Of uniform spanning trees it is the effective resistance of the edge (Kirchhoff). Larger graphs
    have trees that prefer edges which few of those before have, until all edges occur.

    Parameters
    ----------
    edges : int array of shape (n_edges, 2)
        First vertex smaller than the second, in lexicographic order.
    n_vertices : int

    Returns
    -------
    array of shape (n_edges,)
        Probabilities of edges in spanning trees; 1 for edges that are in no cycle.
    """
    n_components, component = _components(edges, n_vertices)
    if len(edges) == n_vertices - n_components:
        return np.ones(len(edges))
    if n_vertices <= MAX_DENSE_VERTICES:
        return _resistances(edges, n_vertices, component)
    counts, rng, n_trees = np.zeros(len(edges)), np.random.default_rng(0), 0
    while n_trees < N_TREES or (n_trees < MAX_TREES and not counts.all()):
        counts += spanning_tree(edges, n_vertices, -counts - rng.random(len(edges)))
        n_trees += 1
    if not counts.all():
        raise ValueError(
            f"tree-reweighted belief propagation found no {MAX_TREES} spanning trees that have all "
            f"of the {len(edges)} edges; take algorithm='sum'."
        )
    return counts / n_trees


def spanning_tree(edges, n_vertices, weights):
    """The spanning tree of largest weight: 1 for its edges, 0 for others.

    Parameters
    ----------
    edges, n_vertices
        As for `edge_probabilities`.
    weights : array of shape (n_edges,)

    Returns
    -------
    array of shape (n_edges,)
    """
    # Entries that are 0 are no edges.
    lengths = 1 + weights.max(initial=0.0) - weights
    graph = csr_array((lengths, edges.T), shape=(n_vertices, n_vertices))
    tree = minimum_spanning_tree(graph).tocoo()
    chosen = np.zeros(len(edges))
    numbers = edges[:, 0] * n_vertices + edges[:, 1]
    row, column = tree.coords if hasattr(tree, "coords") else (tree.row, tree.col)
    chosen[np.searchsorted(numbers, row.astype(np.int64) * n_vertices + column)] = 1
    return chosen


def _components(edges, n_vertices):
    ones = np.ones(len(edges))
    graph = csr_array((ones, edges.T), shape=(n_vertices, n_vertices))
    return connected_components(graph, directed=False)


def _resistances(edges, n_vertices, component):
    """Effective resistance of each edge, by the inverse of the Laplacian."""
    laplacian = np.zeros((n_vertices, n_vertices))
    first, second = edges.T
    laplacian[first, second] = laplacian[second, first] = -1
    laplacian[np.diag_indices(n_vertices)] = -laplacian.sum(1)
    # One on each pair of a component: the null space of the Laplacian, and no other change.
    inverse = np.linalg.inv(laplacian + (component[:, None] == component))
    own = inverse.diagonal()
    return np.clip(own[first] + own[second] - 2 * inverse[first, second], 1e-12, 1)


def mutual_informations(pairs, first_value, sizes):
    """Mutual information of the two units of each edge, averaged over rows.

    Parameters
    ----------
    pairs : array of shape (n_rows, n_values)
        Probabilities of pairs of states, table after table.
    first_value : int array of shape (n_edges + 1,)
    sizes : int array of shape (n_edges, 2)
        Numbers of states.

    Returns
    -------
    array of shape (n_edges,)
    """
    edge = np.repeat(np.arange(len(sizes)), np.diff(first_value))
    a, b = np.divmod(np.arange(first_value[-1]) - first_value[edge], sizes[edge, 1])
    ends = np.cumsum(sizes, axis=0)
    starts, total = ends - sizes, np.zeros(len(sizes))
    for row in pairs:
        left = np.bincount(starts[edge, 0] + a, row, ends[-1, 0])
        right = np.bincount(starts[edge, 1] + b, row, ends[-1, 1])
        independent = left[starts[edge, 0] + a] * right[starts[edge, 1] + b]
        positive = row > 0
        terms = row[positive] * np.log(row[positive] / independent[positive])
        total += np.bincount(edge[positive], terms, len(sizes))
    return total / len(pairs)
