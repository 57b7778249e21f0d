"""Rows that cycle are told from rows that converge slowly."""

import numpy as np
import pytest
from bp_models import centred

import fastmf as mf
from fastmf._outcomes import CYCLING, OUT_OF_ITERATIONS
from fastmf.inference.bp._binary_units import BinaryUnits
from fastmf.inference.bp._cycles import mark_cycles
from fastmf.inference.bp._kernel_arguments import prepared
from fastmf.inference.bp._options import BPOptions


def test_a_slow_approach_is_not_called_a_cycle():
    """A ferromagnet near its transition converges slowly; tol=0 asks for no convergence."""
    model = mf.RBM(np.full((20, 20), 0.0513), *(mf.Ising(np.full(20, 1e-7)) for _ in range(2)))
    result = mf.belief_propagation(model, max_iter=60)
    assert not result.converged and "still moving" in result.message
    result = mf.belief_propagation(centred(12, 12, 2.0, 5), max_iter=60, tol=0)
    assert "max_iter" in result.message


@pytest.mark.parametrize("kind, n_cycling", [("alternating", 1), ("falling", 0), ("short", 0)])
def test_cycles_are_told_by_their_residuals(kind, n_cycling):
    units = BinaryUnits(centred(3, 2, 1.0), (None, None))
    n_sweeps = 20 if kind == "short" else 100
    _, _, record = prepared(BPOptions(max_iter=n_sweeps), units, float, 1)
    falling = 0.99 ** np.arange(n_sweeps)
    record.history[0] = falling if kind == "falling" else 1 + np.arange(n_sweeps) % 2
    record.n_iter[:], record.status[:] = n_sweeps, OUT_OF_ITERATIONS
    mark_cycles(record, 1e-8)
    assert (record.status == CYCLING).sum() == n_cycling


def test_hard_decisions_that_cycle_are_said_to():
    n_cycling = 0
    for seed in range(10):
        result = mf.most_probable(centred(12, 12, 3.0, seed), sum_hidden=True, max_iter=50)
        n_cycling += "cycling" in result.message
        assert result.converged == (result.message == "converged")
    assert n_cycling > 0
