"""All kinds of Gaussian sides are the same Gaussian, and the factory chooses the kind."""

import numpy as np
import pytest
from kernel_cases.gaussian_sides import linear, sites

from fastmf.inference.gaussian.bipartite import Bipartite


def test_no_gaussian_is_said():
    low_rank, dense = linear(20, 90)
    bipartite = Bipartite(np.full((4, 3), 2.0))
    for side, unit in ((low_rank, 3), (dense, 3), (low_rank, 7), (dense, 7)):
        assert side.moments(sites(90, ((unit, -1e4),))) is None
    assert bipartite.moments(np.ones((2, 7))) is None
    assert bipartite.moments(-np.ones((2, 7))) is None


def test_blocks_of_the_covariance():
    units = np.array([0, 3, 7, 50, 88])
    low_rank, dense = linear(20, 90)
    for low in ((), ((0, -0.04), (50, 0.0))):
        site = sites(90, low)
        expected = dense.covariance(site)[units][:, units]
        np.testing.assert_allclose(low_rank.covariance(site, units), expected, rtol=1e-7, atol=1e-9)
    for shape in ((8, 5), (5, 8)):
        weights = np.random.default_rng(2).normal(size=shape) / 3
        couplings = np.zeros((13, 13))
        couplings[: shape[0], shape[0] :] = weights
        site = sites(13) + np.array([[0], [2]])
        expected = np.linalg.inv(np.diag(site[1]) - couplings - couplings.T)
        some = np.array([1, 4, 6, 12])
        np.testing.assert_allclose(
            Bipartite(weights).covariance(site, some), expected[some][:, some], atol=1e-12
        )


@pytest.mark.parametrize("low", [(), ((0, -0.04), (50, 0.0))])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_solving(low, dtype):
    low_rank, dense = linear(20, 90, dtype)
    site, right = sites(90, low), np.random.default_rng(3).normal(size=90)
    A = dense.precision + np.diag(site[1])
    for side in (low_rank, dense):
        solution = side.inverse(site[1]).solve(right)
        np.testing.assert_allclose(A @ solution, right, atol=1e-7)
    bipartite, site = Bipartite(np.random.default_rng(2).normal(size=(50, 40)) / 9), sites(90)
    site[1] += 2
    inverse = bipartite.inverse(site[1])
    expected = inverse.covariance(np.arange(90)) @ right
    np.testing.assert_allclose(inverse.solve(right), expected, atol=1e-12)
