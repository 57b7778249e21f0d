"""Maxima for other weights, and weights of resampled rows."""

import numpy as np
import pytest
from scipy import sparse

from fastmf.learning.pseudo_likelihood.binary.objective import PseudoLikelihood
from fastmf.learning.pseudo_likelihood.lbfgs import lbfgs
from fastmf.learning.pseudo_likelihood.newton import newton
from fastmf.learning.pseudo_likelihood.resampling import (
    Refits,
    counts_of,
    with_replacement,
    without,
)


def objective(weights=None):
    states = np.stack(np.unravel_index(np.arange(16), [2] * 4), axis=1) * 2.0 - 1
    weights = np.arange(5.0, 21.0) if weights is None else weights
    return PseudoLikelihood(states, weights)


@pytest.mark.parametrize("change", [0.0, 0.3, 40.0])
def test_maxima_for_other_weights(change):
    """Near ones by the Hessian of the first maximum, far ones by Newton's method."""
    whole = objective()
    rng = np.random.default_rng(0)
    weights = np.arange(5.0, 21.0) * np.exp(change * rng.uniform(-0.1, 0.1, 16))
    parameters = newton(whole, whole.independent(), tol=1e-8).parameters
    found = Refits(whole, parameters, tol=1e-8).maximum(weights)
    expected = newton(objective(weights), parameters, tol=1e-8)
    assert found.stopped
    np.testing.assert_allclose(found.parameters, expected.parameters, atol=1e-6)
    assert found.history[-1] == pytest.approx(expected.history[-1], rel=1e-9)
    sparse_fit = Refits(whole, parameters, l1=0.05, tol=1e-8).maximum(weights)
    expected = lbfgs(objective(weights), parameters, l1=0.05, tol=1e-8)
    np.testing.assert_allclose(sparse_fit.parameters, expected.parameters, atol=1e-6)


def test_weights_of_samples():
    rng, weights = np.random.default_rng(0), np.array([3.0, 0.0, 7.0])
    drawn = np.array([with_replacement(rng, weights, None) for _ in range(2000)])
    assert (drawn.sum(1) == 10).all()
    np.testing.assert_allclose(drawn.mean(0), weights, atol=0.1)
    np.testing.assert_allclose(drawn.var(0)[0], 10 * 0.3 * 0.7, rtol=0.1)
    kept = np.array([without(rng, 0.4, weights, None) for _ in range(2000)])
    assert (kept.sum(1) == 6).all() and (kept <= weights).all()
    np.testing.assert_allclose(kept.mean(0), 0.6 * weights, atol=0.1)


def test_weights_of_clusters():
    rng, weights = np.random.default_rng(0), np.array([3.0, 7.0])
    clusters = sparse.csr_array(np.array([[0.3, 0.0], [0.0, 0.5], [0.0, 0.2]]))
    drawn = np.array([with_replacement(rng, weights, clusters) for _ in range(3000)])
    np.testing.assert_allclose(drawn.mean(0), weights, rtol=0.05)
    assert set(drawn[:, 0].round(9)) <= {0.0, 3.0, 6.0, 9.0}
    kept = np.array([without(rng, 1 / 3, weights, clusters) for _ in range(50)])
    assert set(map(tuple, kept.round(9))) == {(3.0, 5.0), (3.0, 2.0), (0.0, 7.0)}


def test_weights_must_count():
    assert counts_of(np.array([1.0, 2.0])).tolist() == [1, 2]
    for weights in ([0.5, 2.0], [0.0, 0.0], [1e-3]):
        with pytest.raises(ValueError, match="must count rows"):
            counts_of(np.array(weights))
