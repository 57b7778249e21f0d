import numpy as np
import pytest

import fastmf as mf
from fastmf.inference.ep.block_sites import block_problem, most_included, tilt
from fastmf.inference.gaussian.blocks import Blocks

OPTIONS = (-np.inf, 1e-9, 100, None)


def regression(n=40, p=7, noise_variance=0.3):
    rng = np.random.default_rng(5)
    X = rng.normal(size=(n, p)) + rng.normal(size=(n, 1))
    y = X[:, 1] - X[:, 4] + np.sqrt(noise_variance) * rng.normal(size=n)
    prior = mf.GaussBernoulli(rng.normal(size=p) / 5, rng.gamma(3.0, size=p) / 3, np.full(p, -1.5))
    return mf.SparseLinearModel(X, y, noise_variance, prior)


def test_a_block_of_all_features_is_exact():
    """The evidence is then the sum over all patterns, and sites change nothing."""
    model = regression()
    problem = block_problem(model, Blocks([np.arange(7)], 7), OPTIONS, [7])
    X, s2 = model.X, model.noise_variance
    cavity = np.concatenate([X.T @ model.y / s2, (X.T @ X / s2).ravel()])
    constant = -(model.y @ model.y / s2 + len(X) * np.log(2 * np.pi * s2)) / 2
    tilted = tilt(problem, cavity)
    found = mf.expectation_propagation(model, blocks=np.zeros(7))
    np.testing.assert_allclose(found.log_partition, tilted.log_partition + constant, rtol=1e-9)
    np.testing.assert_allclose(found.inclusion_probability, tilted.included, atol=1e-7)
    np.testing.assert_allclose(found.mean, tilted.moments[:7], atol=1e-7)


def test_the_energy_is_stationary_at_a_fixed_point():
    model = regression()
    blocks = Blocks([np.array([0, 1, 2]), np.array([3, 4])], 7)
    problem = block_problem(model, blocks, OPTIONS)
    found = mf.expectation_propagation(model, blocks=[0, 0, 0, 1, 1, 2, 3], tol=1e-11)
    matrices = [T.ravel() for _, T in found.block_sites]
    site = np.concatenate([found.sites[0], found.sites[1, blocks.singles], *matrices])
    state = problem.state_of(site)
    assert state.residual() < 1e-9
    rng, h = np.random.default_rng(0), 1e-4
    for _ in range(5):
        change = h * rng.normal(size=len(site))
        for T in blocks.matrices(blocks.parts(change)[2]):
            T[:] = (T + np.swapaxes(T, 1, 2)) / 2
        up, down = (problem.energy(problem.state_of(site + sign * change)) for sign in (1, -1))
        assert abs(up - down) / (2 * h) < 1e-5


@pytest.mark.parametrize("c", range(2, 61))
def test_patterns_include_enough_features_and_are_not_too_many(c):
    s = most_included(c)
    assert min(c, 3) <= s <= c
    assert s == c or c > 11


def test_priors_without_a_spike_are_refused():
    model = mf.SparseLinearModel(np.ones((3, 2)), np.ones(3), 1.0, mf.Gaussian(np.zeros(2), 1.0))
    with pytest.raises(TypeError, match="blocks needs a GaussBernoulli prior"):
        mf.expectation_propagation(model, blocks=[0, 0])
