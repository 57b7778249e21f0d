"""Joint draws against enumeration."""

import numpy as np
import pytest
from kernel_cases.regression import enumerated
from scipy.special import ndtr

import fastmf as mf
from fastmf.inference.sampling.spike_slab import SparsePosterior, draw_coefficients


def problem(kind):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(25, 6))
    if kind == "copies":
        X[:, 1], X[:, 3] = X[:, 0], -2 * X[:, 2]
    if kind == "correlated":
        X[:, 1:4] = 0.95 * X[:, :1] + 0.3 * X[:, 1:4]
    if kind == "masked":  # two features that are seen together only
        X[:, 1] = 0.9 * X[:, 0] + 0.44 * X[:, 1]
        return X, X[:, 0] - X[:, 1] + 0.5 * rng.normal(size=25), 0.25
    return X, X[:, 0] + 0.4 * X[:, 2] + 0.7 * rng.normal(size=25), 0.5


@pytest.mark.parametrize("kind", ["independent", "copies", "correlated", "masked"])
def test_against_enumeration(kind):
    X, y, noise = problem(kind)
    dtype = np.float32 if kind == "correlated" else np.float64
    unit = np.geomspace(0.01, 1e4, 6)  # so that logarithms of precisions are large, and differ
    X = (unit * X).astype(dtype)
    log_odds, precision = np.full(6, -1.0), unit**2 * np.linspace(0.5, 2, 6)
    prior = mf.GaussBernoulli(np.zeros(6), precision, log_odds)
    patterns, weights, means, seconds = enumerated(mf.SparseLinearModel(X, y, noise, prior))
    probability = np.exp(weights - np.logaddexp.reduce(weights))
    mean, second = unit * (probability @ means), np.tensordot(probability, seconds, 1)
    second *= np.outer(unit, unit)
    # From a poor start: all equal.
    start = np.full(6, 0.3), (np.zeros(6), np.ones(6))
    posterior = SparsePosterior(X, y, noise, log_odds, precision)
    n = 2500
    draws = unit * draw_coefficients(posterior, *start, n, np.random.default_rng(0), 30)
    errors = np.sqrt(np.maximum(second.diagonal() - mean**2, 0.01) / n)
    assert (abs(draws.mean(0) - mean) < 4.5 * errors).all()
    np.testing.assert_allclose(draws.T @ draws / n, second, atol=0.08)
    joint = [((draws != 0) == pattern).all(1).mean() for pattern in patterns]
    assert (abs(joint - probability) < 4.5 * np.sqrt(probability / n) + 1e-3).all()


def test_draws_of_probit_against_importance_weights():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(20, 3))
    X[:, 1] = X[:, 0] + 0.5 * X[:, 1]
    X = np.concatenate([X, np.ones((20, 1))], axis=1)
    X *= np.where(X[:, 0] + 0.7 * rng.normal(size=20) > 0, 1, -1)[:, None]
    log_odds, precision = np.array([-0.5, -0.5, -0.5, 40.0]), np.array([1, 1, 1, 0.5])
    # The prior, weighted by the likelihood.
    w = rng.normal(size=(200_000, 4)) / np.sqrt(precision)
    w *= rng.random(w.shape) < 1 / (1 + np.exp(-log_odds))
    weight = ndtr(w @ X.T).prod(1)
    weight /= weight.sum()
    mean, included = weight @ w, weight @ (w != 0)
    posterior = SparsePosterior(X, None, 1.0, log_odds, precision)
    start = np.full(4, 0.5), (np.zeros(4), np.ones(4))
    draws = draw_coefficients(posterior, *start, 4000, rng, 60)
    assert (draws[:, 3] != 0).all()
    np.testing.assert_allclose(draws.mean(0), mean, atol=0.05)
    np.testing.assert_allclose((draws != 0).mean(0), included, atol=0.035)
    np.testing.assert_allclose(draws.T @ draws / 4000, (w.T * weight) @ w, atol=0.12)


def test_few_chains_at_a_time(monkeypatch):
    X, y, noise = problem("independent")
    posterior = SparsePosterior(X, y, noise, np.full(6, -1.0), np.ones(6))
    start = np.full(6, 0.3), (np.zeros(6), np.ones(6))
    monkeypatch.setattr("fastmf._common.rows.BLOCK_ENTRIES", 250)
    draws = draw_coefficients(posterior, *start, 33, np.random.default_rng(0), 3)
    assert draws.shape == (33, 6) and len(np.unique(draws[:, 0])) > 10
