"""Checks of fixed points: wrong answers are flagged, right ones are not."""

import pickle

import numpy as np
import pytest
from scipy.sparse import csr_array

import fastmf as mf
from fastmf.inference.fixed_point import FixedPoint
from fastmf.inference.mean_field.naive_bound import sides_of
from fastmf.inference.mean_field.reliability import (
    FixedPointCheck,
    _pair_terms,
    radius_exceeds_one,
    third_order_exceeds,
    unstable_rows,
)
from fastmf.kernels.mean_field.arguments import Tilt

pytestmark = pytest.mark.usefixtures("no_exact_sums")


def glass(n, temperature, seed=0):
    couplings = np.random.default_rng(seed).normal(size=(n, n)) / np.sqrt(n) / temperature
    couplings = np.triu(couplings, 1)
    return mf.BoltzmannMachine(couplings + couplings.T, mf.Ising(np.zeros(n)))


def curie_weiss(n, coupling):
    return mf.BoltzmannMachine(coupling * (1 - np.eye(n)), mf.Ising(np.full(n, 0.01)))


def test_ferromagnet_of_ten_spins_is_flagged():
    found = mf.tap(curie_weiss(10, 1.0))
    exact = mf.exact(curie_weiss(10, 1.0))
    assert found.converged and found.log_partition < exact.log_partition - 10
    assert found.reliable == np.False_
    assert "not reliable" in found.message and "below a naive mean-field bound" in found.message
    up = mf.tap(curie_weiss(10, 1.0), np.ones(10))
    assert up.reliable and up.message == "converged"


@pytest.mark.parametrize("solve", [mf.tap, mf.relaxed_bp])
def test_spin_glass_is_flagged_below_its_critical_temperature_only(solve):
    for temperature, right in ((2.0, True), (1.3, True), (0.7, False), (0.3, False)):
        found = solve(glass(300, temperature))
        assert found.converged and abs(found.mean).max() < 1e-6
        assert found.reliable == right
        assert ("unstable" in found.message) != right


def test_strong_random_bipartite_machine_is_flagged():
    rng = np.random.default_rng(0)
    model = mf.RBM(rng.normal(size=(14, 14)) * 2, mf.Ising(np.zeros(14)), mf.Ising(np.zeros(14)))
    found = mf.tap(model)
    exact = mf.exact(model, averages=False).log_partition
    assert abs(found.log_partition - exact) > 5
    assert not found.reliable


@pytest.mark.parametrize("coupling", [-2.0, 2.0, 0.5])
def test_chain_of_strong_couplings_is_flagged(coupling):
    couplings = coupling * (np.eye(10, k=1) + np.eye(10, k=-1))
    model = mf.BoltzmannMachine(couplings, mf.Ising(np.full(10, 0.01)))
    found = mf.tap(model)
    assert found.converged
    assert found.reliable == (abs(found.log_partition - mf.exact(model).log_partition) < 1)


def test_terms_of_a_pair_are_exact():
    for units, coupling in ((mf.Ising, 1.3), (mf.Bernoulli, -4.0)):
        pair = mf.RBM(np.array([[coupling]]), units(np.array([0.3])), units(np.array([-0.5])))
        exact = mf.exact(pair)
        low, high = (-1, 1) if units is mf.Ising else (0, 1)
        p = [(mean - low) / (high - low) for mean in exact.mean]
        scale = coupling * (high - low) ** 2
        entropy = sum(-x * np.log(x) - (1 - x) * np.log1p(-x) for part in p for x in part)
        energy = sum((u.field * m).sum() for u, m in zip(pair.layers, exact.mean, strict=True))
        energy += coupling * exact.mean[0][0] * exact.mean[1][0]
        found = _pair_terms(np.array([[scale]]), *p)
        assert np.isclose(entropy + energy + found, exact.log_partition)


def test_accurate_solutions_are_not_flagged():
    rng = np.random.default_rng(1)
    for units in (mf.Ising, mf.Bernoulli):
        model = mf.RBM(rng.normal(size=(9, 7)) / 3, units(rng.normal(size=9)), units(np.zeros(7)))
        for found in (mf.tap(model), mf.tap(model, order=3), mf.relaxed_bp(model, 5, rng=0)):
            assert np.all(found.reliable)
        assert mf.adaptive_tap(model).reliable
    star = mf.RBM(np.full((1, 60), 0.6), mf.Ising(np.zeros(1)), mf.Ising(np.ones(60)))
    assert mf.tap(star).reliable


def test_machines_trained_on_digits_are_not_flagged():
    X = mf.datasets.load_digits(binary=True).X
    rbm = mf.GeneralizedRBM(
        25, learning_rate=0.1, n_epochs=20, batch_size=50, random_state=0
    ).fit(X)  # fmt: skip
    found = mf.tap(rbm.model_, X[:200])
    assert found.reliable.all() and found.converged.all()


def test_solution_of_small_weight_is_flagged_if_it_stands_for_the_machine():
    weights, field = np.full((8, 8), 0.6), np.zeros(8)
    field[:] = 0.05
    model = mf.RBM(weights, mf.Ising(field), mf.Ising(-2 * field))
    exact = mf.exact(model).log_partition
    for found in (mf.tap(model), mf.relaxed_bp(model)):
        assert not found.converged or found.reliable == (found.log_partition > exact - 0.7)
    assert not mf.adaptive_tap(model).reliable  # one of two phases, with means of either


def test_rows_with_fields_and_clamped_units():
    model, field = curie_weiss(10, 1.0), np.zeros((2, 10))
    field[1] = 3.0
    found = mf.tap(model, field=field)
    assert found.reliable.tolist() == [False, True]
    clamp = np.where(np.arange(10) < 9, 1.0, np.nan)
    assert mf.tap(model, clamp=clamp).reliable


def test_unchecked_results_say_none():
    model = glass(20, 2.0)
    found = mf.tap(model, log_partition=False)
    assert found.reliable is None and found.message == "converged"
    assert mf.tap(model, order=1).reliable is None
    gaussian = mf.RBM(
        np.ones((3, 30)) / 9, mf.Gaussian(np.zeros(3), np.ones(3)), mf.Ising(np.ones(30))
    )
    assert mf.tap(gaussian).reliable is None


def test_rows_that_have_not_converged_are_not_reliable():
    found = mf.tap(glass(50, 1.5), np.ones(50), max_iter=1)
    assert not found.converged and found.reliable == np.False_
    assert found.message.startswith("not converged") and "reliable" not in found.message


def test_pickles_hold_checks_that_were_made():
    found = mf.tap(glass(30, 0.5))
    assert pickle.loads(pickle.dumps(found)).reliable is None
    assert not found.reliable
    again = pickle.loads(pickle.dumps(found))
    assert again.reliable == found.reliable and again.message == found.message


@pytest.mark.parametrize("n, coupling", [(8, 2.0), (8, 0.0)])
def test_groups_are_compared_with_the_bound(n, coupling):
    couplings = coupling * np.kron(1 - np.eye(n), np.eye(3))
    model = mf.BoltzmannMachine(couplings, mf.Categorical(np.zeros((n, 3))))
    found = mf.tap(model)
    assert found.converged
    assert found.reliable == (found.log_partition > mf.exact(model).log_partition - 1)


def test_paramagnet_below_the_critical_temperature_is_flagged():
    found = mf.tap(mf.BoltzmannMachine(1.4 / 100 * (1 - np.eye(100)), mf.Ising(np.zeros(100))))
    assert found.converged and abs(found.mean).max() < 1e-6
    assert not found.reliable and "below a naive" in found.message


def test_radius_of_walks_against_the_matrix_of_directed_edges():
    rng = np.random.default_rng(2)
    for n in (5, 6):
        squares, var = np.square(rng.normal(size=(n, n))), rng.random(n)
        squares = np.triu(squares, 1) + np.triu(squares, 1).T
        edges = [(i, j) for i in range(n) for j in range(n) if i != j]
        growth = np.array(
            [
                [(i == k) * (j != h) * squares[h, i] * var[h] ** 2 for h, k in edges]
                for i, j in edges
            ]
        )
        radius = abs(np.linalg.eigvals(growth)).max()
        for factor, right in ((0.98, False), (1.02, True)):
            here = squares * factor / radius
            assert radius_exceeds_one(here, var, var, True) == right
            machine = mf.BoltzmannMachine(np.sqrt(here), mf.Ising(np.zeros(n)))
            assert unstable_rows(sides_of(machine), var[None]).tolist() == [right]
    tree = np.full((1, 50), 9.0)
    assert not radius_exceeds_one(tree, np.ones(1), np.ones(50), False)


def test_third_order_of_a_triangle():
    couplings = 1.5 * (1 - np.eye(3))
    sides = sides_of(mf.BoltzmannMachine(couplings, mf.Ising(np.zeros(3))))
    mean, var = np.zeros((1, 3)), np.ones((1, 3))
    # Third order 1.5^3 = 3.4, second 3 * 1.5^2 / 2 = 3.4 nats: equal at a coupling of 1.5.
    assert not third_order_exceeds(sides, mean, var)[0]
    larger = sides._replace(couplings=couplings * 1.01)
    assert third_order_exceeds(larger, mean, var)[0]


@pytest.mark.parametrize("scale", [1e60, 1e160, 1e300])
@pytest.mark.parametrize("sparse", [False, True])
def test_powers_of_huge_couplings_do_not_overflow(scale, sparse):
    couplings = scale * glass(6, 1.0).couplings
    model = mf.BoltzmannMachine(
        csr_array(couplings) if sparse else couplings, mf.Ising(np.zeros(6))
    )
    states = np.vstack([np.ones(6), np.zeros(6)])
    zeros = np.zeros((2, 6))
    found = FixedPoint(
        states, 1 - states**2, zeros, zeros, np.full(2, 2e300), np.ones(2, bool), zeros[:, 0],
        zeros[:, 0], np.array(["converged"] * 2),
    )  # fmt: skip
    # Frozen units respond to nothing; free ones make a spin glass.
    reasons = FixedPointCheck(
        mf.tap, model, Tilt(*np.zeros((2, 1, 6)), np.zeros((1, 6), bool)), True, False
    )(found)
    assert "unstable" not in reasons[0] and "unstable" in reasons[1]
