"""Checks of beliefs: fixed points of small weight are flagged, and uniqueness is proved."""

import pickle

import numpy as np

import fastmf as mf
from fastmf.inference.checks.rows import Reason


def random_machine(strength, seed=0, n=10, units=mf.Ising):
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=(n, n - 1)) * strength
    return mf.RBM(weights, units(rng.normal(size=n)), units(rng.normal(size=n - 1)))


def test_fixed_point_of_small_weight_is_flagged():
    model = mf.RBM(np.ones((8, 7)), mf.Ising(np.full(8, 0.5)), mf.Ising(np.zeros(7)))
    down = np.full((8, 7), -4.0)
    exact = mf.exact(model).log_partition
    wrong, right = mf.belief_propagation(model, init=down), mf.belief_propagation(model)
    assert wrong.converged and wrong.log_partition < exact - 5
    assert wrong.reliable == np.False_ and Reason.EXACT in wrong.message
    assert abs(right.log_partition - exact) < 0.1
    assert right.reliable and right.message == "converged"


def test_flagged_rows_are_wrong_and_accurate_ones_are_not_flagged():
    n_flagged = 0
    for seed in range(30):
        strength = 10 ** np.random.default_rng(seed).uniform(-1, 1)
        for units in (mf.Ising, mf.Bernoulli):
            model = random_machine(strength, seed, units=units)
            found = mf.belief_propagation(model)
            exact = mf.exact(model)
            lacking = np.concatenate(exact.mean) - np.concatenate(found.mean)
            errors = abs(lacking) / (2 if units is mf.Ising else 1)
            nats = abs(found.log_partition - exact.log_partition)
            right = nats <= 1 and errors.mean() <= 0.05 and errors.max() <= 0.2
            assert found.reliable == (right and found.converged)
            n_flagged += not found.reliable and found.converged
    assert n_flagged >= 2


def test_rows_have_checks_of_their_own_fields():
    model = mf.RBM(np.ones((8, 7)), mf.Ising(np.zeros(8)), mf.Ising(np.zeros(7)))
    field = np.array([[0.5] * 8, [-0.5] * 8])
    found = mf.belief_propagation(model, field=field, init=np.full((2, 8, 7), -4.0))
    assert found.converged.all() and found.reliable.tolist() == [False, True]
    assert found.message[1] == "converged" and found.message[0] != "converged"
    pair = mf.belief_propagation(model, field=(field[1], np.zeros(7)))
    assert pair.reliable


def test_uniqueness_is_proved_where_couplings_are_weak():
    assert mf.belief_propagation(random_machine(0.05)).unique is True
    strong = mf.belief_propagation(random_machine(2.0))
    assert strong.unique is None
    weak = mf.belief_propagation(random_machine(0.05))
    assert weak.unique and weak.spectral_radius < 1
    tree = mf.RBM(np.full((1, 5), 3.0), mf.Ising(np.zeros(1)), mf.Ising(np.zeros(5)))
    assert mf.belief_propagation(tree).unique


def test_categorical_units_are_compared_with_exact_sums():
    n_flagged = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        fields, weights = rng.normal(size=(4, 3)), rng.normal(size=(12, 5)) * 3
        model = mf.RBM(weights, mf.Categorical(fields), mf.Bernoulli(rng.normal(size=5)))
        found, exact = mf.belief_propagation(model), mf.exact(model)
        errors = abs(np.concatenate(exact.mean) - np.concatenate(found.mean))
        right = errors.mean() <= 0.05 and errors.max() <= 0.2
        right = right and abs(found.log_partition - exact.log_partition) <= 1
        assert found.reliable == (right and found.converged)
        n_flagged += not right and found.converged
    assert n_flagged
    large = mf.RBM(np.ones((60, 40)) / 99, mf.Categorical(np.zeros((20, 3))), mf.Ising(np.ones(40)))
    assert mf.belief_propagation(large).reliable


def test_results_without_checks_say_none():
    model = random_machine(0.1)
    decoded = mf.most_probable(model, search=False)
    assert decoded.reliable is None and decoded.unique is None
    found = pickle.loads(pickle.dumps(mf.belief_propagation(model)))
    assert found.reliable is None and found.unique is None
