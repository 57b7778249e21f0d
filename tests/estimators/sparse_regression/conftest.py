"""Solver constants of spike-and-slab estimators for tests."""

import pytest

from fastmf.estimators.sparse_regression import _spike_slab


@pytest.fixture
def fine(monkeypatch):
    """Solve the last fixed point to nine digits, so that equal problems have equal answers."""
    monkeypatch.setattr(_spike_slab, "FINAL_TOL", 1e-9)
    monkeypatch.setattr(_spike_slab, "MAX_FIXED_POINTS", 100)


@pytest.fixture
def one_iteration(monkeypatch):
    """Stop the last fixed point after one iteration."""
    monkeypatch.setattr(_spike_slab, "FINAL_ITERATIONS", 1)
