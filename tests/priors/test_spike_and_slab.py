"""Spike-and-slab units: limits, accuracy against quadrature, data."""

from pathlib import Path

import numpy as np
import pytest

import fastmf as mf
from fastmf.priors import GaussBernoulli, Gaussian, TruncatedGaussBernoulli, TruncatedGaussian
from fastmf.priors._protocol import as_dtype

pytestmark = pytest.mark.filterwarnings("error")

REFERENCE = Path(__file__).with_name("truncated_gaussian_reference.npz")


def test_large_log_odds_leave_the_slab():
    b, a = np.array([0.3, -2.0, 4.0]), np.array([0.5, 0.0, 1.0])
    parameters = np.array([1.0, -2.0, 0.1]), np.array([2.0, 0.5, 1.0])
    bounds = np.array([0.0, -1.0, 0.0]), np.array([1.0, 3.0, np.inf])
    for slab, spiked in (
        (Gaussian(*parameters), GaussBernoulli(*parameters, 200.0)),
        (
            TruncatedGaussian(*parameters, *bounds),
            TruncatedGaussBernoulli(*parameters, 200.0, *bounds),
        ),
    ):
        np.testing.assert_allclose(spiked.moments(b, a), slab.moments(b, a), rtol=1e-14)
        change = slab.log_partition(b, a) - slab.log_partition(0 * b, 0 * a)
        np.testing.assert_allclose(spiked.log_partition(b, a), 200 + change, rtol=1e-14)


def test_without_a_tilt_the_log_odds_are_those_of_a_nonzero_value():
    for prior in (
        GaussBernoulli(3.0, 2.0, [-40.0, -1.0, 0.0, 2.0]),
        TruncatedGaussBernoulli(3.0, -2.0, [-40.0, -1.0, 0.0, 2.0], 0.0, 1.0),
    ):
        expected = np.log1p(np.exp(prior.log_odds))
        np.testing.assert_allclose(prior.log_partition(0.0, 0.0), expected, rtol=1e-13)


def test_truncated_slab_in_every_regime():
    # The reference gives the slab's log-integral, mean and variance under the tilt; the spike adds
    # a point of weight one. A weight of exp(-log-integral) puts even chances on the two.
    with np.load(REFERENCE) as file:
        inputs, results = file["inputs"], file["results"]
    field, precision, lower, upper, b, a = inputs.T
    flat = TruncatedGaussian._make((field, precision, lower, upper))
    zero = np.zeros_like(field)
    proper = np.isfinite(flat.log_partition(zero, zero)) & (abs(results[:, 0]) < 1e4)
    proper &= abs(flat.log_partition(zero, zero)) < 1e4
    plain = flat.log_partition(zero, zero)
    log_odds = np.where(proper, plain - results[:, 0], 0)
    prior = TruncatedGaussBernoulli._make((field, precision, log_odds, lower, upper))
    keep = np.flatnonzero(proper)
    _, mean, var = results[keep].T
    # Log-odds carry the rounding of both log-integrals.
    scale = 1 + np.maximum(abs(results[keep, 0]), abs(plain[keep]))
    got_mean, got_var = (m[keep] for m in prior.moments(b, a))
    assert (abs(got_mean - mean / 2) <= 1e-12 * (abs(mean) + np.sqrt(var)) * scale).all()
    assert (abs(got_var - (var / 2 + mean**2 / 4)) <= 1e-10 * (var + mean**2) * scale).all()
    assert (abs(prior.log_partition(b, a)[keep] - np.log(2)) <= 1e-12 * scale).all()


def test_weak_tilts_do_not_cancel():
    # log Z = U b / V + O(b^2) beside U^2 / V = 1e12.
    prior = GaussBernoulli(1e6, 1.0, 0.0)
    b = 1e-9
    expected = np.log(2) + 1e6 * b / 2 + (1e6 * b) ** 2 / 8
    assert prior.log_partition(b, 0.0)[0] == pytest.approx(expected, rel=1e-12)
    prior, y = GaussBernoulli(1.7e9 / 4, 0.25, 0.0), np.array([-3.0, 0.0, 2.0])
    expected = -(y**2 / 4 + np.log(8 * np.pi)) / 2
    np.testing.assert_allclose(prior.log_prob(1.7e9 + y), expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_from_data(dtype):
    rng = np.random.default_rng(4)
    X = np.clip(rng.normal(0.4, 0.2, (4000, 6)), 0.01, 1).astype(dtype)
    X[rng.random(X.shape) < [0.1, 0.5, 0.9, 0.0, 0.3, 0.3]] = 0
    X[:, 4] = 0
    occupied = (X != 0).mean(0)
    for prior in (
        TruncatedGaussBernoulli.from_data(X, lower=0.0, upper=1.0),
        GaussBernoulli.from_data(X),
    ):
        assert prior.field.dtype == prior.log_odds.dtype == dtype
        np.testing.assert_allclose(1 / (1 + np.exp(-prior.log_odds)), occupied, atol=1e-3)
        mean, var = prior.moments(dtype(0), dtype(0))
        np.testing.assert_allclose(mean, X.mean(0), atol=2e-3)
        np.testing.assert_allclose(var, X.var(0), atol=2e-3)
    with pytest.raises(ValueError, match="non-zero"):
        GaussBernoulli.from_data(np.zeros((3, 2)))


@pytest.mark.parametrize("value", [3.0, 0.1, -1e6 / 3])
def test_constant_columns_of_any_value_have_the_same_slab(value):
    """Also where the mean of equal numbers is another number."""
    X = np.full((2000, 1), value)
    prior = GaussBernoulli.from_data(X)
    np.testing.assert_allclose(prior.field / prior.precision, value, rtol=1e-9)
    np.testing.assert_allclose(prior.precision, GaussBernoulli.from_data(X / value).precision)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_kernels_see_the_same_units_with_their_slabs_integrated(dtype):
    """Uncoupled units of several blocks, against the prior itself."""
    rng = np.random.default_rng(5)
    n = 150
    shape = (3, n)
    lower = -rng.random(n)
    fields = (30 * rng.normal(size=n), rng.normal(size=n), 3 * rng.normal(size=n))
    prior = as_dtype(TruncatedGaussBernoulli(*fields, lower, lower + 2), dtype)
    machine = mf.RBM(np.zeros((n, 2), dtype), prior, mf.Bernoulli(np.zeros(2, dtype)))
    b, a = (scale * rng.normal(size=shape).astype(dtype) for scale in (20, 5))
    found = mf.tap(machine, np.zeros(shape, dtype), field=(b, None), precision=(a, None))
    close = {"float64": 1e-12, "float32": 1e-5}[dtype]
    mean, var = prior.moments(b, a)
    np.testing.assert_allclose(found.mean[0], mean, rtol=close, atol=close)
    np.testing.assert_allclose(found.var[0], var, rtol=close, atol=close)
    expected = prior.log_partition(b, a).astype(float).sum(1) + 2 * np.log(2)
    np.testing.assert_allclose(found.log_partition, expected, rtol=close)


def test_mean_and_variance_of_the_parameters():
    mean, var = Gaussian([6.0, -1.0], [3.0, 0.5]).moments(0.0, 0.0)
    np.testing.assert_allclose(mean, [2, -2])
    np.testing.assert_allclose(var, [1 / 3, 2])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gaussian_units_from_data(dtype):
    X = np.random.default_rng(0).normal([3.0, -1.0, 0.0], [0.5, 2.0, 0.0], (500, 3)).astype(dtype)
    prior = Gaussian.from_data(X)
    assert prior.field.dtype == prior.precision.dtype == dtype
    mean, var = prior.moments(dtype(0), dtype(0))
    np.testing.assert_allclose(mean, X.mean(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(var[:2], X.var(0)[:2], rtol=1e-5)
    assert 0 < var[2] < 0.01
    assert Gaussian.from_data(X.astype(int)).field.dtype == np.float64
