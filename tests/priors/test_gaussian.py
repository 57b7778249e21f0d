"""Gaussian units."""

import numpy as np
import pytest

from fastmf.priors import Gaussian

pytestmark = pytest.mark.filterwarnings("error")


def test_mean_and_variance_of_the_parameters():
    mean, var = Gaussian([6.0, -1.0], [3.0, 0.5]).moments(0.0, 0.0)
    np.testing.assert_allclose(mean, [2, -2])
    np.testing.assert_allclose(var, [1 / 3, 2])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_from_data(dtype):
    X = np.random.default_rng(0).normal([3.0, -1.0, 0.0], [0.5, 2.0, 0.0], (500, 3)).astype(dtype)
    prior = Gaussian.from_data(X)
    assert prior.field.dtype == prior.precision.dtype == dtype
    mean, var = prior.moments(dtype(0), dtype(0))
    np.testing.assert_allclose(mean, X.mean(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(var[:2], X.var(0)[:2], rtol=1e-5)
    assert 0 < var[2] < 0.01
    assert Gaussian.from_data(X.astype(int)).field.dtype == np.float64
