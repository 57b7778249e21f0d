import tracemalloc

import numpy as np
import pytest

from fastmf._common import rows
from fastmf._common.stored_columns import StoredColumns
from fastmf.inference.ep import correlated
from fastmf.inference.ep.correlated import MAX_FEATURES, correlated_blocks, cut


def as_sets(blocks):
    return {tuple(sorted(map(int, block))) for block in blocks}


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("scale", [1, 1e-150, 1e150])
def test_copies_flips_multiples_and_sums_share_a_block(dtype, scale):
    rng = np.random.default_rng(0)
    A = rng.normal(size=(200, 6))
    A -= A.mean(0)
    columns = [A[:, 0], A[:, 0], -A[:, 0], 3 * A[:, 0], A[:, 1], A[:, 2], A[:, 1] + A[:, 2]]
    X = np.stack([*columns, 0 * A[:, 0], A[:, 3], A[:, 4]], axis=1).astype(dtype)
    if dtype == np.float64:
        X *= scale
    assert as_sets(correlated_blocks(X)) == {(0, 1, 2, 3), (4, 5, 6)}


def test_a_sum_of_many_is_found():
    """Its correlation with each is 0.29."""
    X = np.random.default_rng(1).normal(size=(400, 13))
    X[:, 4] = np.delete(X, 4, axis=1).sum(1)
    assert as_sets(correlated_blocks(X)) == {tuple(range(13))}


def test_a_sum_is_found_among_more_columns_than_rows():
    X = np.random.default_rng(2).normal(size=(150, 300))
    X[:, 7] = X[:, 90] - X[:, 200]
    assert as_sets(correlated_blocks(X)) == {(7, 90, 200)}


@pytest.mark.parametrize("shape", [(75, 512), (500, 40), (1000, 3), (30, 50)])
def test_independent_columns_have_no_blocks(shape):
    X = np.random.default_rng(3).normal(size=shape)
    assert sum(map(len, correlated_blocks(X))) <= 4


def test_large_blocks_are_cut_where_correlations_are_smallest():
    rng = np.random.default_rng(4)
    common = rng.normal(size=(300, 1))
    groups = [common + 0.7 * rng.normal(size=(300, 1)) for _ in range(3)]
    X = np.concatenate([g + 0.2 * rng.normal(size=(300, 40)) for g in groups], axis=1)
    blocks = correlated_blocks(X)
    assert as_sets(blocks) == {tuple(range(k, k + 40)) for k in (0, 40, 80)}
    assert max(map(len, correlated_blocks(np.repeat(common, 150, axis=1)))) <= MAX_FEATURES
    pair = np.arange(30, 50)
    assert as_sets(cut(X, pair)) == {tuple(range(30, 40)), tuple(range(40, 50))}


def test_constant_columns_are_in_no_block():
    assert correlated_blocks(np.zeros((10, 4))) == []


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
    monkeypatch.setattr(correlated, "LEADS_AT_A_TIME", 32)
    n, p = 200, 1500
    X = np.random.default_rng(7).integers(0, 3, size=(n, p)).astype(np.int8)
    mean, factors = X.mean(0), np.ones(p)
    columns = StoredColumns(X, np.ones(n), factors, np.ones((n, 1)), mean[None])
    tracemalloc.start()
    blocks = correlated_blocks(columns, lambda: np.zeros(p))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert blocks == []
    assert peak < 6 * X.size  # all of them in double precision take 8


def test_few_features_are_one_block():
    X = np.random.default_rng(0).normal(size=(30, 12))
    X[:, 3] = 0
    assert as_sets(correlated_blocks(X[:, :11], few_are_one=True)) == {(0, 1, 2, *range(4, 11))}
    assert correlated_blocks(X[:, :11]) == correlated_blocks(X, few_are_one=True) == []
    assert correlated_blocks(X[:, 2:4], few_are_one=True) == []
