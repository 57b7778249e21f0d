"""Graphs of machines as the kernels see them."""

import threading

import numpy as np
import pytest
from graph_models import Graph, cyclic, forests, grid_couplings

import fastmf as mf
from fastmf.inference.bp.graphs.units import GraphUnits, sums_at_ends
from fastmf.models import _state_tables as module
from tests._threads.test_workers import TIMEOUT, forked, needs_fork


@pytest.mark.parametrize("name, edges, n", [*forests(), *cyclic()], ids=str)
def test_layout_is_a_permutation_with_parents_first(name, edges, n):
    graph = Graph(edges, n)
    units = GraphUnits(graph.machine())
    layout = units.layout
    assert sorted(layout.order) == list(range(n))
    senders = np.repeat(np.arange(n), np.diff(layout.starts))
    np.testing.assert_array_equal(senders[layout.reverse], layout.neighbours)
    np.testing.assert_array_equal(layout.reverse[layout.reverse], np.arange(2 * len(edges)))
    ends = np.sort(layout.order[np.stack([senders, layout.neighbours], 1)], axis=1)
    np.testing.assert_array_equal(ends, units.graph.edges[layout.edges])
    assert units.is_forest == (name in [forest[0] for forest in forests()])
    if units.is_forest:
        n_before = np.bincount(senders, layout.neighbours < senders, n)
        assert (n_before <= 1).all()


def test_deep_and_wide_trees():
    """A chain of 200,000 units, and a star: neither is a recursion."""
    n = 200_000
    for parents in (np.arange(n - 1), np.zeros(n - 1, int)):
        ends = np.stack([parents, np.arange(1, n)], 1)
        upper = grid_couplings(2)[:0, :0]
        upper = type(upper)((np.full(n - 1, 0.7), ends.T), shape=(n, n))
        model = mf.BoltzmannMachine(upper + upper.T, mf.Ising(np.zeros(n)))
        found = mf.belief_propagation(model)
        exact = n * np.log(2) + (n - 1) * np.log(np.cosh(0.7))
        assert found.converged and abs(found.log_partition / exact - 1) < 1e-12


def test_probabilities_of_edges_divide_the_tables():
    graph = Graph([(0, 1), (1, 2), (0, 2)], 3)
    units = GraphUnits(graph.machine())
    (whole, scale), (divided, larger) = units.problem(), units.problem(np.array([0.5, 1.0, 0.25]))
    sizes = np.diff(whole.first_value)
    factors = np.repeat([2.0, 1.0, 4.0], sizes)
    np.testing.assert_allclose(divided.tables, factors * whole.tables)
    assert larger > scale > 0


def test_sums_at_ends():
    edges = np.array([[0, 1], [1, 3]])
    assert sums_at_ends(edges, np.array([2.0, 5.0]), 4).tolist() == [2, 7, 0, 5]


@needs_fork
def test_a_fork_while_another_thread_lists_states(monkeypatch):
    """The child lists those of a graph of its own, and waits for no lock of the property."""
    begun, go_on, values = threading.Event(), threading.Event(), module.support
    one, other = (
        GraphUnits(mf.BoltzmannMachine(np.zeros((2, 2)), mf.Ising([0.0, 0.0]))) for _ in "12"
    )

    def support(prior):
        if threading.current_thread() is slow:
            begun.set()
            go_on.wait(TIMEOUT)
        return values(prior)

    monkeypatch.setattr(module, "support", support)
    slow = threading.Thread(target=lambda: one.states)
    slow.start()
    try:
        assert begun.wait(TIMEOUT)
        assert forked(lambda: other.states[1].tolist()) == [-1.0, 1.0, -1.0, 1.0]
    finally:
        go_on.set()
        slow.join()
