"""The Gaussian side as a full matrix, against plain inverses."""

import numpy as np
from kernel_cases.gaussian_sides import agree, linear, sites

from fastmf.inference.gaussian import Dense


def test_moments_are_derivatives_and_the_integral_is_one():
    """By numbers alone: no factorisation, no identity."""
    _, dense = linear(20, 9)
    site = sites(9)
    A = dense.precision + np.diag(site[1])
    mean = np.linalg.solve(A, dense.field + site[0])
    moments = dense.moments(site)
    np.testing.assert_allclose(moments.marginal, [mean, np.linalg.inv(A).diagonal()], rtol=1e-10)
    peak = dense.constant + (dense.field + site[0]) @ mean - mean @ A @ mean / 2
    expected = peak - np.linalg.slogdet(A / (2 * np.pi))[1] / 2
    np.testing.assert_allclose(moments.log_partition, expected, rtol=1e-10)


def test_a_regression_is_its_quadratic_form():
    low_rank, dense = linear(20, 9)
    other = Dense.of_regression(low_rank.X, low_rank.y, low_rank.noise_variance)
    agree(other.moments(sites(9)), dense.moments(sites(9)), 1e-12)


def test_a_tilt_from_outside_is_added_to_the_sites():
    _, dense = linear(20, 9)
    site, tilt = sites(9), sites(9)[:, ::-1]
    agree(dense.tilted(tilt).moments(site), dense.moments(site + tilt), 1e-12)
