"""Graphs of machines as the kernels see them."""

import threading

import numpy as np
from graph_models import grid_couplings

import fastmf as mf
from fastmf.inference.bp.graphs.units import GraphUnits
from fastmf.models import _state_tables as module
from tests._threads.test_workers import TIMEOUT, forked, needs_fork


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
