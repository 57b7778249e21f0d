"""Spanning trees and probabilities of edges."""

import itertools

import numpy as np
import pytest
from graph_models import cyclic, forests

from fastmf.inference.bp.graphs import trees
from fastmf.inference.bp.graphs.layout import adjacency, components
from fastmf.inference.bp.graphs.trees import random_trees


def trees_of(edges, n):
    """All spanning forests with as many edges as there can be."""

    def components(chosen):
        label = list(range(n))
        for i, j in chosen:
            a, b = label[i], label[j]
            if a == b:
                return None
            label = [a if x == b else x for x in label]
        return len(set(label))

    for size in range(len(edges), -1, -1):
        found = [c for c in itertools.combinations(edges, size) if components(c) is not None]
        if found:
            return found
    return []


def sorted_edges(edges):
    return np.array(sorted(tuple(sorted(edge)) for edge in edges), int).reshape(-1, 2)


@pytest.mark.parametrize("name, edges, n", [*forests(), *cyclic()], ids=str)
def test_uniform_trees(name, edges, n):
    edges = sorted_edges(edges)
    trees = trees_of([tuple(edge) for edge in edges], n)
    counts = np.array([sum(tuple(edge) in tree for tree in trees) for edge in edges])
    found = random_trees(edges, n)
    np.testing.assert_allclose(found.probability, counts / len(trees), atol=1e-12)
    # A child or a root, each vertex.
    of_vertex = found.root.copy()
    np.add.at(of_vertex, edges, found.child)
    np.testing.assert_allclose(of_vertex, 1, atol=1e-11)


def test_parents_of_uniform_roots():
    """Over all trees and roots of a graph of five vertices."""
    edges, n = sorted_edges([(0, 1), (1, 2), (0, 2), (2, 3), (3, 4), (2, 4), (1, 4)]), 5
    counts, every = np.zeros((len(edges), 2)), trees_of([tuple(edge) for edge in edges], n)
    for tree in every:
        chosen = np.array([tuple(edge) in tree for edge in edges])
        for root in range(n):
            # The tree renumbered so that the root comes first: it is then chosen as the root.
            number = np.argsort([root, *[v for v in range(n) if v != root]])
            moved = number[edges[chosen]]
            found = random_trees(np.sort(moved, 1), n)
            assert found.root.tolist() == [1, 0, 0, 0, 0]
            swapped = moved[:, 0] > moved[:, 1]
            counts[chosen] += np.where(swapped[:, None], found.child[:, ::-1], found.child)
    np.testing.assert_allclose(random_trees(edges, n).child, counts / (n * len(every)), atol=1e-12)


def test_large_graphs_have_trees_that_cover_all_edges(monkeypatch):
    monkeypatch.setattr(trees, "MAX_DENSE_VERTICES", 2)
    edges, n = np.array(list(itertools.combinations(range(9), 2))), 9
    found = random_trees(edges, n)
    assert (found.probability == 2 / 9).all()  # complete
    edges = edges[1:]
    found = random_trees(edges, n)
    assert (found.probability > 0).all() and (found.probability <= 1).all()
    assert abs(found.probability.sum() - (n - 1)) < 1e-12 and found.root.sum() == 1


@pytest.mark.parametrize("name, edges, n", [*forests(), *cyclic()], ids=str)
def test_vertices_choose_their_parents_in_random_orders(name, edges, n):
    """All choices of an order, one by one: each is a spanning forest."""
    edges = sorted_edges(edges)
    component, _ = components(adjacency(edges, n))
    found = trees._ordered(edges, n, component, np.random.default_rng(0).permutation(n))
    of_child = [[] for _ in range(n)]
    for edge, side in np.argwhere(found.child > 0):
        of_child[edges[edge, side]].append((edge, side))
    counts, forests_of_graph = np.zeros(found.child.shape), trees_of(list(map(tuple, edges)), n)
    choices = list(itertools.islice(itertools.product(*filter(None, of_child)), 20_000))
    for choice in choices:
        assert tuple(sorted(tuple(edges[edge]) for edge, _ in choice)) in forests_of_graph
        for edge, side in choice:
            counts[edge, side] += 1 / len(choices)
    np.testing.assert_allclose(found.child, counts, atol=1e-12)
    assert (found.probability > 0).all()
    assert found.root.tolist() == [float(not of_vertex) for of_vertex in of_child]
