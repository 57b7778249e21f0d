"""The Gaussian side of two layers, against that with a full matrix."""

import numpy as np
import pytest
from kernel_cases.gaussian_sides import agree, sites

from fastmf.inference.gaussian import Dense
from fastmf.inference.gaussian.bipartite import Bipartite


@pytest.mark.parametrize("shape", [(8, 5), (5, 8)])
def test_bipartite_is_dense(shape):
    weights = np.random.default_rng(2).normal(size=shape) / 3
    n_visible, n = shape[0], sum(shape)
    couplings = np.zeros((n, n))
    couplings[:n_visible, n_visible:] = weights
    dense = Dense(-couplings - couplings.T, np.zeros(n), 0.0)
    site = sites(n)
    site[1] += 2
    agree(Bipartite(weights).moments(site), dense.moments(site), 1e-11)


def test_rows_at_the_border_are_left_out_of_the_covariance():
    side, site = Bipartite(np.full((3, 2), 0.5)), np.stack([np.zeros(5), np.full(5, 2.0)])
    improper = np.stack([np.zeros(5), [2.0, 2.0, 2.0, 0.01, 0.01]])
    assert side.moments(improper) is None
    found = side.mean_covariance(np.stack([site, improper]))
    np.testing.assert_allclose(found, side.covariance(site)[:3, 3:], rtol=1e-12)
    assert np.isnan(side.mean_covariance(improper[None])).all()
