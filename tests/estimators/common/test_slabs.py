"""Quantities that are zero with some probability, beside integrals of their distribution."""

import numpy as np
import pytest
from scipy.stats import norm

from fastmf.estimators.common.slabs import quantile, slab_moments

INCLUDED = np.array([0.0, 0.2, 0.7, 1.0, 0.9])
MEAN = np.array([0.0, 1.0, -0.5, 2.0, 1e5])
VARIANCE = np.array([0.0, 0.3, 1.0, 0.1, 4.0])


def test_moments_are_those_without_the_mass_at_zero():
    with_zero = INCLUDED * MEAN
    variance = INCLUDED * (VARIANCE + MEAN**2) - with_zero**2
    mean, of_slab = slab_moments(with_zero, variance, INCLUDED)
    np.testing.assert_allclose(mean, MEAN, rtol=1e-12)
    np.testing.assert_allclose(of_slab, VARIANCE, rtol=1e-5)


@pytest.mark.parametrize("tail", [0.025, 0.3, 0.5, 0.81, 0.975])
def test_quantiles_are_the_smallest_values_that_reach_a_probability(tail):
    found = quantile(tail, INCLUDED, MEAN, VARIANCE)
    for p, mean, variance, value in zip(INCLUDED, MEAN, VARIANCE, found, strict=True):
        if p == 0:
            assert value == 0
            continue

        near = value + np.array([-1e-6, 1e-6])
        low, high = p * norm.cdf(near, mean, np.sqrt(variance)) + (1 - p) * (near >= 0)
        assert low <= tail <= high


def test_features_that_are_never_in_are_zero():
    moments = slab_moments(np.zeros(2), np.zeros(2), np.zeros(2))
    assert quantile(0.975, np.zeros(2), *moments).tolist() == [0, 0]
