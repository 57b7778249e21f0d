import numpy as np
import pytest

import fastmf as mf
from fastmf.estimators.layered._machine import denoising_starts, flip_field, noise_tilt
from fastmf.priors import Bernoulli, Ising


def test_starts_are_the_candidates_that_explain_the_observation_best():
    rng = np.random.default_rng(3)
    prior = Bernoulli(np.zeros(30))

    def starts(field, precision):
        return denoising_starts(Y, prior, candidates, 4, field, precision, rng).reshape(40, 4, 30)

    candidates, Y = rng.integers(0, 2, (2, 40, 30)).astype(float)

    def likelihood(x):
        same = (Y[:, None] == x).sum(-1)
        return same * np.log(0.8) + (30 - same) * np.log(0.2)

    expected = -np.sort(-likelihood(candidates), axis=1)[:, :4]
    field = flip_field(Y, prior, 0.2)
    np.testing.assert_allclose(likelihood(starts(field, None)), expected)

    candidates, Y = rng.normal(size=(2, 40, 30))
    distance = ((Y[:, None] - candidates) ** 2).sum(-1)
    expected = candidates[np.argsort(distance, axis=1)[:, :4]]
    np.testing.assert_array_equal(starts(*noise_tilt(Y, 0.5)), expected)


@pytest.mark.parametrize("kind", [Bernoulli, Ising])
@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 1.0])
def test_the_field_of_a_binary_channel_is_its_log_likelihood_ratio(kind, p):
    prior = kind(np.zeros(2))
    low, high = prior.support
    field = flip_field(np.array([[low, high]]), prior, p)
    least = np.finfo(float).eps
    bounded = min(max(p, least), 1 - least)
    ratio = np.log((1 - bounded) / bounded)
    np.testing.assert_allclose(field * (high - low), [[-ratio, ratio]], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("noise", [1e-300, 1e-40, 1e40, 1e300])
def test_extreme_noise_is_none_or_hides_all(dtype, noise):
    X = np.random.default_rng(0).normal(size=(50, 3)).astype(dtype)
    machine = mf.GeneralizedRBM(2, visible="gaussian", n_epochs=2, random_state=0).fit(X)
    result = machine.denoise(X, noise_variance=noise)
    expected = X if noise < 1 else np.broadcast_to(mf.exact(machine.model_).mean[0], X.shape)
    assert result.dtype == dtype
    np.testing.assert_allclose(result, expected, atol=1e-6 if noise < 1 else 0.01)


def test_the_tilt_of_gaussian_noise_is_its_log_likelihood():
    y, x = np.array([[0.3, -2.0]]), np.array([1.5, 0.2])
    field, precision = noise_tilt(y, 0.25)
    tilt = field * x - precision * x**2 / 2
    np.testing.assert_allclose(tilt - y**2 / 0.5, -((y - x) ** 2) / 0.5)
