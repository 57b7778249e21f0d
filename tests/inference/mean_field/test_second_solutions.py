"""Second solutions of machines of many values, against enumeration."""

import numpy as np
import pytest
from scipy.sparse import csr_array

import fastmf as mf
from fastmf.inference.mean_field.second_solutions import (
    _opposite,
    extreme_starts,
    has_many_values,
)

MODULE = "fastmf.inference.mean_field.second_solutions."


@pytest.fixture(params=[True, False], ids=["sums", "no sums"])
def sums(request, monkeypatch):
    """Verdicts with exact sums, and as of larger machines, of which there are none."""
    if not request.param:
        for limit in ("MAX_NUMBERS", "MAX_ENTRIES"):
            monkeypatch.setattr(f"fastmf.inference.mean_field.exact_check.{limit}", 0)


pytestmark = pytest.mark.usefixtures("no_exact_sums")


def two_phases(coupling=0.35, n=8, lean=0.0, sparse=False):
    """Scores 0 to 3, coupled alike, with thresholds that make high and low ones alike."""
    couplings = coupling * (1 - np.eye(n))
    field = -coupling * (n - 1) * 1.5 + lean
    weights = np.outer(np.ones(n), field * np.arange(4))
    return mf.BoltzmannMachine(csr_array(couplings) if sparse else couplings, mf.Ordinal(weights))


def test_starts_of_scores_and_groups():
    ordinal = mf.Ordinal([[0.0, 0, 0], [0, 0, -np.inf]])
    assert extreme_starts(ordinal).tolist() == [[0, 0], [2, 1]]
    groups = mf.Categorical([np.zeros(2), np.zeros(3)])
    assert extreme_starts(groups).tolist() == [[1, 0, 1, 0, 0], [0, 1, 0, 1, 0], [0, 1, 0, 0, 1]]
    assert extreme_starts(mf.Ising(np.zeros(2))).tolist() == [[-1, -1], [1, 1]]
    assert has_many_values([ordinal, mf.Ising(np.zeros(1))])
    assert not has_many_values([mf.Ising(np.zeros(1))])
    assert not has_many_values([ordinal, mf.Gaussian([0.0], [1.0])])
    assert _opposite(ordinal, np.array([[0.5, 1.0]])).tolist() == [[1.5, 0]]
    mean = np.array([[0.75, 0.25, 1.0, 0.0, 0.0]])
    assert _opposite(groups, mean).tolist() == [[0.25, 0.75, 0, 0.5, 0.5]]


@pytest.mark.parametrize("kind", ["extremes", "opposite"])
def test_each_kind_of_start_finds_the_other_phase(kind, monkeypatch):
    monkeypatch.setattr(MODULE + "random_starts", lambda model, *_: np.zeros((1, model.n_units)))
    if kind == "extremes":
        monkeypatch.setattr(MODULE + "_opposite", lambda prior, mean: mean)
    else:
        monkeypatch.setattr(MODULE + "extreme_starts", lambda prior: np.zeros((0, 8)))
    assert "another solution" in mf.tap(two_phases(lean=0.05)).message


@pytest.mark.parametrize("sparse", [False, True])
def test_one_of_two_phases_is_not_reliable_and_starts_mix_both(sparse):
    model = two_phases(sparse=sparse)
    exact, found = mf.exact(two_phases()), mf.tap(model)
    assert found.converged and abs(found.mean - exact.mean).max() > 1
    low = mf.tap(model, np.zeros(8))  # asked for
    assert low.converged and low.mean.max() < 0.1 and low.reliable
    assert not found.reliable and "another solution has other means" in found.message
    mixed = mf.tap(model, n_starts=5, rng=0)
    assert abs(mixed.mean - exact.mean).max() < 0.05
    assert abs(mixed.var - exact.var).max() < 0.1
    assert abs(mixed.log_partition - exact.log_partition) < 0.1
    assert len(mixed.solutions.free_energy) == 2 and len(mixed.solutions.members) == 7


@pytest.mark.parametrize("solve", [mf.tap, mf.relaxed_bp, mf.adaptive_tap])
def test_silent_phase_is_flagged_by_all_solvers(solve):
    for lean in (0.05, -0.05):
        model = two_phases(lean=lean)
        found, exact = solve(model), mf.exact(model)
        assert abs(found.mean - exact.mean).max() < 0.3 or not found.reliable


@pytest.mark.usefixtures("sums")
def test_weak_couplings_have_one_solution():
    for coupling in (0.01, 0.05, 0.08):
        model = two_phases(coupling, lean=0.1)
        found = mf.tap(model)
        assert found.reliable and found.message == "converged"
        assert abs(found.mean - mf.exact(model).mean).max() < 0.1


@pytest.mark.usefixtures("sums")
def test_phase_of_small_weight_does_not_matter():
    model = two_phases(lean=-0.4)
    found, exact = mf.tap(model), mf.exact(model)
    assert abs(found.mean - exact.mean).max() < 0.05 and found.reliable


def test_clamped_and_tilted_rows_are_checked_one_by_one():
    model = two_phases()
    clamp = np.full((2, 8), np.nan)
    clamp[1, :4] = 3.0  # leaves the high phase alone
    found = mf.tap(model, clamp=clamp)
    assert found.reliable.tolist() == [False, True]
    field = np.zeros((2, 8))
    field[1] = -1.0
    assert mf.tap(model, field=field).reliable.tolist() == [False, True]


def test_potts_ferromagnet_and_layered_machine():
    groups = mf.Categorical(np.zeros((6, 3)))
    couplings = 1.1 * np.kron(1 - np.eye(6), np.eye(3))
    model = mf.BoltzmannMachine(couplings, groups)
    found = mf.tap(model, n_starts=5, rng=0)
    assert abs(found.mean - 1 / 3).max() < 0.02 and len(found.solutions.free_energy) == 3
    assert not mf.tap(model).reliable
    weights = np.full((7, 4), 0.7)
    rbm = mf.RBM(
        weights, mf.Ordinal(np.outer(np.ones(7), -1.4 * np.arange(4))),
        mf.Bernoulli(np.full(4, -0.7 * 7 * 1.5)),
    )  # fmt: skip
    exact = mf.exact(rbm)
    assert not mf.tap(rbm).reliable
    mixed = mf.tap(rbm, n_starts=5, rng=0)
    assert abs(mixed.mean[0] - exact.mean[0]).max() < 0.1


def test_random_machines_are_flagged_where_they_are_wrong():
    wrong = silent = false = right = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        n, strength = 5, rng.choice([0.1, 0.3, 0.6, 1.2])
        couplings = np.triu(strength * rng.uniform(0.3, 1, (n, n)), 1) * rng.choice([-1, 1])
        couplings += couplings.T
        weights = np.outer(-1.5 * couplings.sum(1), np.arange(4)) + rng.normal(size=(n, 4)) / 4
        model = mf.BoltzmannMachine(couplings, mf.Ordinal(weights))
        found, exact = mf.tap(model), mf.exact(model)
        error = abs(found.mean - exact.mean).max() / 3
        off = abs(found.log_partition - exact.log_partition)
        wrong += (bad := error > 0.2 or off > 1)
        silent += bad and found.reliable
        right += (good := error < 0.05 and off < 0.2 and bool(found.converged))
        false += good and not found.reliable
    assert wrong >= 10 and silent <= wrong // 10
    assert right >= 15 and false <= right // 10
