"""The result of belief propagation on graphs."""

import pickle

import numpy as np
import pytest
from graph_models import Graph

import fastmf as mf


def test_tables_need_pair_beliefs():
    model = Graph([(0, 1)], 3).machine()
    with pytest.raises(ValueError, match="pairwise=True"):
        mf.belief_propagation(model).table(0, 1)
    found = mf.belief_propagation(model, pairwise=True)
    with pytest.raises(ValueError, match="not coupled"):
        found.table(0, 2)
    np.testing.assert_allclose(found.table(0, 1).sum(), 1)


def test_results_are_pickled_and_shown():
    found = mf.belief_propagation(Graph([(0, 1), (1, 2), (0, 2)], 3, 0.3).machine())
    assert pickle.loads(pickle.dumps(found)).unique is None
    assert found.unique and found.reliable and found.message == "converged"
    assert "GraphBeliefs" in found._repr_html_()
    again = pickle.loads(pickle.dumps(found))
    np.testing.assert_array_equal(again.mean, found.mean)
    assert again.unique and again.reliable
