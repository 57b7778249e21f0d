"""Inclusion patterns, summed and drawn, against enumeration."""

import itertools

import mpmath
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


# --- sums over all patterns, against enumeration by covariances of y ---


P = 6


def dependent_columns(noise):
    """Equal, nearly equal and independent columns, with slabs of different widths and means."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(8, P))
    X[:, 1], X[:, 3] = X[:, 0], X[:, 2] + 1e-3 * X[:, 3]
    y = X[:, 0] + 0.4 * X[:, 2] + np.sqrt(noise) * rng.normal(size=8)
    prior = mf.GaussBernoulli(
        np.linspace(-0.5, 0.5, P), np.linspace(0.5, 2, P), np.linspace(-1.5, -0.5, P)
    )
    return mf.SparseLinearModel(X, y, noise, prior)


def with_many_digits(model, always):
    """Inclusion probabilities and log-weight against that of none, in extended precision."""
    prior, patterns, weights = model.prior, [], []

    def log_density(z):
        slab = [1 / mpmath.mpf(float(p)) for p in prior.precision]
        mean = [mpmath.mpf(float(f)) * v for f, v in zip(prior.field, slab, strict=True)]
        X = mpmath.matrix(model.X.tolist())
        own = [j for j in range(P) if z[j]]
        covariance = mpmath.mpf(float(model.noise_variance)) * mpmath.eye(len(model.y))
        rest = mpmath.matrix(model.y.tolist())
        for j in own:
            covariance += slab[j] * X[:, j] * X[:, j].T
            rest -= mean[j] * X[:, j]
        lower = mpmath.cholesky(covariance)
        white = mpmath.lu_solve(lower, rest)
        volume = sum(mpmath.log(lower[i, i]) for i in range(len(model.y)))
        return sum(float(prior.log_odds[j]) for j in own) - (white.T * white)[0] / 2 - volume

    with mpmath.workdps(60):
        none = log_density([0] * P)
        for z in itertools.product([0, 1], repeat=P):
            if all(z[j] for j in np.flatnonzero(always)):
                patterns.append(z)
                weights.append(log_density(z) - none)
        top = max(weights)
        weights = np.array([float(weight - top) for weight in weights])
    total = np.logaddexp.reduce(weights)
    return np.exp(weights - total) @ np.array(patterns), total + float(top)


@pytest.mark.parametrize(("noise", "first"), [(0.5, ()), (1e-16, (2, 5))])
def test_sums_against_enumeration(noise, first):
    model = dependent_columns(noise)
    always = np.isin(np.arange(P), first)
    patterns, probability, log_weight = inclusion_patterns.summed_patterns(model, always)
    inclusion = probability @ patterns
    expected, total = with_many_digits(model, always)
    np.testing.assert_allclose(inclusion, expected, atol=1e-6)
    np.testing.assert_allclose(log_weight, total, rtol=1e-9)


def test_few_rows_and_features_that_are_never_in():
    model = dependent_columns(0.5)
    prior = model.prior._replace(log_odds=np.where(np.arange(P) == 4, -np.inf, 0.0))
    few = mf.SparseLinearModel(model.X[:3], model.y[:3], 0.5, prior)
    patterns, probability, log_weight = inclusion_patterns.summed_patterns(few, np.zeros(P, bool))
    inclusion = probability @ patterns
    rest = np.arange(P) != 4
    parts = (part[rest] for part in prior)
    without = mf.SparseLinearModel(few.X[:, rest], few.y, 0.5, mf.GaussBernoulli(*parts))
    patterns, probability, total = inclusion_patterns.summed_patterns(
        without, np.zeros(P - 1, bool)
    )
    assert inclusion[4] == 0
    np.testing.assert_allclose(inclusion[rest], probability @ patterns, atol=1e-12)
    np.testing.assert_allclose(log_weight, total, rtol=1e-12)
