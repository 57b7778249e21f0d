"""Shapes, tilts and assignments of results."""

import numpy as np
from bp_models import SOLVERS
from graph_models import Graph

import fastmf as mf


def test_tilts_give_the_means():
    graph = Graph([(0, 1), (1, 2), (0, 2)], 4, 1.0)
    groups = mf.belief_propagation(graph.machine())
    mean, var = mf.Categorical(graph.fields).moments(groups.b, groups.a)
    np.testing.assert_allclose(mean, groups.mean, atol=1e-12)
    np.testing.assert_allclose(var, groups.var, atol=1e-12)
    for units in (mf.Ising, mf.Bernoulli):
        prior = units(np.array([0.3, -1.0, 0.2]))
        model = mf.BoltzmannMachine(np.ones((3, 3)) / 4 - np.eye(3) / 4, prior)
        for algorithm in ("sum", "tree_reweighted"):
            found = SOLVERS[algorithm](model)
            mean, var = prior.moments(found.b, found.a)
            np.testing.assert_allclose(mean, found.mean, atol=1e-12)
            np.testing.assert_allclose(var, found.var, atol=1e-12)


def test_shapes_with_and_without_rows():
    model = Graph([(0, 1), (1, 2)], 4).machine()
    n = model.n_units
    one = mf.belief_propagation(model)
    assert one.mean.shape == (n,) and one.assignment.shape == (4,)
    assert np.ndim(one.log_partition) == 0 and one.edges.tolist() == [[0, 1], [1, 2]]
    rows = mf.belief_propagation(model, field=np.zeros((2, n)), pairwise=True)
    assert rows.mean.shape == (2, n) and rows.log_partition.shape == (2,)
    assert rows.pairwise.shape[0] == 2
    averaged = mf.belief_propagation(model, field=np.zeros((2, n)), pairwise="mean")
    np.testing.assert_allclose(averaged.pairwise, rows.pairwise.mean(0))
    np.testing.assert_array_equal(one.assignment, rows.assignment[0])
    assert one.spectral_radius == 0


def test_tree_reweighted_results_have_probabilities_of_edges():
    model = Graph([(0, 1), (1, 2), (0, 2), (2, 3)], 4).machine()
    found = mf.tree_reweighted(model)
    np.testing.assert_allclose(found.edge_probability, [2 / 3, 2 / 3, 2 / 3, 1])
    assert found.unique is None and found.reliable is None
    short = mf.tree_reweighted(model, max_iter=2)
    assert not short.converged and short.log_partition > mf.exact(model).log_partition
