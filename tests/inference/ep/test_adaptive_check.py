"""Checks of adaptive TAP without exact sums, against enumeration."""

import numpy as np
import pytest

import fastmf as mf
from fastmf.inference.ep import adaptive_check
from fastmf.inference.mean_field import reliability
from fastmf.inference.mean_field.exact_check import ranges


@pytest.fixture(autouse=True)
def without_exact_sums(monkeypatch):
    monkeypatch.setattr(reliability, "reasons_by_exact_sums", lambda *_: None)


def couplings(kind, rng, strength):
    n = int(rng.integers(7, 12))
    normal = np.triu(rng.normal(size=(n, n)), 1) * strength
    J = {
        "spin glass": normal / np.sqrt(n),
        "ferromagnet": abs(normal) / n,
        "antiferromagnet": -abs(normal) / np.sqrt(n),
        "sparse": normal * (rng.random((n, n)) < 2.5 / n),
    }[kind]
    return J + J.T


def layers(rng, strength):
    n, m = int(rng.integers(6, 12)), int(rng.integers(3, 8))
    weights = rng.normal(size=(n, m)) * strength * 1.4 / np.sqrt(n)
    fields = [rng.choice([0, 0.5]) * rng.normal(size=k) for k in (n, m)]
    return mf.RBM(weights, *map(mf.Ising, fields))


def machine(kind, seed):
    rng = np.random.default_rng([seed, len(kind)])
    strength = np.exp(rng.uniform(np.log(0.3), np.log(4)))
    if kind == "layers":
        return layers(rng, strength)
    J = couplings(kind, rng, strength)
    field = rng.choice([0, 0.3, 1]) * rng.normal(size=len(J))
    if seed % 2:
        return mf.BoltzmannMachine(J, mf.Ising(field))
    return mf.BoltzmannMachine(4 * J, mf.Bernoulli(2 * (field - J.sum(1))))


def joined(parts):
    return np.concatenate(parts) if isinstance(parts, tuple) else parts


def is_right(model, found):
    exact = mf.exact(model)
    width = [ranges(prior, np.ones((1, prior.field.size)))[0] for prior in model.layers]
    error = abs(joined(found.mean) - joined(exact.mean)) / np.concatenate(width)
    near = abs(found.log_partition - exact.log_partition) <= 1
    return near and error.max() <= 0.2 and error.mean() <= 0.05


KINDS = "spin glass", "ferromagnet", "antiferromagnet", "sparse", "layers"


def test_wrong_rows_are_flagged_and_right_ones_are_not():
    wrong = silent = right = false = 0
    for kind in KINDS:
        for seed in range(12):
            model = machine(kind, seed)
            found = mf.adaptive_tap(model)
            good = bool(found.converged) and is_right(model, found)
            bad = bool(found.converged) and not good
            wrong, silent = wrong + bad, silent + (bad and bool(found.reliable))
            right, false = right + good, false + (good and not found.reliable)
    # Without these checks more than half of the wrong ones were silent.
    assert wrong >= 12 and silent <= wrong // 5
    assert right >= 30 and false <= right // 10


def test_one_of_two_phases_is_flagged_if_it_stands_for_the_machine():
    model = mf.BoltzmannMachine(3 * (1 - np.eye(8)) / 8, mf.Ising(np.full(8, 0.01)))
    found = mf.adaptive_tap(model)
    assert found.converged and not is_right(model, found)
    assert not found.reliable and "from other starts" in found.message
    # A start chooses one of them: that is what was asked for.
    started = mf.adaptive_tap(model, np.ones(8))
    assert started.reliable and started.mean.min() > 0.9


@pytest.mark.parametrize("n_pairs", [5, 40])
def test_pairs_are_flagged_if_their_errors_add_up_to_a_nat(n_pairs):
    pair = np.array([[0, 0.8], [0.8, 0]])
    units = mf.Ising(np.full(2 * n_pairs, 0.2))
    found = mf.adaptive_tap(mf.BoltzmannMachine(np.kron(np.eye(n_pairs), pair), units))
    exact = n_pairs * mf.exact(mf.BoltzmannMachine(pair, mf.Ising([0.2, 0.2]))).log_partition
    assert found.reliable == (abs(found.log_partition - exact) <= 1) == (n_pairs == 5)
    assert found.reliable or "single pairs" in found.message


@pytest.mark.parametrize(("strength", "right"), [(1, True), (3, False)])
def test_machines_with_gaussian_units_are_checked(strength, right):
    weights = strength * np.random.default_rng(0).normal(size=(9, 2))
    # Symmetric under a flip of all visible units.
    visible = mf.Bernoulli(-(weights @ weights.sum(0)) / 8)
    model = mf.RBM(weights, visible, mf.Gaussian(np.zeros(2), np.full(2, 4.0)))
    found, exact = mf.adaptive_tap(model), mf.exact(model)
    assert found.converged
    assert (abs(found.mean[0] - exact.mean[0]).max() < 0.05) == found.reliable == right


def test_rows_of_fields_are_checked_each_alone():
    model = mf.BoltzmannMachine(3 * (1 - np.eye(8)) / 8, mf.Ising(np.zeros(8)))
    fields = np.array([0.01, 2.0])[:, None] * np.ones(8)
    found = mf.adaptive_tap(model, field=fields)
    assert found.converged.all()
    np.testing.assert_array_equal(found.reliable, [False, True])


def test_large_problems_keep_the_other_checks(monkeypatch):
    monkeypatch.setattr(adaptive_check, "MAX_STARTED_NUMBERS", 100)
    monkeypatch.setattr(adaptive_check, "MAX_PAIR_TABLE_NUMBERS", 100)
    ferromagnet = mf.BoltzmannMachine(3 * (1 - np.eye(8)) / 8, mf.Ising(np.full(8, 0.01)))
    message = mf.adaptive_tap(ferromagnet).message
    assert "from other starts" not in message and "single pairs" not in message
    zeros, ones = np.zeros(3), np.ones(3)
    layered = mf.RBM(np.eye(3) / 2, mf.TruncatedGaussian(zeros, ones, zeros, ones), mf.Ising(zeros))
    assert mf.adaptive_tap(layered).reliable
