"""A prior of the user's own with a density: the Bayesian lasso, by expectation propagation."""

import math
from typing import NamedTuple

import numba
import numpy as np
import pytest

import fastmf as mf


@numba.vectorize(["float64(float64)"])
def log_erfcx(z):
    """Log of exp(z^2) erfc(z), for compiled code and arrays alike."""
    if z < 20:
        return z * z + math.log(math.erfc(z))
    w = 1 / (2 * z * z)
    return math.log1p(-w * (1 - 3 * w * (1 - 5 * w))) - math.log(z * math.sqrt(math.pi))


class Laplace(NamedTuple):
    """Weight exp(-rate |x|): under a tilt, a Gaussian cut in two at zero.

    Tilts flatter than any data would make them count as a little less flat, to save digits.
    """

    rate: np.ndarray

    def log_partition(self, b, a):
        a = np.maximum(a, 1e-4 * self.rate**2)
        up, down = (self.rate - b) / np.sqrt(2 * a), (self.rate + b) / np.sqrt(2 * a)
        return np.logaddexp(log_erfcx(up), log_erfcx(down)) + np.log(np.pi / (2 * a)) / 2

    def moments(self, b, a):
        a = np.maximum(a, 1e-4 * self.rate**2)
        up, down = (self.rate - b) / np.sqrt(2 * a), (self.rate + b) / np.sqrt(2 * a)
        p = 1 / (1 + np.exp(log_erfcx(down) - log_erfcx(up)))
        above = (b - self.rate) / a + np.sqrt(2 / (np.pi * a)) * np.exp(-log_erfcx(up))
        below = (b + self.rate) / a - np.sqrt(2 / (np.pi * a)) * np.exp(-log_erfcx(down))
        mean = p * above + (1 - p) * below
        slope = p * (b - self.rate) / a * above + (1 - p) * (b + self.rate) / a * below
        return mean, 1 / a + slope - mean * mean


@pytest.mark.parametrize("d, close", [(1, 1e-6), (2, 0.02)])
@pytest.mark.parametrize("schedule", ["parallel", "sequential", "convergent"])
def test_posterior_against_quadrature(d, close, schedule):
    """With one coefficient there is nothing to approximate."""
    rng = np.random.default_rng(d)
    X = rng.normal(size=(6, d))
    y = X @ np.array([0.7, 0.1])[:d] + rng.normal(size=6)
    result = mf.expectation_propagation(
        mf.SparseLinearModel(X, y, 1.0, Laplace(np.full(d, 2.0))), schedule=schedule
    )
    axis = np.linspace(-6, 6, 24001 if d == 1 else 1201)
    w = np.stack(np.meshgrid(*[axis] * d, indexing="ij"), -1).reshape(-1, d)
    log_weight = -2 * abs(w).sum(1) - ((y - w @ X.T) ** 2).sum(1) / 2 - 3 * np.log(2 * np.pi)
    weight = np.exp(log_weight)
    mean = weight @ w / weight.sum()
    var = weight @ (w - mean) ** 2 / weight.sum()
    evidence = np.log(weight.sum() * (axis[1] - axis[0]) ** d)
    assert result.converged
    np.testing.assert_allclose(result.mean, mean, atol=close * np.sqrt(var.max()))
    np.testing.assert_allclose(result.var, var, rtol=5 * close)
    np.testing.assert_allclose(result.log_partition, evidence, atol=5 * close)


def test_more_features_than_rows():
    """All schedules find the same lasso; a strong rate shrinks what is not needed."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 90))
    y = 3 * X[:, 4] - 2 * X[:, 50] + 0.3 * rng.normal(size=40)
    model = mf.SparseLinearModel(X, y, 0.09, Laplace(np.full(90, 8.0)))
    first, *others = (
        mf.expectation_propagation(model, schedule=s) for s in ("parallel", "convergent", "auto")
    )
    assert first.converged
    for other in others:
        assert other.converged
        np.testing.assert_allclose(other.mean, first.mean, atol=1e-6)
    np.testing.assert_array_equal(np.sort(np.argsort(-abs(first.mean))[:2]), [4, 50])
