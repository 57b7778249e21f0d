import numpy as np
import pytest

from fastmf.learning.layered.starts import nearest_rows


@pytest.mark.parametrize("pairs", [1, 150, 2**24])
@pytest.mark.parametrize("n_nearest", [1, 3, 50])
def test_the_best_rows_come_in_order(monkeypatch, pairs, n_nearest):
    monkeypatch.setattr("fastmf._common.rows.BLOCK_ENTRIES", pairs)
    rng = np.random.default_rng(0)
    fields, X, costs = rng.normal(size=(7, 4)), rng.normal(size=(50, 4)), rng.normal(size=50)
    expected = np.argsort(costs - np.einsum("ri,ki->rk", fields, X), axis=1)[:, :n_nearest]
    np.testing.assert_array_equal(nearest_rows(fields, X, costs, n_nearest), expected)
