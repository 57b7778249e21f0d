"""Which features are in a block."""

import itertools
import tracemalloc

import numpy as np
import pytest

import fastmf as mf
from fastmf._common import rows
from fastmf._common.stored_columns import StoredColumns
from fastmf.inference.ep import partition
from fastmf.inference.ep.partition import (
    MAX_FEATURES,
    FoundBlocks,
    correlated_blocks,
    most_included,
    one_block,
)


def as_sets(blocks):
    return {tuple(sorted(map(int, block))) for block in blocks}


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
    blocks = FoundBlocks(np.array([0, 1, 0, 1, 2, 3]))
    result = mf.expectation_propagation(model, blocks=blocks, max_iter=200)
    assert result.converged
    np.testing.assert_allclose(result.inclusion_probability, exact, atol=0.05)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("scale", [1, 1e-150, 1e150])
def test_copies_flips_multiples_and_sums_share_a_block(dtype, scale):
    rng = np.random.default_rng(0)
    A = rng.normal(size=(200, 9))
    A -= A.mean(0)
    columns = [A[:, 0], A[:, 0], -A[:, 0], 3 * A[:, 0], A[:, 1] + A[:, 2], A[:, 1], A[:, 2]]
    X = np.stack([*columns, 0 * A[:, 0], *A[:, 3:].T], axis=1).astype(dtype)
    if dtype == np.float64:
        X *= scale
    assert as_sets(correlated_blocks(X)) == {(0, 1, 2, 3), (4, 5, 6)}


@pytest.mark.parametrize("shape", [(75, 512), (500, 40), (1000, 12), (30, 50)])
def test_independent_columns_have_no_blocks(shape):
    X = np.random.default_rng(3).normal(size=shape)
    assert sum(map(len, correlated_blocks(X))) <= 4


def test_blocks_are_groups_of_correlated_features_but_not_too_large():
    rng = np.random.default_rng(4)
    common = rng.normal(size=(300, 1))
    groups = [common + 0.7 * rng.normal(size=(300, 1)) for _ in range(3)]
    X = np.concatenate([g + 0.2 * rng.normal(size=(300, 40)) for g in groups], axis=1)
    first = correlated_blocks(X)[0]
    assert first[0] == 0 and set(range(40)) <= set(first)
    assert max(map(len, correlated_blocks(np.repeat(common, 150, axis=1)))) == MAX_FEATURES


def test_constant_columns_are_in_no_block():
    assert correlated_blocks(np.zeros((10, 4))) == []
    assert correlated_blocks(np.zeros((10, 40))) == []


def test_features_of_large_scores_lead():
    """A chain is cut between effects, whose blocks reach equally far on both sides."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(5000, 60))
    for j in range(1, 60):
        X[:, j] = 0.8 * X[:, j - 1] + 0.6 * X[:, j]
    scores = np.zeros(60)
    scores[[17, 40]] = 2, 3
    blocks = as_sets(correlated_blocks(X, scores))
    # 0.8^4 = 0.41
    assert {tuple(range(13, 22)), tuple(range(36, 45))} <= blocks
    assert sorted(k for block in blocks for k in block) == sorted(set().union(*blocks))


def test_stored_columns_are_converted_some_at_a_time(monkeypatch):
    monkeypatch.setattr(rows, "BLOCK_ENTRIES", 2**16)
    monkeypatch.setattr(partition, "LEADS_AT_A_TIME", 32)
    n, p = 200, 1500
    X = np.random.default_rng(7).integers(0, 3, size=(n, p)).astype(np.int8)
    mean, factors = X.mean(0), np.ones(p)
    columns = StoredColumns(X, np.ones(n), factors, np.ones((n, 1)), mean[None])
    tracemalloc.start()
    blocks = correlated_blocks(columns, np.zeros(p))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert blocks == []
    assert peak < 6 * X.size  # all of them in double precision take 8


def test_few_features_are_one_block():
    X = np.random.default_rng(0).normal(size=(30, 12))
    X[:, 3] = 0
    assert as_sets(one_block(X[:, :11])) == {(0, 1, 2, *range(4, 11))}
    assert one_block(X[:, 2:4]) == [] and one_block(X) is None


def test_patterns_of_blocks_of_any_size_are_few():
    sizes = [most_included(c) for c in (*range(12, 300), 2000)]
    assert sizes == sorted(sizes, reverse=True) and sizes[-1] == 3
