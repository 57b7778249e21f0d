"""Inclusion patterns, summed and drawn, against enumeration."""

import numpy as np
import pytest
from kernel_cases.regression import enumerated

import fastmf as mf
from fastmf.inference.ep import inclusion_patterns


def problem(kind, n=9):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(40, n))
    if kind == "correlated":
        X = X + 2 * rng.normal(size=(40, 1))
    if kind == "copies":
        X[:, 1:3] = X[:, :1] * [1, -3]
    y = X[:, 0] - 0.6 * X[:, 4] + rng.normal(size=40)
    if kind == "masked":
        X[:, 1] = 0.99 * X[:, 0] + 0.1 * X[:, 1]
        y = 5 * (X[:, 0] - X[:, 1]) + rng.normal(size=40)
    prior = mf.GaussBernoulli(np.zeros(n), np.linspace(0.5, 2, n), np.linspace(-3, -1, n))
    return mf.SparseLinearModel(X, y, 1.0, prior)


@pytest.mark.parametrize("kind", ["independent", "correlated", "copies", "masked"])
@pytest.mark.parametrize("most_summed", [0, 16])
def test_patterns_against_enumeration(kind, most_summed, monkeypatch):
    monkeypatch.setattr(inclusion_patterns, "MAX_SUMMED", most_summed)
    model = problem(kind)
    patterns, weights, *_ = enumerated(model)
    patterns, probability = patterns > 0, np.exp(weights - np.logaddexp.reduce(weights))
    found = inclusion_patterns.inclusion_patterns(model, probability @ patterns)
    assert found.probability.sum() == pytest.approx(1)
    tol = 1e-9 if most_summed else 0.03
    for features in ([0], [4], [0, 1, 2], [4, 8], list(range(9))):
        exact = probability @ patterns[:, features].any(1)
        assert found.any_of(features) == pytest.approx(exact, abs=tol)
    # The place of the effect among features 0 to 2 that is most like feature 0.
    likeness = np.array([2.0, 0.9, 0.8] + [-1.0] * 6)
    place, exists = np.argmax(patterns[:, :3], axis=1), patterns[:, :3].any(1)
    exact = np.bincount(place[exists], probability[exists], 9)
    remaining = found.included.copy()
    np.testing.assert_allclose(found.places(remaining, likeness), exact, atol=tol)
    np.testing.assert_array_equal(
        remaining.sum(1), found.included.sum(1) - found.included[:, :3].any(1)
    )


def test_many_effects_are_taken_as_independent():
    n = 60
    model = mf.SparseLinearModel(
        np.eye(n), np.zeros(n), 1.0, mf.GaussBernoulli(np.zeros(n), 1.0, 1.0)
    )
    included = np.full(n, 0.8)
    found = inclusion_patterns.inclusion_patterns(model, included)
    np.testing.assert_allclose(found.probability @ found.included, included, atol=0.02)
    assert found.any_of([0, 1]) == pytest.approx(0.96, abs=0.01)
