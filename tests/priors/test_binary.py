"""Binary units: extreme fields, third cumulants, data."""

import numpy as np
import pytest

from fastmf.priors import Bernoulli, Concatenated, Gaussian, Ising

pytestmark = pytest.mark.filterwarnings("error")


def test_variances_keep_their_digits_at_large_fields():
    t = np.array([-300.0, -40.0, 40.0, 300.0])
    np.testing.assert_allclose(Bernoulli(t).moments(0.0, 0.0)[1], np.exp(-abs(t)), rtol=1e-13)
    np.testing.assert_allclose(Ising(t).moments(0.0, 0.0)[1], 4 * np.exp(-2 * abs(t)), rtol=1e-13)


@pytest.mark.parametrize("class_", [Bernoulli, Ising])
def test_third_cumulant(class_):
    prior, h = class_(np.linspace(-3, 3, 7)), 1e-4
    mean, _ = prior.moments(0.0, 0.0)
    cumulant, slope = prior.third_cumulant(mean)
    by_field = (prior.moments(h, 0.0)[1] - prior.moments(-h, 0.0)[1]) / (2 * h)
    np.testing.assert_allclose(cumulant, by_field, atol=1e-7)
    by_mean = (prior.third_cumulant(mean + h)[0] - prior.third_cumulant(mean - h)[0]) / (2 * h)
    np.testing.assert_allclose(slope, by_mean, atol=1e-6)


def test_third_cumulants_of_several_kinds_of_units():
    unit, spin = Bernoulli([0.5]), Ising([0.2])
    mean, _ = Concatenated(unit, spin).moments(0.0, 0.0)
    expected = unit.third_cumulant(mean[:1]), spin.third_cumulant(mean[1:])
    found = Concatenated(unit, spin).third_cumulant(mean)
    np.testing.assert_allclose(found, np.hstack(expected), rtol=1e-14)
    with pytest.raises(AttributeError, match="third_cumulant"):
        Concatenated(spin, Gaussian([0.0], 1.0)).third_cumulant(mean[:2])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8, bool])
def test_from_data(dtype):
    X = (np.random.default_rng(0).random((998, 3)) < [0.0, 0.3, 1.0]).astype(dtype)
    prior = Bernoulli.from_data(X)
    expected = (X.sum(0) + 1) / 1000
    np.testing.assert_allclose(prior.moments(0.0, 0.0)[0], expected, rtol=1e-5)
    assert prior.field.dtype == (np.float32 if dtype == np.float32 else np.float64)
    if np.issubdtype(dtype, np.floating):
        spins = Ising.from_data(2 * X - 1)
        assert spins.field.dtype == dtype
        np.testing.assert_allclose(spins.moments(0.0, 0.0)[0], 2 * expected - 1, atol=1e-6)
