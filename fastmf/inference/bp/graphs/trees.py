"""Random spanning trees of a graph, for tree-reweighted belief propagation.

Trees have a root, and all other units a parent. Where a graph has several components, its spanning
forests take the place of trees.
"""

from typing import NamedTuple

import numpy as np

from fastmf.inference.bp.graphs.layout import adjacency, breadth_first, components

# Vertices up to which trees are uniform, and random orders of the vertices of larger graphs.
MAX_DENSE, N_ORDERS = 2000, 8


class Trees(NamedTuple):
    """Probabilities of random spanning trees."""

    child: np.ndarray  # (n_edges, 2): that the first, or second, unit is the child of the other one
    root: np.ndarray  # (n_vertices,)

    @property
    def probability(self):
        """Probability of each edge in a tree, (n_edges,)."""
        return self.child.sum(1)


def random_trees(edges, n_vertices):
    """Random `Trees` in which the probability of every edge is above 0.

    Uniform spanning trees have an edge with its effective resistance (Kirchhoff). In larger graphs,
    but for complete ones, vertices choose their parents among the vertices that come before them in
    one of `N_ORDERS` random orders.
    """
    component, roots = components(adjacency(edges, n_vertices))
    if len(edges) == n_vertices - len(roots):  # a forest
        return _ordered(edges, n_vertices, component, np.arange(n_vertices))
    if n_vertices <= MAX_DENSE:
        return _uniform(edges, n_vertices, component)
    if len(edges) == n_vertices * (n_vertices - 1) // 2:
        child = np.full((len(edges), 2), 1 / n_vertices)
        return Trees(child, np.full(n_vertices, 1 / n_vertices))
    rng, orders = np.random.default_rng(0), []
    for _ in range(N_ORDERS):
        orders.append(_ordered(edges, n_vertices, component, rng.permutation(n_vertices)))
    return Trees(*(sum(part) / N_ORDERS for part in zip(*orders, strict=True)))


def _ordered(edges, n_vertices, component, number):
    """Trees of an order in which each vertex but the first has a neighbour before it.

    Each vertex chooses its parent among these with equal probabilities. Every choice is a tree, and
    every edge can be chosen, by the later one of its vertices.
    """
    _, roots = np.unique(component[np.argsort(number)], return_index=True)
    order = breadth_first(adjacency(number[edges], n_vertices), roots)
    place = np.argsort(order)[number]
    is_child = np.stack([place[edges[:, 0]] > place[edges[:, 1]]] * 2, 1) ^ [False, True]
    n_earlier = np.bincount(edges[is_child], minlength=n_vertices)
    return Trees(is_child / np.maximum(n_earlier, 1)[edges], (n_earlier == 0).astype(np.float64))


def _uniform(edges, n_vertices, component):
    """Uniform spanning trees with uniform roots, by the inverse of the Laplacian.

    With the root r grounded, i is the child of j with probability G_ii - G_ij (Wilson's algorithm);
    averaged over r that is the difference of the same entries of the pseudo-inverse.
    """
    laplacian = np.zeros((n_vertices, n_vertices))
    first, second = edges.T
    laplacian[first, second] = laplacian[second, first] = -1
    laplacian[np.diag_indices(n_vertices)] = -laplacian.sum(1)
    # One on each pair of a component: the null space of the Laplacian, and no other change.
    inverse = np.linalg.inv(laplacian + (component[:, None] == component))
    diagonal, both = inverse.diagonal(), inverse[first, second]
    child = np.stack([diagonal[first] - both, diagonal[second] - both], 1)
    return Trees(np.clip(child, 1e-12, 1), 1 / np.bincount(component)[component])
