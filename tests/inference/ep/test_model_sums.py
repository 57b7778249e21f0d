"""Sums over all inclusion patterns against enumeration by covariances of y."""

import itertools

import mpmath
import numpy as np
import pytest

import fastmf as mf
from fastmf.inference.ep.inclusion_patterns import summed_patterns

P = 6


def problem(noise):
    """Equal, nearly equal and independent columns, with slabs of different widths and means."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(12, P))
    X[:, 1], X[:, 3] = X[:, 0], X[:, 2] + 1e-3 * X[:, 3]
    y = X[:, 0] + 0.4 * X[:, 2] + np.sqrt(noise) * rng.normal(size=12)
    prior = mf.GaussBernoulli(
        np.linspace(-0.5, 0.5, P), np.linspace(0.5, 2, P), np.linspace(-1.5, -0.5, P)
    )
    return mf.SparseLinearModel(X, y, noise, prior)


def enumerated(model, always):
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


@pytest.mark.parametrize("noise", [0.5, 1e-16])
@pytest.mark.parametrize("first", [(), (2, 5)])
def test_sums_against_enumeration(noise, first):
    model = problem(noise)
    always = np.isin(np.arange(P), first)
    patterns, probability, log_weight = summed_patterns(model, always)
    inclusion = probability @ patterns
    expected, total = enumerated(model, always)
    np.testing.assert_allclose(inclusion, expected, atol=1e-6)
    np.testing.assert_allclose(log_weight, total, rtol=1e-9)


def test_few_rows_and_features_that_are_never_in():
    model = problem(0.5)
    prior = model.prior._replace(log_odds=np.where(np.arange(P) == 4, -np.inf, 0.0))
    few = mf.SparseLinearModel(model.X[:3], model.y[:3], 0.5, prior)
    patterns, probability, log_weight = summed_patterns(few, np.zeros(P, bool))
    inclusion = probability @ patterns
    rest = np.arange(P) != 4
    parts = (part[rest] for part in prior)
    without = mf.SparseLinearModel(few.X[:, rest], few.y, 0.5, mf.GaussBernoulli(*parts))
    patterns, probability, total = summed_patterns(without, np.zeros(P - 1, bool))
    assert inclusion[4] == 0
    np.testing.assert_allclose(inclusion[rest], probability @ patterns, atol=1e-12)
    np.testing.assert_allclose(log_weight, total, rtol=1e-12)
