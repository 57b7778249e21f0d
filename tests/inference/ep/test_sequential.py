"""Sequential sweeps: every update is seen by the next."""

import numpy as np
import pytest
from kernel_cases.regression import problem

import fastmf as mf


@pytest.mark.parametrize("shape", [(60, 55), (20, 70)])
def test_a_sequential_sweep_sees_every_update_before(shape):
    """The Gaussian anew for every unit, where the sweep changes what it keeps, and late."""
    model, _ = problem(*shape, seed=3, noise=0.2, inclusion_probability=0.1)
    X, prior, s2 = model.X, model.prior, model.noise_variance
    start = np.stack([np.zeros(shape[1]), np.full(shape[1], 2.0)])
    sites = start.copy()
    for i in range(shape[1]):
        covariance = np.linalg.inv(X.T @ X / s2 + np.diag(sites[1]))
        mean = covariance[i] @ (X.T @ model.y / s2 + sites[0])
        b, a = mean / covariance[i, i] - sites[0, i], 1 / covariance[i, i] - sites[1, i]
        mean, var = (moment[i] for moment in prior.moments(b, a))
        sites[:, i] = mean / var - b, 1 / var - a
    result = mf.expectation_propagation(model, start, schedule="sequential", max_iter=1)
    assert sites[1].min() < 0
    np.testing.assert_allclose(result.sites, sites, rtol=1e-7, atol=1e-7)
