"""Graphs of pairs that may be coupled, in all the forms that are taken."""

import numpy as np
import pytest
from scipy import sparse

from fastmf.learning.pseudo_likelihood.graph import absent_pairs, edges_of


class Graph:
    """A graph as networkx has it, which is not installed everywhere."""

    def __init__(self, edges=()):
        self.edges = [tuple(edge) for edge in edges]
        self.nodes = {node: {} for edge in edges for node in edge}


EDGES = [[0, 2], [1, 2], [2, 3]]
ADJACENCY = np.zeros((4, 4), bool)
ADJACENCY[[0, 2, 1, 2, 2, 3], [2, 0, 2, 1, 3, 2]] = True


@pytest.mark.parametrize("graph", [
    ADJACENCY,
    ADJACENCY.astype(float) * -2.5,
    sparse.csr_array(ADJACENCY),
    sparse.coo_matrix(ADJACENCY.astype(int)),
    EDGES,
    [(2, 0), (3, 2), (2, 1), (1, 2)],
    np.array(EDGES),
    Graph(EDGES),
    [("a", "c"), ("c", "b"), ("d", "c")],
    Graph([("a", "c"), ("c", "b"), ("d", "c")]),
])  # fmt: skip
def test_forms(graph):
    assert edges_of(graph, 4, ["a", "b", "c", "d"]).tolist() == EDGES


def test_no_edges():
    for graph in ([], np.zeros((4, 4)), sparse.csr_array((4, 4)), Graph()):
        assert edges_of(graph, 4).shape == (0, 2)
    assert absent_pairs(edges_of(EDGES, 4), 4).tolist() == [[0, 1], [0, 3], [1, 3]]


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (np.triu(ADJACENCY), "symmetric"),
        (sparse.csr_array((3, 4)), r"shape \(4, 4\)"),
        ([[0, 4]], "from 0 to 3"),
        ([[-1, 2]], "from 0 to 3"),
        ([[1.5, 2]], "from 0 to 3"),
        ([["a", "z"]], "names of columns"),
        ([[1, 1]], "different units"),
        (np.eye(4), "different units"),
        ([[0, 1, 2]], "pairs of units"),
        (["ab"], "pairs of units"),
    ],
)
def test_bad_graphs(graph, message):
    with pytest.raises(ValueError, match=message):
        edges_of(graph, 4, ["a", "b", "c", "d"])
