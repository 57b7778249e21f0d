import numpy as np
import pytest

from fastmf.learning.layered.nearest import nearest_rows


@pytest.mark.parametrize("pairs", [1, 150, 2**24])
@pytest.mark.parametrize("n_nearest", [1, 3, 50])
def test_the_best_rows_come_in_order(monkeypatch, pairs, n_nearest):
    monkeypatch.setattr("fastmf.learning.layered.nearest.PAIRS", pairs)
    rng = np.random.default_rng(0)
    fields, X, costs = rng.normal(size=(7, 4)), rng.normal(size=(50, 4)), rng.normal(size=50)
    expected = np.argsort(costs - np.einsum("ri,ki->rk", fields, X), axis=1)[:, :n_nearest]
    np.testing.assert_array_equal(nearest_rows(fields, X, costs, n_nearest), expected)


def test_of_rows_alike_the_first_is_the_best():
    X = np.ones((5, 2))
    np.testing.assert_array_equal(nearest_rows(np.ones((3, 2)), X, 0, 1), np.zeros((3, 1)))
