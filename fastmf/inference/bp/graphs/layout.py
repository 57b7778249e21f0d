"""Units of a graph in breadth-first order, and the slots of their messages.

In this order the neighbours of a unit of a tree are its parent, before it, and its children, after
it: sweeps from the last unit to the first and back are exact. It also brings neighbours close
together in memory.
"""

from typing import NamedTuple

import numpy as np
import scipy


class GraphLayout(NamedTuple):
    """Order of the units of a graph, and slots of its messages.

    Parameters
    ----------
    order : int64 array of shape (n_units,)
        Given number of each unit in the order.
    slots : int32 array of shape (n_edges, 2)
        Slots in which the first and the second unit of an edge send.
    starts : int64 array of shape (n_units + 1,)
    neighbours, reverse, edges : int32 array of shape (n_slots,)
        As in `BinaryProblem`.
    is_forest : bool
        Whether the graph has no cycle.
    """

    order: np.ndarray
    slots: np.ndarray
    starts: np.ndarray
    neighbours: np.ndarray
    reverse: np.ndarray
    edges: np.ndarray
    is_forest: bool


def graph_layout(edges, n_vertices):
    """Order vertices breadth first, component after component, and lay out their slots."""
    if len(edges) >= 2**30:
        raise ValueError(f"a graph must have fewer than 2^30 edges, got {len(edges)}.")
    graph = adjacency(edges, n_vertices)
    component, roots = components(graph)
    order, _ = breadth_first(graph, roots)
    order = order[np.argsort(component[order], kind="stable")].astype(np.int64)
    place = np.empty(n_vertices, np.int32)
    place[order] = np.arange(n_vertices)
    # A slot for each end of an edge, in the order of the units that send.
    senders = place[edges]
    ends = np.argsort(senders, axis=None, kind="stable")
    slots = np.empty(edges.shape, np.int32)
    slots.flat[ends] = np.arange(2 * len(edges))
    return GraphLayout(
        order=order,
        slots=slots,
        starts=np.append(0, np.cumsum(np.bincount(senders.ravel(), minlength=n_vertices))),
        neighbours=senders[:, ::-1].ravel()[ends],
        reverse=slots[:, ::-1].ravel()[ends],
        edges=(ends // 2).astype(np.int32),
        is_forest=len(edges) == n_vertices - len(roots),
    )


def adjacency(edges, n_vertices):
    """The symmetric adjacency matrix of a graph, neighbours in the order of the edges."""
    ends = np.argsort(edges, axis=None, kind="stable")
    counts = np.bincount(edges.ravel(), minlength=n_vertices)
    neighbours = edges[:, ::-1].astype(np.int32).ravel()[ends]
    starts = np.append(0, np.cumsum(counts)).astype(np.int32)
    return scipy.sparse.csr_array(
        (np.ones(len(ends)), neighbours, starts), shape=(n_vertices, n_vertices)
    )


def components(graph):
    """The component of each vertex, and the first vertex of each component."""
    _, component = scipy.sparse.csgraph.connected_components(graph, connection="strong")
    _, roots, component = np.unique(component, return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(roots))
    return rank[component], np.sort(roots)


def breadth_first(graph, roots):
    """Vertices in the order of a search from one vertex of each component, and their parents."""
    # One more vertex, next to the roots, from which all are searched.
    n, indices = graph.shape[0], np.append(graph.indices, roots).astype(np.int32)
    starts = np.append(graph.indptr, len(indices)).astype(np.int32)
    searched = scipy.sparse.csr_array(
        (np.ones(len(indices)), indices, starts), shape=(n + 1, n + 1)
    )
    order, parent = scipy.sparse.csgraph.breadth_first_order(searched, n)
    return order[1:], parent
