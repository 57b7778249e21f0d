"""TAP with sparse couplings: the fixed points are those with dense ones, for any n_threads."""

import numpy as np
import pytest
from own_priors import Levels
from scipy import sparse

import fastmf as mf
from fastmf.inference.mean_field import _sparse_layout
from tests.models.test_couplings import groups, spins, tables

RING = ((0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0))
SIZES = (2, 3, 2, 4, 3, 3)


def pair(couplings, prior):
    """The machine with dense and with sparse couplings."""
    sparse_ones = sparse.csr_array(couplings)
    return mf.BoltzmannMachine(couplings, prior), mf.BoltzmannMachine(sparse_ones, prior)


def spin_machines(scale=0.3, seed=0, n=30):
    couplings, prior = spins(np.random.default_rng(seed), n, 4 / n)
    return pair(scale * couplings, prior)


def group_machines(seed=0, scale=0.5):
    rng = np.random.default_rng(seed)
    return pair(scale * tables(rng, SIZES, RING), groups(rng, SIZES))


def mixed_machines(seed=0):
    """Spins, groups of unequal sizes and real units; some entries of tables are zero."""
    rng = np.random.default_rng(seed)
    sizes = (1, 1, 1, 2, 3, 4, 1, 1)
    couplings = 0.3 * tables(rng, sizes, ((0, 3), (1, 4), (3, 4), (4, 5), (5, 6), (6, 7), (0, 1)))
    couplings *= np.triu(rng.random(couplings.shape) < 0.9, 1)
    prior = mf.Concatenated(
        mf.Ising(rng.normal(size=3)),
        mf.Categorical([rng.normal(size=q) for q in (2, 3, 4)]),
        mf.Gaussian(rng.normal(size=2), np.full(2, 2.0)),
    )
    return pair(couplings + couplings.T, prior)


MACHINES = {"spins": spin_machines, "groups": group_machines, "mixed": mixed_machines}


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("schedule", ["blocked", "sequential"])
@pytest.mark.parametrize("kind", ["spins", "groups", "mixed"])
def test_fixed_points_are_those_of_dense_couplings(kind, schedule, order):
    if order == 3 and kind != "spins":
        pytest.skip("binary units alone have a third order")
    dense, machine = MACHINES[kind]()
    rng = np.random.default_rng(1)
    field = 0.3 * rng.normal(size=(3, machine.n_units))
    options = {"order": order, "field": field, "tol": 1e-12}
    expected = mf.tap(dense, **options)
    found = mf.tap(machine, schedule=schedule, **options)
    assert found.converged.all() and expected.converged.all()
    for name in ("mean", "var", "b", "a", "log_partition"):
        values, others = getattr(found, name), getattr(expected, name)
        np.testing.assert_allclose(values, others, atol=1e-10, err_msg=name)


def test_sweeps_in_the_natural_order_are_those_of_dense_couplings():
    dense, machine = spin_machines()
    for n in (1, 3):
        options = {"schedule": "sequential", "max_iter": n, "acceleration": False}
        expected, found = mf.tap(dense, **options), mf.tap(machine, **options)
        np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-12)
        np.testing.assert_allclose(found.residual, expected.residual, rtol=1e-9)


@pytest.mark.parametrize("kind", ["spins", "groups", "mixed"])
@pytest.mark.parametrize("options", [
    {"damping": 0.5},
    {"acceleration": False},
    {"precision": 0.2},
    {"history": True},
])  # fmt: skip
def test_options(kind, options):
    dense, machine = MACHINES[kind](seed=2)
    if "precision" in options:
        options = {"precision": np.full(machine.n_units, 0.2)}
    expected, found = (mf.tap(m, tol=1e-11, **options) for m in (dense, machine))
    assert found.converged
    np.testing.assert_allclose(found.mean, expected.mean, atol=1e-9)
    np.testing.assert_allclose(found.a, expected.a, atol=1e-9)
    np.testing.assert_allclose(found.log_partition, expected.log_partition, atol=1e-9)
    if "history" in options:
        assert np.isfinite(found.history[: found.n_iter]).all()


@pytest.mark.parametrize("schedule", ["blocked", "sequential"])
def test_clamped_units(schedule):
    dense, machine = mixed_machines()
    clamp = np.full(machine.n_units, np.nan)
    clamp[[0, 5, 6, 7]] = 1, 0, 1, 0  # a spin and a group of three states
    expected, found = (mf.tap(m, clamp=clamp, tol=1e-12) for m in (dense, machine))
    found = mf.tap(machine, clamp=clamp, tol=1e-12, schedule=schedule)
    np.testing.assert_array_equal(found.mean[[0, 5, 6, 7]], [1, 0, 1, 0])
    np.testing.assert_allclose(found.mean, expected.mean, atol=1e-10)
    np.testing.assert_allclose(found.log_partition, expected.log_partition, atol=1e-10)


def test_starts_and_earlier_results():
    _, machine = spin_machines(0.6)
    rng = np.random.default_rng(0)
    starts = np.where(rng.random((4, 30)) < 0.5, -1.0, 1.0)
    found = mf.tap(machine, starts)
    again = mf.tap(machine, found)
    assert (again.n_iter <= 3).all()
    np.testing.assert_allclose(again.mean, found.mean, atol=1e-7)
    alone = mf.tap(machine, starts[2])
    np.testing.assert_array_equal(alone.mean, found.mean[2])
    assert alone.n_iter == found.n_iter[2]


def test_float32():
    couplings, prior = spins(np.random.default_rng(3), 30, 0.1, np.float32)
    dense, machine = pair(np.float32(0.3) * couplings, prior)
    expected, found = mf.tap(dense), mf.tap(machine)
    assert found.mean.dtype == np.float32 and found.converged
    np.testing.assert_allclose(found.mean, expected.mean, atol=1e-5)


@pytest.mark.parametrize("kind", ["spins", "groups"])
def test_any_number_of_threads_gives_the_same_bits(monkeypatch, kind):
    """One row in many chunks, and several rows."""
    monkeypatch.setattr(_sparse_layout, "CHUNK_UNITS", 16)
    rng = np.random.default_rng(4)
    if kind == "spins":
        n = 25_000
        chain = sparse.diags_array([0.4 * rng.normal(size=n - 1)], offsets=[1], shape=(n, n))
        machine = mf.BoltzmannMachine(chain + chain.T, mf.Ising(rng.normal(size=n)))
    else:
        n, q = 4000, 3
        chain = sparse.diags_array([np.ones(n - 1)], offsets=[1], shape=(n, n))
        chain = sparse.kron(chain, 0.3 * rng.normal(size=(q, q)))
        machine = mf.BoltzmannMachine(chain + chain.T, mf.Categorical(rng.normal(size=(n, q))))
    init = machine.prior.moments(0.0, 0.0)[0] * np.ones((2, 1))
    for start in (None, init):
        one, two, three = (mf.tap(machine, start, n_threads=k) for k in (1, 2, 3))
        for other in (two, three):
            np.testing.assert_array_equal(one.mean, other.mean)
            np.testing.assert_array_equal(one.n_iter, other.n_iter)


def test_rows_that_oscillate_or_diverge():
    n = 20
    couplings = -2.0 * (1 - np.eye(n))
    dense, machine = pair(couplings, mf.Ising(np.full(n, 0.1)))
    expected, found = (mf.tap(m, max_iter=3000) for m in (dense, machine))
    assert found.converged == expected.converged
    grows, _ = pair(np.array([[0.0, 3], [3, 0]]), mf.Gaussian(np.ones(2), np.ones(2)))
    grows = mf.BoltzmannMachine(sparse.csr_array(grows.couplings), grows.prior)
    found = mf.tap(grows)
    assert not found.converged and found.log_partition == -np.inf


def test_a_prior_of_one_s_own():

    couplings, prior = spins(np.random.default_rng(5), 12, 0.3)
    dense, machine = pair(0.4 * couplings, Levels(prior.field))
    np.testing.assert_allclose(mf.tap(machine).mean, mf.tap(dense).mean, atol=1e-7)


def test_machines_without_couplings_and_with_isolated_units():
    machine = mf.BoltzmannMachine(sparse.csr_array((5, 5)), mf.Ising(np.ones(5)))
    found = mf.tap(machine)
    np.testing.assert_allclose(found.mean, np.tanh(1), rtol=1e-12)
    np.testing.assert_allclose(found.log_partition, 5 * np.log(2 * np.cosh(1)), rtol=1e-12)
    none = mf.BoltzmannMachine(sparse.csr_array((6, 6)), mf.Categorical(np.zeros((2, 3))))
    np.testing.assert_allclose(mf.tap(none).log_partition, 2 * np.log(3), rtol=1e-12)


def test_a_star_of_many_leaves():
    """The hub has all other units as neighbours."""
    n = 3000
    rim = np.arange(1, n)
    ones = 0.01 * np.ones(n - 1)
    star = sparse.coo_array((ones, (0 * rim, rim)), shape=(n, n))
    machine = mf.BoltzmannMachine(star + star.T, mf.Ising(np.full(n, 0.2)))
    found = mf.tap(machine)
    leaf = np.log(2 * np.cosh(0.2 + 0.01 * np.array([-1, 1]))) * (n - 1)
    exact = np.logaddexp(*(leaf + 0.2 * np.array([-1, 1])))
    assert abs(found.log_partition - exact) < 0.01 and bool(found.reliable)
