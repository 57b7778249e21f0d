"""Special functions: accuracy, extremes and precision, in NumPy and compiled."""

from fractions import Fraction

import mpmath
import numpy as np
import pytest

from fastmf import special
from fastmf._jit.kernel import kernel

pytestmark = pytest.mark.filterwarnings("error")

FUNCTIONS = {
    "exp": mpmath.exp,
    "sigmoid": lambda t: 1 / (1 + mpmath.exp(-t)),
    "softplus": lambda t: mpmath.log(1 + mpmath.exp(t)),
    "log_2_cosh": lambda t: mpmath.log(2 * mpmath.cosh(t)),
    "exp_of_small": mpmath.exp,
}


@kernel
def compiled(x, results):
    for i in range(len(x)):
        results[0, i] = special.exp(x[i])
        results[1, i] = special.sigmoid(x[i])
        results[2, i] = special.softplus(x[i])
        results[3, i] = special.log_2_cosh(x[i])
        results[4, i] = special.exp_of_small(x[i])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_accuracy(dtype):
    x = np.concatenate([np.linspace(-80, 80, 161), [1e-12, -1e-12, 0.3, -0.7]]).astype(dtype)
    results = np.empty((len(FUNCTIONS), len(x)), dtype)
    compiled(x, results)
    mpmath.mp.dps, digits = 40, mpmath.mp.dps
    try:
        for (name, exact), row in zip(FUNCTIONS.items(), results, strict=True):
            expected = np.array([float(exact(mpmath.mpf(float(t)))) for t in x])
            plain = getattr(special, name)(x)
            assert plain.dtype == dtype
            tolerance = {"rtol": 60 * np.finfo(dtype).eps, "atol": 1e-40}
            if name == "exp_of_small" and dtype == np.float32:
                continue  # meant for float64 only
            np.testing.assert_allclose(plain, expected, **tolerance)
            np.testing.assert_allclose(row, expected, **tolerance)
    finally:
        mpmath.mp.dps = digits


@kernel
def compiled_share(x, out):
    for i in range(len(x)):
        out[i] = special.log1p_of_fraction(x[i])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_log1p_of_fraction_is_exact_to_rounding(dtype):
    x = np.concatenate([np.linspace(0, 1, 300), np.logspace(-30, 0, 200)]).astype(dtype)
    out = np.empty_like(x)
    compiled_share(x, out)
    exact = np.array([float(mpmath.log1p(mpmath.mpf(float(t)))) for t in x])
    np.testing.assert_allclose(out, exact, rtol=4 * np.finfo(dtype).eps)
    np.testing.assert_allclose(special.log1p_of_fraction(x), exact, rtol=2 * np.finfo(dtype).eps)


@kernel
def compiled_logs(x, out):
    for i in range(len(x)):
        out[0, i], out[1, i] = special.log(x[i]), special.log_of_normal(special.widen(x[i]))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_logarithms_are_exact_to_rounding(dtype):
    info = np.finfo(dtype)
    near = np.concatenate([1 + np.linspace(-0.6, 1.2, 300), 1 + np.logspace(-12, -3, 50)])
    scales = np.logspace(np.log10(info.tiny) + 1, np.log10(info.max) - 1, 200)
    roots = np.nextafter(np.sqrt(0.5) * 2.0 ** np.arange(-1, 2), [0.0, 1.0, 9.0])
    x = np.concatenate([[info.tiny, 0.5, 1.0, 2.0, info.max], near, scales, roots]).astype(dtype)
    out = np.empty((2, len(x)), dtype)
    compiled_logs(x.astype(dtype), out)
    exact = [float(mpmath.log(mpmath.mpf(float(t)))) for t in x]
    for found in (*out, special.log(x), special.log_of_normal(x)):
        np.testing.assert_allclose(found, exact, rtol=2 * info.eps)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_extremes_saturate(dtype):
    largest = np.finfo(dtype).max / 2
    x = np.array([-largest, -1e4, 1e4, largest], dtype)
    results = np.empty((len(FUNCTIONS), len(x)), dtype)
    compiled(x, results)
    for row, name in zip(results, [*FUNCTIONS][:-1], strict=False):
        plain = getattr(special, name)(x)
        assert np.isfinite(plain).all()
        assert np.isfinite(row).all()
    assert special.softplus(np.array([np.inf]))[0] == np.inf


@kernel
def compiled_pairs(x, y, results):
    for i in range(len(x)):
        results[0, i], results[1, i] = special.two_sum(x[i], y[i])
        results[2, i], results[3, i] = special.two_product(x[i], y[i])


def test_error_free_transformations_are_exact():
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=200) * 10.0 ** rng.integers(-8, 9, 200) for _ in range(2))
    results = np.empty((4, 200))
    compiled_pairs(x, y, results)
    plain = np.array([*special.two_sum(x, y), *special.two_product(x, y)])
    np.testing.assert_array_equal(plain, results)
    for i in range(200):
        exact_x, exact_y = Fraction(x[i]), Fraction(y[i])
        parts = [Fraction(r) for r in results[:, i]]
        assert parts[0] + parts[1] == exact_x + exact_y
        assert parts[2] + parts[3] == exact_x * exact_y
    assert (results[1] != 0).any()
    assert (results[3] != 0).all()


def test_normal_quantile_is_exact_to_rounding():
    """In NumPy and compiled; at 0 and 1, and nearer to them than random numbers, it is finite."""

    @kernel(name=None)
    def fill(p, out):
        for i in range(len(p)):
            out[i] = special.normal_quantile(p[i])

    # On both sides of where one approximation takes over from another, too.
    p = np.array([2.0**-53, 1e-14, 1.38e-11, 1.39e-11, 1e-6, 0.0749, 0.0751, 0.3, 0.5 - 1e-9])
    p, ends = np.concatenate([p, 1 - p, [0.5]]), np.array([0.0, 1e-300, 1.0])
    found = np.empty(len(p))
    fill(p, found)
    with mpmath.workdps(40):
        expected = [float(mpmath.sqrt(2) * mpmath.erfinv(2 * mpmath.mpf(float(x)) - 1)) for x in p]
    np.testing.assert_allclose(found, expected, rtol=4e-15, atol=1e-16)
    np.testing.assert_allclose(special.normal_quantile(p), expected, rtol=4e-15, atol=1e-16)
    at_ends = np.empty(3)
    fill(ends, at_ends)
    np.testing.assert_allclose(at_ends, special.normal_quantile(ends), rtol=4e-15)
    assert np.isfinite(at_ends).all()
