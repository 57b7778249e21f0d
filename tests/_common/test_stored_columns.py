"""Converted columns against arrays."""

import numpy as np
import pytest
from scipy import sparse

from fastmf._common.stored_columns import StoredColumns, column_squares


@pytest.mark.parametrize("kind", [np.asarray, sparse.csc_array])
def test_products_are_those_of_the_array(kind, monkeypatch):
    monkeypatch.setattr("fastmf._common.rows.BLOCK_ENTRIES", 100)
    rng = np.random.default_rng(0)
    X = rng.integers(-2, 3, (7, 30)).astype(np.int8)
    rows, scale = rng.random(7), rng.random(30)
    left, right = rng.normal(size=(7, 2)), rng.normal(size=(2, 30))
    ours = StoredColumns(kind(X), rows, scale, left, right)
    expected = rows[:, None] * X * scale - left @ right
    W, E = rng.normal(size=(30, 3)), rng.normal(size=(7, 4))
    mask = np.arange(30) % 4 == 0
    more = rng.normal(size=(7, 1)), rng.normal(size=(1, 30))
    mixing = sparse.random_array((30, 30), density=0.1, rng=rng, format="csc")
    cases = (
        (ours, expected),
        (ours.less(*more), expected - more[0] @ more[1]),
        (ours.without(mask), np.where(mask, 0, expected)),
        (ours.times(scale), expected * scale),
        (ours.mixed(mixing), expected @ mixing.toarray()),
        (StoredColumns.from_arrays(ours.arrays()), expected),
    )
    for mine, array in cases:
        assert mine.shape == array.shape and len(mine) == 7
        np.testing.assert_allclose(mine[:, 3:9], array[:, 3:9], atol=1e-12)
        np.testing.assert_allclose(mine[:, [5, 2]], array[:, [5, 2]], atol=1e-12)
        np.testing.assert_allclose(mine @ W, array @ W, atol=1e-12)
        np.testing.assert_allclose(mine @ W[:, 0], array @ W[:, 0], atol=1e-12)
        np.testing.assert_allclose(mine.T @ E, array.T @ E, atol=1e-12)
        np.testing.assert_allclose(W.T @ mine.T, W.T @ array.T, atol=1e-12)
        np.testing.assert_allclose(column_squares(mine), (array**2).sum(0), atol=1e-12)
    with pytest.raises(IndexError, match="whole columns"):
        ours[:3, :2]
