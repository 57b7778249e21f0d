import numpy as np
import pytest

from fastmf.learning.layered.starts import nearest_rows, perturbed, starts
from fastmf.models import RBM
from fastmf.priors import Bernoulli, Concatenated, Gaussian, Ising


def model(visible):
    return RBM(np.zeros((50, 3)), visible, Bernoulli(np.zeros(3)))


@pytest.mark.parametrize("values", [(0.0, 1.0), (-1.0, 1.0)])
def test_noise_flips_two_valued_units_with_its_probability(values):
    rng = np.random.default_rng(0)
    prior = {0.0: Bernoulli, -1.0: Ising}[values[0]](np.zeros(50))
    X = rng.choice(values, (400, 50))
    noisy = perturbed(X, prior, 0.1, rng)
    assert set(np.unique(noisy)) == set(values)
    assert (noisy != X).mean() == pytest.approx(0.1, abs=4 * np.sqrt(0.09 / X.size))
    np.testing.assert_array_equal(perturbed(X, prior, 0.0, rng), X)


def test_noise_moves_real_units_within_the_range_of_the_data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 50)) * np.arange(50)
    noisy = perturbed(X, Gaussian(np.zeros(50), 1.0), 0.2, rng)
    np.testing.assert_array_equal(noisy[:, 0], 0)
    np.testing.assert_allclose((noisy - X).std(0), 0.2 * X.std(0), rtol=0.2)
    assert (noisy >= X.min(0)).all()
    assert (noisy <= X.max(0)).all()


def test_noise_treats_units_side_by_side_each_in_their_way():
    rng = np.random.default_rng(0)
    X = np.hstack([rng.integers(0, 2, (400, 20)), rng.normal(size=(400, 30))])
    prior = Concatenated(Bernoulli(np.zeros(20)), Gaussian(np.zeros(30), 1.0))
    noisy = perturbed(X, prior, 0.2, rng)
    flipped = noisy[:, :20] != X[:, :20]
    np.testing.assert_array_equal(noisy[:, :20], np.where(flipped, 1 - X[:, :20], X[:, :20]))
    assert flipped.mean() == pytest.approx(0.2, abs=4 * np.sqrt(0.16 / flipped.size))
    np.testing.assert_allclose((noisy - X)[:, 20:].std(0), 0.2 * X[:, 20:].std(0), rtol=0.2)


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
    monkeypatch.setattr("fastmf.learning.layered.starts.BLOCK_PAIRS", pairs)
    rng = np.random.default_rng(0)
    fields, X, costs = rng.normal(size=(7, 4)), rng.normal(size=(50, 4)), rng.normal(size=50)
    expected = np.argsort(costs - np.einsum("ri,ki->rk", fields, X), axis=1)[:, :n_nearest]
    np.testing.assert_array_equal(nearest_rows(fields, X, costs, n_nearest), expected)


def test_of_rows_alike_the_first_is_the_best():
    X = np.ones((5, 2))
    np.testing.assert_array_equal(nearest_rows(np.ones((3, 2)), X, 0, 1), np.zeros((3, 1)))
