"""Bounds of machines with forbidden pairs of states: against elimination."""

import numpy as np
import pytest
from scipy import sparse

import fastmf as mf


@pytest.mark.parametrize("seed", range(6))
def test_forbidden_pairs_have_both_bounds(seed):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, 4, 6)
    prior = mf.Categorical([rng.normal(size=size) for size in sizes])
    group = np.repeat(np.arange(6), sizes)
    couplings = rng.normal(size=(len(group),) * 2)
    couplings[rng.random(couplings.shape) < 0.15] = -np.inf
    couplings = np.triu(np.where(group[:, None] == group, 0, couplings), 1)
    couplings = couplings + np.triu(couplings, 1).T
    clamp = np.full(6, np.nan)
    clamp[0] = seed % 2 if seed > 2 else np.nan
    for kind in (np.array, sparse.csr_array):
        model = mf.BoltzmannMachine(kind(couplings), prior)
        right = mf.exact(model, clamp=clamp).log_partition
        found = mf.log_partition_bounds(model, clamp=clamp)
        assert found.lower <= right <= found.upper
        assert right - 2 < found.lower <= found.estimate <= found.upper < right + 4


def test_machines_without_any_state():
    couplings = np.zeros((4, 4))
    couplings[:2, 2:] = couplings[2:, :2] = -np.inf
    found = mf.log_partition_bounds(
        mf.BoltzmannMachine(couplings, mf.Categorical(np.zeros((2, 2))))
    )
    assert found.lower == found.upper == found.estimate == -np.inf


def test_a_product_of_allowed_states_is_exact():
    """Units have two of three colours each: whatever is forbidden, they are independent."""
    couplings = np.zeros((6, 6))
    couplings[2, :] = couplings[:, 2] = couplings[5, :] = couplings[:, 5] = -np.inf
    couplings[:3, :3] = couplings[3:, 3:] = 0
    model = mf.BoltzmannMachine(couplings, mf.Categorical(np.arange(6.0).reshape(2, 3) * [1, 1, 0]))
    found = mf.log_partition_bounds(model)
    right = np.log(1 + np.e) + np.log(np.exp(3) + np.exp(4))
    assert right - 1e-6 < found.lower <= right + 1e-12 and right <= found.upper < right + 1e-3


def test_sparse_forbidden_pairs_of_many_units_and_all_units_clamped():
    """Colourings of a path of 20,000 vertices by three colours: 3 2^(n - 1)."""
    n = 20_000
    first = np.arange(3 * (n - 1))
    ends = np.hstack([first, first + 3]), np.hstack([first + 3, first])
    couplings = sparse.csr_array((np.full(6 * (n - 1), -np.inf), ends), shape=(3 * n, 3 * n))
    model = mf.BoltzmannMachine(couplings, mf.Categorical(np.zeros((n, 3))))
    found, right = mf.log_partition_bounds(model, n_starts=3), np.log(3) + (n - 1) * np.log(2)
    # Every second unit at one colour leaves two colours to each of the others.
    assert 0.2 * n < found.lower <= right <= found.upper < right + 1e-6
    found = mf.log_partition_bounds(model, n_starts=1, clamp=np.arange(n) % 2)
    assert -1e-9 < found.lower <= 0 <= found.upper < 1e-9


def test_other_units_with_forbidden_pairs_are_refused():
    couplings = np.zeros((5, 5))
    couplings[0, 2] = couplings[2, 0] = -np.inf
    units = mf.Concatenated(mf.Categorical(np.zeros((2, 2))), mf.Ising(np.zeros(1)))
    with pytest.raises(TypeError, match="between Categorical units only"):
        mf.log_partition_bounds(mf.BoltzmannMachine(couplings, units))
