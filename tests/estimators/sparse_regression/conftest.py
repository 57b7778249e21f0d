"""Solver constants of spike-and-slab estimators for tests."""

from functools import partial

import pytest

from fastmf.estimators.sparse_regression import _spike_slab
from fastmf.learning.evidence import robust_solution


@pytest.fixture
def fine(monkeypatch):
    """Solve the last fixed point to nine digits, so that equal problems have equal answers."""
    monkeypatch.setattr(_spike_slab, "FINAL_TOL", 1e-9)


@pytest.fixture
def one_iteration(monkeypatch):
    """Stop the last fixed point after one iteration."""
    monkeypatch.setattr(_spike_slab, "robust_solution", partial(robust_solution, max_iter=1))
