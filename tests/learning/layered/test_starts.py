import numpy as np
import pytest

from fastmf.learning.layered.starts import nearest_rows, starts
from fastmf.models import RBM
from fastmf.priors import Bernoulli


def model(visible):
    return RBM(np.zeros((50, 3)), visible, Bernoulli(np.zeros(3)))


def test_rows_are_taken_again_if_there_are_too_few():
    X = np.arange(150.0).reshape(3, 50)
    rbm, rng = model(Bernoulli(np.zeros(50))), np.random.default_rng(0)
    for kind in ("data", "persistent"):
        taken = starts(kind, rbm, X, 7, 0.1, rng)
        np.testing.assert_array_equal(taken, X[[0, 1, 2, 0, 1, 2, 0]])


def test_random_starts_are_draws_from_the_visible_prior():
    rbm = model(Bernoulli(np.full(50, 2.0)))
    drawn = starts("random", rbm, np.zeros((3, 50)), 200, 0.1, np.random.default_rng(0))
    assert drawn.shape == (200, 50)
    assert drawn.mean() == pytest.approx(1 / (1 + np.exp(-2)), abs=0.02)


@pytest.mark.parametrize("pairs", [1, 150, 2**24])
@pytest.mark.parametrize("n_nearest", [1, 3, 50])
def test_the_best_rows_come_in_order(monkeypatch, pairs, n_nearest):
    monkeypatch.setattr("fastmf._common.rows.BLOCK_ENTRIES", pairs)
    rng = np.random.default_rng(0)
    fields, X, costs = rng.normal(size=(7, 4)), rng.normal(size=(50, 4)), rng.normal(size=50)
    expected = np.argsort(costs - np.einsum("ri,ki->rk", fields, X), axis=1)[:, :n_nearest]
    np.testing.assert_array_equal(nearest_rows(fields, X, costs, n_nearest), expected)


def test_of_rows_alike_the_first_is_the_best():
    X = np.ones((5, 2))
    np.testing.assert_array_equal(nearest_rows(np.ones((3, 2)), X, 0, 1), np.zeros((3, 1)))
