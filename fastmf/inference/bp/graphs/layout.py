"""Units of a graph in breadth-first order, and the slots of their messages.

In this order the neighbours of a unit of a tree are its parent, before it, and its children, after
it: sweeps from the last unit to the first and back are exact. It also brings neighbours close
together in memory.
"""

from typing import NamedTuple

import numpy as np
import scipy


class GraphLayout(NamedTuple):
    """Order of the units of a graph, and slots of its messages as in `BinaryProblem`."""

    order: np.ndarray  # given number of each unit in the order
    slots: np.ndarray  # (n_edges, 2): where the first and the second unit of an edge send
    starts: np.ndarray
    neighbours: np.ndarray
    reverse: np.ndarray
    edges: np.ndarray
    is_forest: bool


def graph_layout(edges, n_vertices):
    """Order vertices breadth first, from a root of each component, and lay out their slots."""
    if len(edges) >= 2**30:
        raise ValueError(f"a graph must have fewer than 2^30 edges, got {len(edges)}.")
    graph = adjacency(edges, n_vertices)
    roots = components(graph)[1]
    order = breadth_first(graph, roots).astype(np.int64)
    place = np.empty(n_vertices, np.int32)
    place[order] = np.arange(n_vertices)
    # A slot for each end of an edge, in the order of the units that send.
    ordered = graph[order]
    ends = ordered.data.astype(np.int32)
    slots = np.empty(2 * len(edges), np.int32)
    slots[ends] = np.arange(2 * len(edges))
    return GraphLayout(
        order=order,
        slots=slots.reshape(-1, 2),
        starts=ordered.indptr.astype(np.int64),
        neighbours=place[ordered.indices],
        reverse=slots[ends ^ 1],
        edges=ends >> 1,
        is_forest=len(edges) == n_vertices - len(roots),
    )


def adjacency(edges, n_vertices):
    """Adjacency matrix in the order of the edges, with entries 2 e and 2 e + 1 for edge e."""
    n, units = 2 * len(edges), edges.astype(np.int32).ravel()
    columns = np.ones(n, np.int8), units, np.arange(n + 1, dtype=np.int32)
    # SciPy sorts by counting, and searches graphs with weights of double precision.
    by_unit = scipy.sparse.csc_array(columns, shape=(n_vertices, n)).tocsr()
    parts = by_unit.indices.astype(np.float64), units[by_unit.indices ^ 1], by_unit.indptr
    return scipy.sparse.csr_array(parts, shape=(n_vertices, n_vertices))


def components(graph):
    """The component of each vertex, and the first vertex of each component."""
    _, component = scipy.sparse.csgraph.connected_components(graph, directed=False)
    # Numbers of components ascend with their first vertices.
    return component, np.flatnonzero(np.diff(np.maximum.accumulate(component), prepend=-1))


def breadth_first(graph, roots):
    """Vertices in the order of a search from one vertex of each component."""
    # One more vertex, next to the roots, from which all are searched.
    n, indices = graph.shape[0], np.append(graph.indices, roots).astype(np.int32)
    starts = np.append(graph.indptr, len(indices)).astype(np.int32)
    searched = scipy.sparse.csr_array(
        (np.ones(len(indices)), indices, starts), shape=(n + 1, n + 1)
    )
    return scipy.sparse.csgraph.breadth_first_order(searched, n, return_predecessors=False)[1:]
