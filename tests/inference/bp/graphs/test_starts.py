"""Messages to start from."""

import numpy as np
import pytest
from graph_models import Graph

import fastmf as mf


def ferromagnet(coupling):
    couplings = coupling * (np.ones((4, 4)) - np.eye(4))
    return mf.BoltzmannMachine(couplings, mf.Ising(np.zeros(4)))


@pytest.mark.parametrize("coupling", [1.0, 150.0])
def test_starts_lead_to_other_fixed_points(coupling):
    """In odds, and in logarithms at couplings for which odds are no numbers."""
    model = ferromagnet(coupling)
    start = mf.belief_propagation(model, pairwise=True).messages
    assert start.shape == (12,)
    np.testing.assert_allclose(start, 0, atol=1e-12)
    found = mf.belief_propagation(model, init=np.outer([1, -1], start + 1), pairwise=True)
    assert found.converged.all()
    assert (found.mean[0] > 0.9).all() and (found.mean[1] < -0.9).all()
    again = mf.belief_propagation(model, init=found)
    assert (again.n_iter <= 2).all()
    np.testing.assert_allclose(again.mean, found.mean, atol=1e-12)


def test_starts_for_other_clamps():
    """Messages of -inf, facts of a clamp, are none without it."""
    graph = Graph([(0, 1), (1, 2), (0, 2)], 3, 1.0)
    clamp = np.array([0, -1, -1])
    held = mf.belief_propagation(graph.machine(), clamp=clamp, pairwise=True)
    free = mf.belief_propagation(graph.machine(), init=held)
    np.testing.assert_allclose(free.mean, mf.belief_propagation(graph.machine()).mean, atol=1e-8)


def test_bad_starts_are_refused():
    model = ferromagnet(0.1)
    with pytest.raises(ValueError, match="pairwise=True"):
        mf.belief_propagation(model, init=mf.belief_propagation(model))
    with pytest.raises(ValueError, match="init must have shape"):
        mf.belief_propagation(model, init=np.zeros(11))
    with pytest.raises(ValueError, match="NaN"):
        mf.belief_propagation(model, init=np.full(12, np.nan))
    with pytest.raises(TypeError, match="init"):
        mf.belief_propagation(model, init=np.full(12, "a"))
    with pytest.raises(ValueError, match="rows differ"):
        mf.belief_propagation(model, field=np.zeros((3, 4)), init=np.zeros((2, 12)))
