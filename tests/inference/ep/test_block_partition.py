"""Which features are in a block."""

import itertools
from types import SimpleNamespace

import numpy as np

import fastmf as mf
from fastmf.inference.ep.block_partition import (
    FoundBlocks,
    blocks_of,
    cut_blocks,
    joined_blocks,
    sharing_blocks,
)
from fastmf.inference.ep.correlated import MAX_FEATURES
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


def test_found_blocks_are_labels():
    X = np.zeros((3, 4))
    members = blocks_of(X, FoundBlocks(np.array([0, 1, 0, 2]), 3))
    assert [units.tolist() for units in members] == [[0, 2]]


def test_blocks_of_what_moves_are_joined():
    X = two_places().X
    moved = np.array([0.4, 0.3, 0.0, 0.0, 0.5, 0.9])
    included = np.array([0.5, 0.6, 0.1, 0.1, 0.0, 1.0])  # the last two are decided
    stopped = SimpleNamespace(
        mean=np.zeros(6), var=np.ones(6), gaussian_mean=moved, inclusion_probability=included
    )
    joined = joined_blocks(X, [np.array([0, 2]), np.array([1, 3])], stopped)
    assert [units.tolist() for units in joined] == [[0, 1, 2, 3]]
    stopped.gaussian_mean = np.zeros(6)
    assert joined_blocks(X, [np.array([0, 2])], stopped) is None


def test_blocks_that_share_an_effect_are_joined_where_it_is_open():
    X = two_places().X
    members = [np.array([0, 2]), np.array([1, 3])]

    def joined(*included):
        result = SimpleNamespace(inclusion_probability=np.array(included))
        found = sharing_blocks(X, members, result)
        return found if found is None else [units.tolist() for units in found]

    assert joined(0.99, 0.3, 0, 0, 0, 0) == [[0, 1, 2, 3]]
    assert joined(0.99, 0.98, 0, 0, 0, 0) is None  # both have an effect
    assert joined(0.99, 0.02, 0, 0, 0, 0) is None
    assert joined(0.5, 0.0, 0.5, 0.5, 0, 0) is None  # no correlations


def test_blocks_are_not_joined_beyond_the_largest():
    model = two_places()
    n = MAX_FEATURES
    X = np.concatenate([np.repeat(model.X[:, :1], n, 1), model.X[:, 1:2]], axis=1)
    prior = mf.GaussBernoulli(np.zeros(n + 1), np.full(n + 1, 0.5), np.full(n + 1, -3.0))
    model = mf.SparseLinearModel(X, model.y, 1.0, prior)
    labels = np.append(np.zeros(n, int), 1)
    stopped = mf.expectation_propagation(model, blocks=labels, max_iter=1)
    assert joined_blocks(X, [np.arange(n)], stopped) is None


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


def test_a_block_whose_largest_patterns_hold_much_of_the_weight_is_cut():
    X = two_places().X
    members = [np.array([0, 1, 2, 3]), np.array([4, 5])]
    result = SimpleNamespace(
        block_sites=tuple((units, None) for units in members), full_probability=[0.6, 0.1]
    )
    assert [units.tolist() for units in cut_blocks(X, members, result)] == [[0, 1, 2], [4, 5]]
    result.full_probability = [0.1, 0.1]
    assert cut_blocks(X, members, result) is None
