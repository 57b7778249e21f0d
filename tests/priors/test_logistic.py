from functools import cache
from itertools import pairwise

import mpmath
import numpy as np
import pytest

from fastmf.priors.logistic import Logistic

# Means and variances of the Gaussian that is tilted by the sigmoid.
CASES = [(0, 1e-8), (-3, 1e-3), (30, 0.3), (-30, 0.3), (0.7, 3), (-200, 60), (5, 1e6), (-1e6, 2)]


def log_sigmoid(x):
    return -mpmath.log1p(mpmath.exp(-x)) if x > 0 else x - mpmath.log1p(mpmath.exp(x))


@cache
def tilted(b, a):
    """Log-partition, mean and variance by quadrature of pieces, short ones at the mode and at 0."""

    def exponent(x):
        return b * x - a * x * x / 2 + log_sigmoid(x)

    low, high = b / a - 1, (b + 1) / a + 1
    for _ in range(120):
        mode = (low + high) / 2
        if b - a * mode + 1 / (1 + mpmath.exp(mode)) > 0:
            low = mode
        else:
            high = mode
    width = 12 / mpmath.sqrt(a)  # the exponent falls at least as fast as the Gaussian's
    points = {mode, mpmath.mpf(0)}
    points |= {c + s * width / 2**k for k in range(18) for s in (-1, 1) for c in (0, mode)}
    points = sorted(x for x in points if abs(x - mode) < 1.5 * width)
    rule = mpmath.calculus.quadrature.GaussLegendre(mpmath.mp).calc_nodes(4, 120)
    sums = [mpmath.mpf(0)] * 3
    for start, end in pairwise(points):
        half, middle = (end - start) / 2, (start + end) / 2
        for t, weight in rule:
            x = middle + half * t
            density = weight * half * mpmath.exp(exponent(x) - exponent(mode))
            sums = [s + density * (x - mode) ** k for k, s in enumerate(sums)]
    shift = sums[1] / sums[0]
    return exponent(mode) + mpmath.log(sums[0]), mode + shift, sums[2] / sums[0] - shift**2


@pytest.mark.parametrize("mean, variance", CASES)
@pytest.mark.parametrize("dtype, tolerance", [(np.float64, 1e-9), (np.float32, 1e-6)])
def test_moments_against_mpmath(mean, variance, dtype, tolerance):
    # The same numbers in both types.
    tilt = np.array([[mean / variance], [1 / variance]], np.float32).astype(dtype)
    units = Logistic(np.zeros(1, dtype))
    found = units.log_partition(*tilt), *units.moments(*tilt)
    assert all(part.dtype == dtype for part in found)
    with mpmath.workdps(35):
        value, mean, var = tilted(*(mpmath.mpf(float(part[0])) for part in tilt))
    deviation, found = float(mpmath.sqrt(var)), [float(part[0]) for part in found]
    np.testing.assert_allclose(found[0], float(value), rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(found[1], float(mean), rtol=tolerance, atol=tolerance * deviation)
    np.testing.assert_allclose(found[2], float(var), rtol=tolerance)


def test_both_signs_together_are_gaussian():
    """sigmoid(x) + sigmoid(-x) = 1."""
    b, a = np.array([0.3, -20.0, 4.0]), np.array([1e-4, 2.0, 1e3])
    units = Logistic(np.full(3, 0.5))
    total = np.logaddexp(units.log_partition(b, a), units.log_partition(-b, a))
    gaussian = b * b / (a + 0.5) / 2 + np.log(2 * np.pi / (a + 0.5)) / 2
    np.testing.assert_allclose(total, gaussian, atol=1e-9)


def test_integrals_that_diverge_are_infinite():
    units = Logistic(np.zeros(3))
    b, a = np.array([1.0, 0.0, -3.0]), np.array([0.0, -1.0, 0.0])
    mean, var = units.moments(b, a)
    assert (units.log_partition(b, a) == np.inf).all()
    assert (var == np.inf).all() and np.isfinite(mean).all()
