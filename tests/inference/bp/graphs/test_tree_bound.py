"""Sums over spanning trees, at any messages, against enumeration and trees one by one."""

import numpy as np
import pytest
from graph_models import Graph, cyclic, forests

from fastmf.inference.bp.graphs.tree_bound import tree_bound
from fastmf.inference.bp.graphs.trees import random_trees
from fastmf.inference.bp.graphs.units import GraphUnits


def bound_of(graph, messages=None, scale=1.0):
    units = GraphUnits(graph.machine())
    trees = random_trees(units.graph.edges, len(units.graph.n_states))
    problem, _ = units.problem(trees.probability)
    if messages is None:
        messages = np.zeros((1, problem.first_entry[-1]))
    else:
        messages = scale * messages.normal(size=(3, problem.first_entry[-1]))
    return tree_bound(problem, trees.child, trees.root[units.layout.order], messages)


@pytest.mark.parametrize("name, edges, n", list(cyclic()), ids=str)
def test_it_holds_for_all_messages(name, edges, n):
    rng = np.random.default_rng(0)
    for strength in (0.3, 3.0):
        graph = Graph(edges, n, strength, forbidden=0.1, seed=n)
        for scale in (0.1, 1.0, 10.0):
            assert (bound_of(graph, rng, scale) > graph.solve()[0]).all()


def test_forests_of_one_edge_are_exact_without_messages():
    graph = Graph([(0, 1)], 2, 2.0, seed=3)
    assert np.isclose(bound_of(graph)[0], graph.solve()[0], rtol=1e-12)
    for _, edges, n in forests():
        graph = Graph(edges, n, 2.0, seed=n)
        assert bound_of(graph)[0] >= graph.solve()[0] - 1e-12


def test_units_without_states_have_none():
    graph = Graph([(0, 1), (1, 2), (0, 2)], 3)
    graph.fields[1][:] = -np.inf
    graph.fields[1][0] = 0
    graph.tables[0, 1][:, 0] = -np.inf
    assert bound_of(graph)[0] == -np.inf
