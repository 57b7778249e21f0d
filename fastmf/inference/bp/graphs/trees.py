"""Tree-reweighted belief propagation: random spanning trees, and upper bounds at any messages.

A tree has a root, and each other unit has a parent. If a graph has several components, spanning
forests replace trees.

log Z is convex in the parameters, so that it is at most the average of log Z_T over random trees T
whose average parameters are the parameters of the graph. With edge probabilities rho and any
log-messages u, trees with the parameters

    h_i = f_i + sum_k rho_ki u_ki          J_ij / rho_ij - u_ij - u_ji

have this average. Their entropies are sums over roots and over children given their parents,
which are concave, so that by Lagrange's duality (Globerson & Jaakkola 2007), with the probabilities
r_i that i is a root and rho_k|i that k is a child of i,

    log Z <= sum_i r_i log sum_x exp(h_i(x) + sum_k rho_k|i (S_ki(x) - u_ki(x)) / r_i),
    S_ki = log sum_a exp(h_k(a) - u_ik(a) + J_ki / rho_ki).

It holds for all messages. If they have converged, S - u does not depend on x, and this is the bound
of tree-reweighted belief propagation (Wainwright, Jaakkola & Willsky 2005). At temperature 0 sums
over states become maxima, which bounds the exponent of the most probable states:

    max_x exponent(x) <= sum_i max_x [r_i h_i(x) + sum_k rho_k|i (S_ki(x) - u_ki(x))].
"""

from typing import NamedTuple

import numpy as np
import scipy

from fastmf.inference.bp._options import MAX_BYTES
from fastmf.inference.bp.graphs.units import adjacency, breadth_first, components
from fastmf.inference.mean_field.lower_bound import SUM_ROUNDING

# Maximum number of vertices for uniform trees, and number of random orders for larger graphs, for
# speed: bounds hold with any probabilities.
MAX_DENSE, N_ORDERS = 2000, 8


class Trees(NamedTuple):
    """Probabilities of random spanning trees."""

    child: np.ndarray  # (n_edges, 2): of the first, or the second, unit being the child
    root: np.ndarray  # (n_vertices,)

    @property
    def probability(self):
        """Probability of each edge in a tree, (n_edges,)."""
        return self.child.sum(1)


def random_trees(edges, n_vertices):
    """Make random `Trees` in which each edge has a positive probability.

    In uniform spanning trees, the probability of an edge is its effective resistance (Kirchhoff).
    In larger graphs, unless they are complete, each vertex chooses its parent among its earlier
    neighbours in one of `N_ORDERS` random orders.
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
    """Make trees from a breadth-first order, in which each non-root has an earlier neighbour.

    Each vertex chooses its parent among these with equal probabilities. Every choice is a tree, and
    every edge can be chosen, by the later of its vertices.
    """
    _, roots = np.unique(component[np.argsort(number)], return_index=True)
    order = breadth_first(adjacency(number[edges], n_vertices), roots)
    place = np.argsort(order)[number]
    is_child = np.stack([place[edges[:, 0]] > place[edges[:, 1]]] * 2, 1) ^ [False, True]
    n_earlier = np.bincount(edges[is_child], minlength=n_vertices)
    return Trees(is_child / np.maximum(n_earlier, 1)[edges], (n_earlier == 0).astype(np.float64))


def _uniform(edges, n_vertices, component):
    """Make uniform spanning trees with uniform roots, by the inverse of the Laplacian.

    With the root r grounded, i is the child of j with probability G_ii - G_ij (Wilson's algorithm);
    averaged over r this is the difference of the same entries of the pseudo-inverse.
    """
    laplacian = np.zeros((n_vertices, n_vertices))
    first, second = edges.T
    laplacian[first, second] = laplacian[second, first] = -1
    laplacian[np.diag_indices(n_vertices)] = -laplacian.sum(1)
    # Adding 1 to each pair of a component changes only the null space of the Laplacian.
    inverse = np.linalg.inv(laplacian + (component[:, None] == component))
    diagonal, both = inverse.diagonal(), inverse[first, second]
    child = np.stack([diagonal[first] - both, diagonal[second] - both], 1)
    return Trees(np.clip(child, 1e-12, 1), 1 / np.bincount(component)[component])


def tree_bound(problem, child, root, messages):
    """Compute an upper bound of the log-partition, or of the largest exponent, of each row."""
    child_of_slot = child[problem.edges, problem.transposed.astype(int)]
    bounds = []
    for k, u in enumerate(messages):
        field = problem.field[min(k, len(problem.field) - 1)]
        sizes = (abs(part[np.isfinite(part)]).sum() for part in (problem.tables, field))
        rounding = SUM_ROUNDING * (1 + sum(sizes))
        bounds.append(_bound(problem, child_of_slot, root, field, u) + rounding)
    return np.array(bounds)


def _bound(problem, child, root, field, u):
    """Compute the bound of one row."""
    first, sizes = problem.first_state[:-1], np.diff(problem.first_state)
    counts = np.diff(problem.first_entry)
    within = np.arange(len(u)) - np.repeat(problem.first_entry[:-1], counts)
    receiver = np.repeat(first[problem.neighbours], counts) + within
    probability = np.repeat(problem.probability[problem.edges], counts)
    h = field + np.bincount(receiver, probability * u, len(field))
    if not np.logical_or.reduceat(h > -np.inf, first).all():
        return -np.inf
    sums, combine = np.zeros(len(field)), np.max if problem.maximum else scipy.special.logsumexp
    for slots, (senders, back), (states, sent), tables in chunks_of_slots(problem):
        cavity = without(h[senders], u[back])
        new = combine(cavity[:, :, None] + problem.tables[tables], axis=1)
        possible = h[states] > -np.inf
        gain = np.where(possible, new - np.where(possible, u[sent], 0), 0)
        impossible = np.isneginf(gain)
        gain = child[slots][:, None] * np.where(impossible, 0, gain)
        np.add.at(sums, states, np.where(impossible, -np.inf, gain))
    possible, of_unit = h > -np.inf, np.repeat(root, sizes)
    total = np.where(possible, of_unit * np.where(possible, h, 0) + sums, -np.inf)
    top = np.maximum.reduceat(total, first)
    if problem.maximum or np.isneginf(top).any():
        return float(top.sum())
    with np.errstate(divide="ignore", invalid="ignore"):  # units that are never a root
        weights = np.exp((total - np.repeat(top, sizes)) / of_unit)
    logs = np.log(np.add.reduceat(weights, first))
    return float((top + np.where(root > 0, root * logs, 0)).sum())


def chunks_of_slots(problem, slots=None, n_rows=1):
    """Yield slots whose tables have one shape (q, r), with indices of all their entries.

    For sender and receiver these are (states, messages received from the other one); then tables.
    """
    first, sizes = problem.first_state[:-1], np.diff(problem.first_state)
    senders = np.repeat(np.arange(len(first)), np.diff(problem.starts))
    slots = np.arange(len(senders)) if slots is None else slots
    base = sizes.max() + 1
    shapes = sizes[senders[slots]] * base + sizes[problem.neighbours[slots]]
    for shape in np.unique(shapes).tolist():
        alike, (q, r) = slots[shapes == shape], divmod(shape, base)
        n_chunks = min(len(alike), 1 + 64 * n_rows * len(alike) * q * r // MAX_BYTES)
        a, b = np.arange(q), np.arange(r)
        for chunk in np.array_split(alike[:, None], n_chunks) if n_chunks > 1 else [alike[:, None]]:
            sender = first[senders[chunk]] + a, problem.first_entry[problem.reverse[chunk]] + a
            receiver = first[problem.neighbours[chunk]] + b, problem.first_entry[chunk] + b
            tables = problem.first_value[problem.edges[chunk]][:, :, None]
            transposed = problem.transposed[chunk][:, :, None]
            tables = tables + np.where(transposed, b * q + a[:, None], a[:, None] * r + b)
            yield chunk[:, 0], sender, receiver, tables


def without(logs, messages):
    """Subtract a message from the logarithms of weights; weights of zero stay."""
    return np.subtract(logs, messages, out=np.full_like(logs, -np.inf), where=logs > -np.inf)
