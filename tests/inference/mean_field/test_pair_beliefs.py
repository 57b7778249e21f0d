"""Belief propagation from the means of a solution: trees are exact, wrong answers flagged."""

import numpy as np
import pytest
from scipy.sparse import csr_array

import fastmf as mf
from fastmf.inference.mean_field import pair_beliefs as module
from fastmf.inference.mean_field.naive_bound import sides_of
from fastmf.inference.mean_field.pair_beliefs import pair_beliefs
from fastmf.inference.mean_field.pair_terms import PairTerms
from fastmf.kernels.mean_field.arguments import Tilt

pytestmark = pytest.mark.usefixtures("no_exact_sums")


def couplings_of(sizes, edges, rng, scale=1.0):
    """Random couplings of all states of these pairs of groups, dense and symmetric."""
    ends = np.cumsum(sizes)
    groups = [np.arange(end - size, end) for size, end in zip(sizes, ends, strict=True)]
    J = np.zeros((ends[-1], ends[-1]))
    for i, j in edges:
        J[np.ix_(groups[i], groups[j])] = scale * rng.normal(size=(sizes[i], sizes[j]))
    return J + J.T


def beliefs_of(model, tilt=None, mean=None):
    n = model.n_units if hasattr(model, "n_units") else sum(model.sizes)
    zero, free = np.zeros(n), np.zeros(n, bool)
    start = zero + 0.5 if mean is None else mean
    tilt = Tilt(zero, zero, free) if tilt is None else tilt
    return pair_beliefs(PairTerms(sides_of(model)), (start, zero, zero), tilt)


TREE = [(0, 1), (1, 2), (1, 3), (3, 4)]


@pytest.mark.parametrize("sparse", [False, True])
def test_trees_of_groups_are_exact(sparse):
    rng = np.random.default_rng(0)
    sizes = [3, 2, 4, 3, 2]
    J = couplings_of(sizes, TREE, rng, 2.0)
    prior = mf.Categorical([rng.normal(size=q) for q in sizes])
    model = mf.BoltzmannMachine(csr_array(J) if sparse else J, prior)
    found, exact = beliefs_of(model), mf.exact(model)
    assert found.converged and abs(found.mean - exact.mean).max() < 2e-3
    assert abs(found.log_partition - exact.log_partition) < 1e-4


def test_trees_of_scores_with_tilts_and_clamped_units_are_exact():
    rng = np.random.default_rng(1)
    J = couplings_of([1] * 5, TREE, rng, 0.7)
    weights = rng.normal(size=(5, 4))
    weights[2, 3] = -np.inf
    model = mf.BoltzmannMachine(J, mf.Ordinal(weights))
    field = rng.normal(size=5) / 2
    clamp = np.array([np.nan, np.nan, np.nan, 2.0, np.nan])
    held = ~np.isnan(clamp)
    found = beliefs_of(model, Tilt(field, np.zeros(5), held), np.where(held, clamp, 1.0))
    exact = mf.exact(model, field=field, clamp=clamp)
    assert found.converged and abs(found.mean - exact.mean).max() < 2e-3
    assert abs(found.log_partition - exact.log_partition) < 1e-4


def test_layered_tree_and_machine_without_couplings():
    rng = np.random.default_rng(2)
    W = np.zeros((6, 2))
    W[:4, 0], W[2:, 1] = rng.normal(size=4), 0
    W[4:, 1] = rng.normal(size=2)
    model = mf.RBM(W, mf.Categorical(rng.normal(size=(2, 3))), mf.Bernoulli(rng.normal(size=2)))
    for weights in (W, 0 * W):
        model = mf.RBM(weights, model.visible, model.hidden)
        found, exact = beliefs_of(model), mf.exact(model)
        assert abs(found.mean - np.concatenate(exact.mean)).max() < 2e-3
        assert abs(found.log_partition - exact.log_partition) < 1e-4


def test_loopy_machines_end_at_the_fixed_point_of_belief_propagation():
    for seed in range(5):
        rng = np.random.default_rng(seed)
        pairs = [(i, j) for i in range(6) for j in range(i)]
        J = couplings_of([3] * 6, pairs, rng, 0.5)
        model = mf.BoltzmannMachine(J, mf.Categorical(rng.normal(size=(6, 3)) / 4))
        solved = mf.belief_propagation(model)
        found = beliefs_of(model, mean=mf.tap(model).mean)
        assert solved.converged and abs(found.mean - solved.mean).max() < 2e-3
        assert abs(found.log_partition - solved.log_partition) < 1e-4


def test_frozen_pairs_overflow_nothing():
    model = mf.BoltzmannMachine(
        2e3 * np.kron(1 - np.eye(2), np.eye(3)), mf.Categorical([[0.0, 1, 2], [0, 0, 0]])
    )
    found, exact = beliefs_of(model), mf.exact(model)
    assert abs(found.mean - exact.mean).max() < 2e-3
    assert abs(found.log_partition - exact.log_partition) < 1e-3


def test_large_tables_are_left_alone(monkeypatch):
    rng = np.random.default_rng(0)
    model = mf.BoltzmannMachine(
        couplings_of([3] * 4, TREE[:3], rng, 2.2), mf.Categorical(np.zeros((4, 3)))
    )
    assert "belief propagation from its means" in mf.tap(model).message
    monkeypatch.setattr(module, "MAX_MESSAGE_NUMBERS", 10)
    assert "belief propagation from its means" not in mf.tap(model).message


@pytest.mark.parametrize("order", [2, 3])
def test_random_potts_machines_are_flagged_where_they_are_wrong(order):
    wrong = silent = right = false = 0
    for seed in range(60):
        rng = np.random.default_rng([seed, order, 77])
        n, q = int(rng.integers(4, 7)), int(rng.integers(3, 5))
        strength = rng.choice([0.2, 0.5, 1.0, 2.0])
        pairs = [(i, j) for i in range(n) for j in range(i) if rng.random() < 0.8]
        J = couplings_of([q] * n, pairs, rng, strength)
        model = mf.BoltzmannMachine(J, mf.Categorical(rng.normal(size=(n, q)) / 3))
        found, exact = mf.tap(model, order=order), mf.exact(model)
        error = abs(found.mean - exact.mean)
        off = abs(found.log_partition - exact.log_partition)
        bad = bool(found.converged) and (error.max() > 0.2 or error.mean() > 0.05 or off > 1)
        good = bool(found.converged) and error.max() < 0.05 and off < 0.2
        wrong, silent = wrong + bad, silent + (bad and bool(found.reliable))
        right, false = right + good, false + (good and not found.reliable)
    assert wrong >= 10 and silent <= wrong // 8
    assert right >= 20 and false <= right // 15
