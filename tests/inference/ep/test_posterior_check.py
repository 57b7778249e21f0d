"""What is said to be reliable, against enumeration and known failures."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from kernel_cases.regression import equal_columns, exact, problem

import fastmf as mf
from fastmf.inference.ep.posterior_check import Comparison, compared, reason_of
from fastmf.inference.fixed_point import ending_of, with_check
from fastmf.special import sigmoid


@pytest.fixture(params=["sums", "chains"])
def how(request, monkeypatch):
    """Both ways of the comparison: of few features all patterns are summed."""
    if request.param == "chains":
        monkeypatch.setattr("fastmf.inference.ep.posterior_check.MAX_SUMMED", 0)
    return request.param


def copies():
    """Two equal columns with an effect: each is as likely as the other."""
    prior = mf.GaussBernoulli(np.zeros(4), 0.1, np.full(4, np.log(0.02 / 0.98)))
    return mf.SparseLinearModel(*equal_columns(), 0.01, prior)


@pytest.mark.parametrize("schedule", ["auto", "convergent"])
def test_copies_with_a_site_each_are_flagged(schedule, how):
    found = mf.expectation_propagation(copies(), schedule=schedule)
    assert found.converged
    assert not found.reliable
    named = {"sums": "by a sum over all models", "chains": "by chains over models"}[how]
    assert named in found.message or "nats below" in found.message


def test_copies_in_a_block_are_reliable():
    found = mf.expectation_propagation(copies(), blocks="auto", schedule="auto")
    assert found.reliable
    assert found.message == "converged"


@pytest.mark.parametrize("seed", range(3))
def test_comparisons_with_enumeration(seed, how):
    model, _ = problem(20, 10, seed, noise=1.0)
    evidence, _, _, included = exact(model)
    found = mf.expectation_propagation(model, schedule="auto")
    chains = compared(model, included)
    assert (abs(chains.inclusion - included) < 5 * chains.error + 2e-3).all()
    assert chains.error.max() < (0.03 if how == "chains" else 1e-300)
    assert not reason_of(chains, included)
    # Evidence of the pattern of none, by its definition.
    none = -(model.y @ model.y) / 2 - 10 * np.log(2 * np.pi)
    none -= np.logaddexp(0, model.prior.log_odds).sum()
    assert evidence - 0.3 < chains.log_weight + none <= evidence + 1e-9
    assert found.reliable
    wrong = included.copy()
    wrong[4] += 0.3 if wrong[4] < 0.5 else -0.3
    assert "feature 4" in reason_of(chains, wrong)


@pytest.mark.parametrize("unit", [1e-9, 1e-3, 1e3])
def test_units_of_measurement_change_nothing(unit):
    model = copies()
    prior = model.prior._replace(precision=model.prior.precision / unit**2)
    scaled = mf.SparseLinearModel(model.X, model.y * unit, 0.01 * unit**2, prior)
    assert not mf.expectation_propagation(scaled, schedule="auto").reliable
    assert mf.expectation_propagation(scaled, blocks="auto").reliable


@pytest.mark.parametrize(
    "apart, error, said", [(0.09, 0, False), (0.11, 0, True), (0.3, 0.11, False), (0.3, 0.09, True)]
)
def test_a_tenth_and_three_standard_errors_are_a_reason(apart, error, said):
    chains = Comparison(np.arange(2), np.zeros(2), np.full(2, float(error)), 0.0)
    assert bool(reason_of(chains, np.array([0.0, apart]))) == said


def test_missing_evidence_is_a_reason():
    model, _ = problem(20, 10, 0)
    found = mf.expectation_propagation(model, schedule="auto")
    check = found.__dict__["_check"]
    assert check(found) == [""]
    lower = replace(found, log_evidence=found.log_evidence - 1, message=ending_of(found))
    lower = with_check(lower, check)
    assert not lower.reliable
    assert "nats below that of some models" in lower.message


def test_two_regions_of_different_weight(how):
    """Chains that start from a wrong answer must not confirm it."""
    rng = np.random.default_rng(3)
    n, p = 40, 6
    X = rng.normal(size=(n, p))
    X[:, 2] = X[:, 0] + X[:, 1] + 0.4 * rng.normal(size=n)
    y = X[:, 0] + X[:, 1] + 0.2 * rng.normal(size=n)
    prior = mf.GaussBernoulli(np.zeros(p), 1.0, np.full(p, -3.0))
    model = mf.SparseLinearModel(X, y, 0.04, prior)
    _, _, _, included = exact(model)
    wrong = np.full(p, 0.001)
    wrong[2] = 1.0
    assert included[0] > 0.99 > 0.01 > included[2]
    assert reason_of(compared(model, wrong), wrong)
    assert not reason_of(compared(model, included), included)


def test_features_that_are_always_in_and_slabs_with_means(how):
    rng = np.random.default_rng(5)
    X = rng.normal(size=(30, 9))
    y = X[:, 0] + 0.3 * X[:, 1] + rng.normal(size=30)
    log_odds = np.where(np.arange(9) < 2, 40.0, -1.0)
    prior = mf.GaussBernoulli(np.full(9, 0.3), 1.5, log_odds)
    model = mf.SparseLinearModel(X, y, 1.0, prior)
    _, _, _, included = exact(model)
    chains = compared(model, included)
    np.testing.assert_array_equal(chains.features, np.arange(2, 9))
    assert (abs(chains.inclusion - included[2:]) < 5 * chains.error + 2e-3).all()
    assert mf.expectation_propagation(model, schedule="auto").reliable


def test_of_many_features_the_likely_ones_count():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 600))
    y = X[:, 3] - X[:, 500] + 0.5 * rng.normal(size=60)
    prior = mf.GaussBernoulli(np.zeros(600), 1.0, np.full(600, -np.log(300)))
    model = mf.SparseLinearModel(X, y, 0.25, prior)
    found = mf.expectation_propagation(model, schedule="auto")
    assert found.reliable
    chains = compared(model, sigmoid(prior.tilted_log_odds(found.b, found.a)))
    assert len(chains.features) == 400
    assert {3, 500} <= set(chains.features)
    # At most one effect is expected among the features that are left out.
    assert compared(model, np.full(600, 0.9 / 200)) and not compared(model, np.full(600, 1.1 / 200))


def test_what_cannot_be_checked():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 200)), rng.normal(size=40)
    dense = mf.SparseLinearModel(X, y, 1.0, mf.GaussBernoulli(np.zeros(200), 1e4, 0.5))
    assert mf.expectation_propagation(dense).reliable is None
    plain = mf.SparseLinearModel(X, y, 1.0, mf.Gaussian(np.zeros(200), 1.0))
    assert mf.expectation_propagation(plain).reliable is None
    others = mf.Concatenated(
        mf.GaussBernoulli(np.zeros(150), 1.0, -3.0), mf.Gaussian(np.zeros(50), 1.0)
    )
    mixed = mf.expectation_propagation(mf.SparseLinearModel(X, y, 1.0, others), schedule="auto")
    assert mixed.reliable is None
    assert mixed.message == "converged"
    stopped = mf.expectation_propagation(copies(), max_iter=1)
    assert not stopped.converged
    assert not stopped.reliable
    assert stopped.message.startswith("not converged")


def test_a_loaded_result_has_no_model_to_check():
    found = mf.expectation_propagation(copies())
    loaded = pickle.loads(pickle.dumps(found))
    assert loaded.reliable is None
    np.testing.assert_array_equal(loaded.mean, found.mean)
