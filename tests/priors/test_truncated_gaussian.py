"""Truncated Gaussian units against high-precision references and limits."""

import importlib.util
from pathlib import Path

import mpmath
import numpy as np
import pytest
from scipy.sparse import csr_array

from fastmf.priors import Gaussian, TruncatedGaussBernoulli, TruncatedGaussian
from fastmf.priors.gaussian import bounds_of_columns, fit

pytestmark = pytest.mark.filterwarnings("error")

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def reference():
    """Inputs (field, precision, lower, upper, b, a) and results (log-partition, mean, variance)."""
    with np.load(HERE / "truncated_gaussian_reference.npz") as file:
        return file["inputs"], file["results"]


def errors(results, computed):
    """Of log-partition (by 1 + size), mean (by |mean| + deviation) and variance (relative)."""
    log_partition, mean, var = results.T
    return (
        abs(computed[0] - log_partition) / (1 + abs(log_partition)),
        abs(computed[1] - mean) / (abs(mean) + np.sqrt(var)),
        abs(computed[2] / var - 1),
    )


def test_every_regime_to_twelve_digits(reference):
    inputs, results = reference
    prior = TruncatedGaussian._make(inputs[:, :4].T)
    b, a = inputs[:, 4:].T
    in_log_partition, in_mean, in_var = errors(
        results, (prior.log_partition(b, a), *prior.moments(b, a))
    )
    assert in_log_partition.max() < 1e-13
    assert in_mean.max() < 5e-13
    assert in_var.max() < 1e-10


def test_float32_is_computed_in_float64(reference):
    inputs, results = reference
    single = inputs.astype(np.float32)
    keep = np.isfinite(results.astype(np.float32)).all(1) & (results[:, 2] > 1e-30)
    prior = TruncatedGaussian._make(single[keep, :4].T)
    wide = TruncatedGaussian._make(single[keep, :4].T.astype(np.float64))
    b, a = single[keep, 4:].T
    # Rounding the inputs can make the precision or the balance another one: compare like with like.
    expected = np.transpose([wide.log_partition(b, a), *wide.moments(b, a)])
    proper = np.isfinite(expected).all(1)
    computed = (prior.log_partition(b, a), *prior.moments(b, a))
    assert {c.dtype for c in computed} == {np.dtype(np.float32)}
    for error in errors(expected[proper], [c[proper] for c in computed]):
        assert error.max() < 1e-6


def test_reference_file_is_what_its_script_writes(reference):
    specification = importlib.util.spec_from_file_location("reference", HERE / "make_reference.py")
    script = importlib.util.module_from_spec(specification)
    digits = mpmath.mp.dps
    try:
        specification.loader.exec_module(script)
        inputs, results = reference
        assert np.array_equal(inputs, list(script.inputs()))
        for i in range(0, len(inputs), 97):
            again = [float(r) for r in script.integrate(*inputs[i])]
            np.testing.assert_allclose(again, results[i], rtol=1e-15)
    finally:
        mpmath.mp.dps = digits


def test_reference_agrees_with_plain_quadrature(reference):
    # The closed forms behind the file share nothing with the definition but this.
    inputs, results = reference
    b, s = inputs[:, 0] + inputs[:, 4], inputs[:, 1] + inputs[:, 5]
    easy = np.flatnonzero(
        (abs(b) < 80) & (abs(s) < 31) & (inputs[:, 3] < 50) & np.isfinite(inputs).all(1)
    )[::107]
    assert len(easy) > 4
    for i in easy:
        lower, upper = inputs[i, 2:4]
        points = np.linspace(lower, upper, 16)
        b_i, s_i = mpmath.mpf(b[i]), mpmath.mpf(s[i])

        def moment(k, b_i=b_i, s_i=s_i, points=points):
            return mpmath.quad(lambda x: x**k * mpmath.exp(b_i * x - s_i * x * x / 2), points)

        total = moment(0)
        mean = moment(1) / total
        assert abs(mpmath.log(total) - results[i, 0]) < 1e-12 * (1 + abs(results[i, 0]))
        assert abs(mean - results[i, 1]) < 1e-12 * (abs(mean) + 1)


# b, s, lower, upper, log-integral, mean, variance
PUBLISHED = [
    (2, 3, 0, 1, 0.5154938504510821, 0.5375266765978634, 0.0745410024321739),
    (2, -3, 0, 1, 2.01323888138576, 0.763064045960615, 0.04993974484262098),
    (0.3, 0, -1, 2, 1.282137361417214, 0.7220199178816903, 0.7205743701858723),
    (300, 0.01, 0, 1, 294.2912507481142, 0.9966665562926661, 1.111184448050225e-5),
    (-400, 1e-8, -2, 5, 794.008535432942, -1.997499999999875, 6.250000000622656e-6),
    (-1000, -2000, 0, 1, -6.212597998316802, 0.5, 0.2489979796982178),
    (-1000, -1999.5, 0, 1, -6.329586381564443, 0.4380714836857382, 0.2451626187176036),
    (-5, 2, 0, np.inf, -1.67759751036251, 0.1763403754931955, 0.02805313323793002),
    (5, 2, 0, np.inf, 6.822161446211926, 2.500544681887285, 0.4986379986034301),
    (-2000, 0.001, 0, np.inf, -7.600902459792082, 0.00049999999975, 2.49999999625e-7),
    (7, 0.5, -np.inf, -3, -25.39687074564795, -3.116072360667193, 0.01329707574686546),
]


def test_worked_examples():
    b, s, lower, upper, *results = np.array(PUBLISHED).T
    prior = TruncatedGaussian(b, s, lower, upper)
    zero = np.zeros(len(b))
    computed = (prior.log_partition(zero, zero), *prior.moments(zero, zero))
    in_log_partition, in_mean, in_var = errors(np.transpose(results), computed)
    assert max(in_log_partition.max(), in_mean.max()) < 1e-12
    assert in_var.max() < 1e-11


# --- limits ---------------------------------------------------------------------------------------


def everything(b, s, lower, upper):
    prior = TruncatedGaussian(b, s, lower, upper)
    zero = np.zeros_like(b)
    return np.array([prior.log_partition(zero, zero), *prior.moments(zero, zero)])


def tilted(lower, upper):
    """Random fields and precisions over ten decades, negative ones only between two bounds."""
    rng = np.random.default_rng(5)
    b, s = rng.normal(size=200), rng.normal(size=200)
    b, s = b * 10 ** rng.uniform(-5, 3, 200), s * 10 ** rng.uniform(-5, 3, 200)
    return b, s if np.isfinite(upper - lower) else abs(s)


def test_continuity_through_precision_zero():
    b = np.array([-3.0, -1e-3, 0.0, 0.2, 50.0])
    for size in (1e-3, 1e-8, 1e-13, 1e-18, 5e-324):
        above, at, below = (everything(b, s + 0 * b, -1.0, 2.0) for s in (size, 0.0, -size))
        # The moments vary linearly in s, with coefficients below ten on this interval.
        assert abs(above - at).max() <= 10 * size + 1e-13
        assert abs(below - at).max() <= 10 * size + 1e-13


def test_huge_intervals_are_gaussian():
    b, s = tilted(0.0, np.inf)
    mean, deviation = b / s, 1 / np.sqrt(s)
    gaussian = Gaussian(b, s)
    zero = np.zeros_like(b)
    expected = np.array([gaussian.log_partition(zero, zero), *gaussian.moments(zero, zero)])
    for lower, upper in (
        (mean - 12 * deviation, mean + 12 * deviation),
        (np.full(200, -np.inf), np.full(200, np.inf)),
        (np.full(200, -1e20), np.full(200, 1e20)),
    ):
        np.testing.assert_allclose(everything(b, s, lower, upper), expected, rtol=1e-10, atol=1e-12)


def test_exponential_unit():
    prior = TruncatedGaussian(-2.0, 0.0, 0.0, np.inf)
    assert prior.log_partition(0.0, 0.0)[0] == pytest.approx(-np.log(2), rel=1e-13)
    np.testing.assert_allclose(prior.moments(0.0, 0.0), [[0.5], [0.25]], rtol=1e-10)
    assert prior.moments(2.0, 0.0)[1][0] == np.inf  # the linear term no longer decays


# --- draws and fits -------------------------------------------------------------------------------


def test_draws_follow_the_distribution():
    # Kolmogorov's distance between draws and the exact distribution function, in every regime.
    n = 4000
    for b, s, lower, upper in [row[:4] for row in PUBLISHED]:
        prior = TruncatedGaussian(b, s, lower, upper)
        x = np.sort(prior.sample(np.zeros((n, 1)), 0.0, np.random.default_rng(2))[:, 0])
        total = prior.log_partition(0.0, 0.0)
        until = TruncatedGaussian._make(np.broadcast_arrays(float(b), float(s), float(lower), x))
        below = np.exp(until.log_partition(0.0, 0.0) - total)
        distance = abs(below - (np.arange(n) + 0.5) / n).max()
        assert distance < 1.95 / np.sqrt(n)  # one in a thousand


@pytest.mark.parametrize(("lower", "upper"), [(0.0, 1.0), (-3.0, 100.0), (0.0, np.inf)])
def test_fit_matches_mean_and_variance(lower, upper):
    rng = np.random.default_rng(3)
    width = min(upper - lower, 5.0)
    mean = lower + width * rng.uniform(0.05, 0.95, 50)
    largest = (mean - lower) * (min(upper, lower + width) - mean)
    if upper == np.inf:
        largest = (mean - lower) ** 2
    var = largest * rng.uniform(0.1, 0.85, 50)
    if upper < np.inf:  # keep clear of the margins
        mean = np.maximum(mean, lower + 0.02 * (upper - lower))
        var = np.maximum(var, 2e-4 * (upper - lower) ** 2)
    field, precision = fit(mean, var, lower, upper)
    got = TruncatedGaussian(field, precision, lower, upper).moments(0.0, 0.0)
    np.testing.assert_allclose(got, (mean, var), rtol=1e-7)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_from_data_survives_constant_and_binary_columns(dtype):
    rng = np.random.default_rng(0)
    X = rng.random((200, 5)).astype(dtype)
    X[:, 0], X[:, 1], X[:, 2] = 0, 1, X[:, 2] > 0.5
    prior = TruncatedGaussian.from_data(X)
    assert prior.field.dtype == dtype
    assert abs(prior.field).max() < 1e3
    assert abs(prior.precision).max() < 2e4
    mean, var = prior.moments(dtype(0), dtype(0))
    np.testing.assert_allclose(mean, np.clip(X.mean(0), 0.01, 0.99), atol=1e-4)
    np.testing.assert_allclose(var[3:], X.var(0)[3:], rtol=1e-3)
    rectified = TruncatedGaussian.from_data(X, lower=0.0, upper=np.inf)
    assert (rectified.precision > 0).all()
    assert TruncatedGaussian.from_data((255 * X).astype(np.uint8)).field.dtype == np.float64


def test_from_data_needs_an_interval():
    with pytest.raises(ValueError, match="from_data: lower must be below upper, got 3 and 3"):
        TruncatedGaussian.from_data(np.full((5, 2), 3.0))


# --- beyond the range -----------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1e51, 1e60, 1e120, 1e300])
def test_mass_beyond_the_range_counts_as_infinite(size):
    """Cut off at a bound that stands for infinity, the mean would look like that of a real tilt."""
    lower, upper = np.array([0.0, 3.0, -np.inf, -np.inf]), np.array([np.inf, np.inf, 0.0, np.inf])
    unit = TruncatedGaussian(np.zeros(4), 1.0, lower, upper)
    slab = TruncatedGaussBernoulli(np.zeros(4), 1.0, 0.0, lower, upper)
    b = np.array([1, 1, -1, 1]) * size
    for prior in (unit, slab):
        mean, var = prior.moments(b, 0.0)
        np.testing.assert_array_equal(var, np.inf)
        assert np.isfinite(mean).all()
        np.testing.assert_array_equal(prior.log_partition(b, 0.0), np.inf)
    with pytest.raises(ValueError, match="at most 1e"):
        unit.sample(b, np.zeros(4), 0)
    with pytest.raises(ValueError, match="at most 1e"):
        TruncatedGaussian(size, 1.0, 0.0, np.inf)


def test_mass_that_spreads_beyond_the_range_counts_as_infinite():
    """An exponential of mean 1e60, and one of mean 1e20, which exists."""
    unit = TruncatedGaussian(-1.0, 0.0, 0.0, np.inf)
    assert unit.moments(1.0 - 1e-12, 0.0)[1][0] == pytest.approx(1e24, rel=1e-3)
    unit = TruncatedGaussian(0.0, 0.5, 0.0, np.inf)
    mean, var = unit.moments(np.array([-1e-20, -1e-60]), -0.5)
    np.testing.assert_allclose(mean[0], 1e20, rtol=1e-11)
    assert var[1] == np.inf


# --- bounds of columns ----------------------------------------------------------------------------


def test_columns_that_are_alike_share_their_bounds():
    rng = np.random.default_rng(0)
    pixels = rng.random((50, 6))
    pixels[:, 0], pixels[:, 1] = 0, 0.05 * pixels[:, 1]  # at the border
    for X in (pixels, csr_array(pixels)):
        lower, upper = bounds_of_columns(X)
        assert (lower == 0).all() and (upper == pixels.max()).all()
    pixels[:, 2] *= 1e-6
    lower, upper = bounds_of_columns(pixels)
    assert upper[2] < 1.2e-6 and (np.delete(upper, 2) == pixels.max()).all()


def test_columns_of_different_ranges_have_bounds_of_their_own():
    rng = np.random.default_rng(0)
    X = rng.uniform(1, 2, (50, 5)) * [1e-3, 1.0, 1e3, -1e6, 1.0]
    X[:, 4] = 5
    for rows in (X, csr_array(X)):
        lower, upper = bounds_of_columns(rows)
        assert (lower <= X.min(0)).all() and (X.max(0) <= upper).all()
        width = X.max(0) - X.min(0)
        np.testing.assert_allclose((upper - lower)[:4], 1.2 * width[:4])
        assert lower[4] == 0 and upper[4] == 10
    X[:, 0] -= X[:, 0].min()  # values from 0 stay positive
    assert bounds_of_columns(X)[0][0] == 0
    mean, var = TruncatedGaussian.from_data(X).moments(0.0, 0.0)
    np.testing.assert_allclose(mean, X.mean(0), rtol=1e-6)
    np.testing.assert_allclose(var[:4], X.var(0)[:4], rtol=1e-6)
    given = TruncatedGaussian.from_data(X, upper=2e6)
    assert (given.upper == 2e6).all() and (given.lower == bounds_of_columns(X)[0]).all()
