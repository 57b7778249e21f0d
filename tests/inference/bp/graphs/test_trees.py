"""Spanning trees and probabilities of edges."""

import itertools

import numpy as np
import pytest
from graph_models import cyclic, forests

from fastmf.inference.bp.graphs import trees
from fastmf.inference.bp.graphs.trees import (
    edge_probabilities,
    mutual_informations,
    spanning_tree,
)


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
    counts = [sum(tuple(edge) in tree for tree in trees) for edge in edges]
    found = edge_probabilities(edges, n)
    np.testing.assert_allclose(found, np.array(counts) / len(trees), atol=1e-12)


def test_large_graphs_have_trees_that_cover_all_edges(monkeypatch):
    monkeypatch.setattr(trees, "MAX_DENSE_VERTICES", 2)
    edges, n = np.array(list(itertools.combinations(range(9), 2))), 9
    found = edge_probabilities(edges, n)
    assert (found > 0).all() and (found <= 1).all()
    assert abs(found.sum() - (n - 1)) < 1e-12


def test_spanning_tree_of_largest_weight():
    edges, n = sorted_edges(itertools.combinations(range(6), 2)), 6
    weights = np.random.default_rng(0).normal(size=len(edges))
    chosen = spanning_tree(edges, n, weights)
    best = max(
        sum(weights[np.flatnonzero((edges == e).all(1))[0]] for e in tree)
        for tree in trees_of([tuple(edge) for edge in edges], n)
    )
    assert chosen.sum() == n - 1 and abs(chosen @ weights - best) < 1e-12


def test_mutual_informations():
    table = np.array([[0.5, 0.0], [0.0, 0.5]])
    other = np.outer([0.2, 0.8], [0.1, 0.3, 0.6])
    rows = np.concatenate([table.ravel(), other.ravel()])[None]
    found = mutual_informations(rows, np.array([0, 4, 10]), np.array([[2, 2], [2, 3]]))
    np.testing.assert_allclose(found, [np.log(2), 0], atol=1e-12)
