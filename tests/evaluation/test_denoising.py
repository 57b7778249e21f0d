import numpy as np
import pytest

from fastmf.evaluation import flip, matthews_correlation, nearest_neighbour, pointwise_estimate
from fastmf.evaluation.denoising import nearest_rows


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def binary(rng, *shape):
    return (rng.random(shape) < 0.4).astype(np.float32)


def test_flip_changes_about_a_share_p_of_the_entries(rng):
    X = binary(rng, 200, 100)
    Y = flip(X, 0.2, rng)
    assert Y.dtype == X.dtype
    assert set(np.unique(Y)) == {0, 1}
    assert (X != Y).mean() == pytest.approx(0.2, abs=0.02)


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int64, np.float64])
def test_flip_is_exact_without_and_with_certain_noise(rng, dtype):
    X = binary(rng, 5, 7).astype(dtype)
    np.testing.assert_array_equal(flip(X, 0, rng), X)
    np.testing.assert_array_equal(flip(X, 1, rng), X == 0)


def test_pointwise_estimate_is_bayes_rule(rng):
    # m = 0.3, p = 0.13 worked by hand: 0.3 * 0.87 / (0.3 * 0.87 + 0.7 * 0.13)
    assert pointwise_estimate([[1]], [0.3], 0.13) == pytest.approx(0.261 / 0.352, rel=1e-15)
    # and by counting: among sites seen as y, the share that was 1
    m, p = np.array([0.1, 0.5, 0.8]), 0.25
    x = rng.random((200_000, 3)) < m
    y = flip(x, p, rng)
    for seen in (False, True):
        share = (x & (y == seen)).sum(0) / (y == seen).sum(0)
        estimate = pointwise_estimate(np.full((1, 3), seen), m, p)[0]
        np.testing.assert_allclose(estimate, share, atol=0.01)


def test_pointwise_estimate_is_the_observation_without_noise_and_the_prior_with_pure_noise(rng):
    Y = binary(rng, 4, 5)
    m = np.array([0.0, 0.2, 0.5, 0.9, 1.0])
    np.testing.assert_array_equal(pointwise_estimate(Y, m, 0.0), Y)
    np.testing.assert_array_equal(pointwise_estimate(Y, m, 1.0)[:, 1:4], 1 - Y[:, 1:4])
    np.testing.assert_allclose(pointwise_estimate(Y, m, 0.5), np.tile(m, (4, 1)), rtol=1e-15)


def test_nearest_neighbour_is_the_first_row_of_least_distance(rng, monkeypatch):
    X, Y = binary(rng, 50, 30), binary(rng, 40, 30)
    distance = (Y[:, None] != X[None]).sum(2)
    expected = X[distance.argmin(1)]
    np.testing.assert_array_equal(nearest_neighbour(Y, X), expected)
    monkeypatch.setattr("fastmf._common.rows.BLOCK_ENTRIES", 7 * 50)  # blocks of 7 rows
    np.testing.assert_array_equal(nearest_neighbour(Y.astype(bool), X), expected)


def test_matthews_correlation_is_the_correlation_coefficient_of_the_rounded_values(rng):
    truth, estimate = rng.random((6, 80)), rng.random((6, 80))
    rows = [np.corrcoef(t > 0.5, e > 0.5)[0, 1] for t, e in zip(truth, estimate, strict=True)]
    np.testing.assert_allclose(matthews_correlation(truth, estimate), rows, rtol=1e-12)
    np.testing.assert_allclose(matthews_correlation(truth.T, estimate.T, axis=0), rows, rtol=1e-12)
    pooled = np.corrcoef(truth.ravel() > 0.5, estimate.ravel() > 0.5)[0, 1]
    assert matthews_correlation(truth, estimate, axis=None) == pytest.approx(pooled, rel=1e-12)


def test_matthews_correlation_of_extremes():
    truth = np.array([0, 1, 1, 0])
    assert matthews_correlation(truth, truth) == 1
    assert matthews_correlation(truth, 1 - truth) == -1
    assert matthews_correlation(truth, np.ones(4)) == 0
    assert matthews_correlation(np.zeros(4), np.zeros(4)) == 0


@pytest.mark.parametrize(
    "call, name",
    [
        (lambda: flip([[2]], 0.1, np.random.default_rng()), "X"),
        (lambda: flip([[1]], 1.1, np.random.default_rng()), "p"),
        (lambda: pointwise_estimate([[0.5]], [0.5], 0.1), "Y"),
        (lambda: pointwise_estimate([[1]], [np.nan], 0.1), "means"),
        (lambda: pointwise_estimate([[1]], [0.5], -0.1), "flip_probability"),
        (lambda: nearest_neighbour([[1]], [[1, 0]]), r"\(1, 1\) and \(1, 2\)"),
        (lambda: nearest_neighbour(np.ones((1, 3)), np.ones((0, 3))), "at least one"),
        (lambda: matthews_correlation([0, 1], [np.nan, 1]), "estimate contains NaN"),
        (lambda: matthews_correlation([], []), "no entries"),
    ],
)
def test_bad_input_is_named(call, name):
    with pytest.raises(ValueError, match=name):
        call()


@pytest.mark.parametrize("pairs", [1, 150, 2**24])
@pytest.mark.parametrize("n_nearest", [1, 3, 50])
def test_the_best_rows_come_in_order(monkeypatch, pairs, n_nearest):
    monkeypatch.setattr("fastmf._common.rows.BLOCK_ENTRIES", pairs)
    rng = np.random.default_rng(0)
    fields, X, costs = rng.normal(size=(7, 4)), rng.normal(size=(50, 4)), rng.normal(size=50)
    expected = np.argsort(costs - np.einsum("ri,ki->rk", fields, X), axis=1)[:, :n_nearest]
    np.testing.assert_array_equal(nearest_rows(fields, X, costs, n_nearest), expected)
