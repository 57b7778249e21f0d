"""Which features are in a block."""

import itertools

import numpy as np

import fastmf as mf
from fastmf.inference.ep.block_partition import (
    FoundBlocks,
)
from fastmf.inference.ep.expectation_propagation import Leads


def by_enumeration(model):
    """Inclusion probabilities, from all patterns."""
    prior, p = model.prior, model.n_features
    A = model.X.T @ model.X / model.noise_variance
    h = model.X.T @ model.y / model.noise_variance
    patterns, weights = list(itertools.product([False, True], repeat=p)), []
    for pattern in np.array(patterns):
        Q = A[np.ix_(pattern, pattern)] + np.diag(prior.precision[pattern])
        log_weight = (prior.log_odds + np.log(prior.precision) / 2)[pattern].sum()
        log_weight += h[pattern] @ np.linalg.solve(Q, h[pattern]) / 2
        weights.append(log_weight - np.linalg.slogdet(Q)[1] / 2)
    weights = np.exp(np.array(weights) - max(weights))
    return weights @ np.array(patterns) / weights.sum()


def two_places(seed=0):
    """An effect of column 0, or of its near copy, column 1, each with a copy of its own."""
    rng = np.random.default_rng(seed)
    first = rng.normal(size=80)
    second = first + 0.3 * rng.normal(size=80)
    X = np.stack([first, second, *rng.normal(size=(4, 80))], axis=1)
    y = first + second + rng.normal(size=80)
    prior = mf.GaussBernoulli(np.zeros(6), np.full(6, 0.5), np.full(6, -3.0))
    return mf.SparseLinearModel(X, y, 1.0, prior)


def test_joined_blocks_lead_to_the_posterior():
    model = two_places(1)
    exact = by_enumeration(model)
    blocks = FoundBlocks(np.array([0, 1, 0, 1, 2, 3]), 3)
    found = mf.expectation_propagation(model, blocks=blocks, max_iter=200)
    assert found.converged
    np.testing.assert_allclose(found.inclusion_probability, exact, atol=0.05)


def test_blocks_start_from_the_sites_with_which_they_were_found():
    model = two_places(1)
    leads = Leads(model)
    assert leads.result is None
    assert leads().argmax() in (0, 1)
    blocks = FoundBlocks(np.array([0, 0, 1, 2, 3, 4]), 3)
    cold, warm = (
        mf.expectation_propagation(model, blocks=own)
        for own in (blocks, blocks._replace(lead=leads.result))
    )
    assert warm.converged
    assert warm.n_iter < cold.n_iter
    np.testing.assert_allclose(warm.mean, cold.mean, atol=1e-7)
    np.testing.assert_allclose(warm.inclusion_probability, by_enumeration(model), atol=0.01)
