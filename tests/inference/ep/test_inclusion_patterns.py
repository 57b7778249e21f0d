"""The search for inclusion patterns against enumeration."""

import itertools

import numpy as np
import pytest

from fastmf.inference.ep.inclusion_patterns import Patterns, cavity_of, search_patterns


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
    return X.T @ y, X.T @ X, np.linspace(-3, -1, n), np.linspace(0.5, 2, n)


@pytest.mark.parametrize("kind", ["independent", "correlated", "copies", "masked"])
def test_patterns_against_enumeration(kind):
    g, P, log_odds, precision = problem(kind)
    n, weights, patterns = len(g), [], []
    for pattern in itertools.product([False, True], repeat=n):
        z = np.array(pattern)
        Q = P[np.ix_(z, z)] + np.diag(precision[z])
        weight = g[z] @ np.linalg.solve(Q, g[z]) / 2 - np.linalg.slogdet(Q)[1] / 2
        weights.append(weight + (log_odds + np.log(precision) / 2)[z].sum())
        patterns.append(z)
    probability = np.exp(weights - np.logaddexp.reduce(weights))
    exact = Patterns(np.array(patterns), probability)
    found = search_patterns(g, P, log_odds, precision)
    assert found.probability.sum() == pytest.approx(1)
    np.testing.assert_allclose(found.inclusion(), exact.inclusion(), atol=2e-3)
    for features in ([0], [0, 1, 2], [4, 8], list(range(n))):
        assert found.any_of(features) == pytest.approx(exact.any_of(features), abs=2e-3)
    both = Patterns.mixed([found, exact], [0.25, 0.75])
    np.testing.assert_allclose(both.inclusion(), exact.inclusion(), atol=2e-3)


def test_the_cavity_is_the_gaussian_without_the_sites():
    rng = np.random.default_rng(0)
    A = np.cov(rng.normal(size=(5, 20)))
    h, t, T = rng.normal(size=5), rng.normal(size=2), np.array([[0.3, 0.1], [0.1, -0.2]])
    whole = A.copy()
    whole[:2, :2] += T
    covariance = np.linalg.inv(whole)
    mean = covariance @ (h + np.append(t, np.zeros(3)))
    g, P = cavity_of(covariance[:2, :2], mean[:2], t, T)
    expected = np.linalg.inv(np.linalg.inv(A)[:2, :2])
    np.testing.assert_allclose(P, expected, atol=1e-9)
    np.testing.assert_allclose(g, expected @ np.linalg.solve(A, h)[:2], atol=1e-9)


def test_improper_cavities_and_single_units():
    found = search_patterns(np.array([0.3]), np.array([[-0.5]]), np.zeros(1), np.ones(1))
    odds = np.exp(0.3**2 / 2 / 0.5) / np.sqrt(0.5)
    assert found.inclusion()[0] == pytest.approx(odds / (1 + odds))
    # A pair that is improper together is left out.
    found = search_patterns(
        np.zeros(2), np.array([[0.0, 2.0], [2.0, 0.0]]), np.zeros(2), np.ones(2)
    )
    np.testing.assert_allclose(found.inclusion(), [1 / 3, 1 / 3])
