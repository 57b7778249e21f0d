"""Fixed points of classes: coefficients and latent variables in turn, and all at once."""

import numpy as np
import pytest

import fastmf as mf
from fastmf.inference.ep.block_partition import FoundBlocks
from fastmf.learning.evidence import Classification, Hyperparameters, latent_start

HERE = Hyperparameters(1.0, 0.7, np.array([-1.5]))


@pytest.mark.parametrize("blocks", [None, FoundBlocks(np.array([0, 0, 0, 1, 2, 3, 4, 4, 5]), 0)])
@pytest.mark.parametrize("weighted", [False, True])
def test_in_turn_the_fixed_point_is_that_of_all_sites_at_once(blocks, weighted):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 9))
    X[:, 1:3] = X[:, :1] + 0.4 * X[:, 1:3]
    X[:, 8] = 1.0
    signs = np.sign(X[:, 0] - X[:, 5] + 0.7 * rng.normal(size=60))
    weights = rng.uniform(0.5, 3.0, 60) if weighted else 1.0
    task = Classification.of(X, signs, np.zeros(8, int), [0.01], weights)
    model = task.model(HERE)
    options = {"tol": 1e-9, "max_iter": 500, "schedule": "parallel"}
    expected = mf.expectation_propagation(model, blocks=blocks, **options)
    assert expected.converged
    start, own = latent_start(model, None, blocks, options)
    np.testing.assert_allclose(start.sites, expected.sites, rtol=1e-5, atol=1e-6)
    again = mf.expectation_propagation(model, start, blocks=own, **options | {"tol": 1e-7})
    assert again.converged and again.n_iter == 1
    assert again.log_evidence == pytest.approx(expected.log_evidence, abs=1e-6)
