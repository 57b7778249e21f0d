import itertools
import os
from pathlib import Path

import numpy as np
import pytest
from own_priors import ThreeLevels

import fastmf as mf
from fastmf.evaluation import (
    contact_precision,
    contact_scores,
    flip,
    matthews_correlation,
    nearest_neighbour,
    pointwise_estimate,
    ranked_pairs,
)
from fastmf.evaluation.denoising import nearest_rows


def problem(n=12, seed=0):
    rng = np.random.default_rng(seed)
    scores, distances = rng.integers(0, 9, (2, n, n)).astype(float)
    scores, distances = scores + scores.T, distances + distances.T
    distances[2, 9] = distances[9, 2] = np.nan
    return scores, distances


@pytest.mark.parametrize("separation", [1, 3, 5])
def test_precision_is_counted_pair_by_pair(separation):
    scores, distances = problem()
    pairs = [
        (-scores[i, j], i, j)
        for i in range(12)
        for j in range(i + separation, 12)
        if not np.isnan(distances[i, j])
    ]
    hits = [distances[i, j] < 8 for _, i, j in sorted(pairs)]
    expected = [sum(hits[:k]) / k for k in range(1, len(hits) + 1)]
    found = contact_precision(scores, distances, np.arange(1, len(hits) + 1), separation)
    np.testing.assert_allclose(found, expected)
    assert contact_precision(scores, distances, 7, separation) == pytest.approx(expected[6])
    assert isinstance(contact_precision(scores, distances, 7, separation), float)
    assert 0 < expected[6] < 1


def test_shapes_of_n_top_and_the_cutoff():
    scores, distances = problem()
    assert contact_precision(scores, distances, [[1, 2], [3, 4]]).shape == (2, 2)
    assert contact_precision(scores, distances, 5, cutoff=np.inf) == 1
    assert contact_precision(scores, distances, 5, cutoff=0.0) == 0
    known = distances[~np.isnan(distances)].max()
    assert contact_precision(-distances, distances, 5, cutoff=known) == 1


def test_pairs_fall_in_score():
    scores, _ = problem()
    first, second = ranked_pairs(scores, 4)
    assert (second - first >= 4).all() and len(first) == 8 * 9 // 2
    assert (np.diff(scores[first, second]) <= 0).all()


@pytest.mark.parametrize(
    "change, error, says",
    [
        (lambda s, d: (s[:5], d, 1), ValueError, r"scores must have shape \(n_columns"),
        (lambda s, d: (s[:5, :5], d, 1), ValueError, "one shape"),
        (lambda s, d: (np.triu(s), d, 1), ValueError, "scores must be symmetric"),
        (lambda s, d: (s, np.triu(d), 1), ValueError, "distances must be symmetric"),
        (lambda s, d: (s * np.nan, d, 1), ValueError, "scores must not be NaN"),
        (lambda s, d: (s.astype(str), d, 1), TypeError, "real numbers"),
        (lambda s, d: (s, d, 0), ValueError, "n_top must be between 1 and the 27 pairs"),
        (lambda s, d: (s, d, [1, 28]), ValueError, "got 1 to 28"),
        (lambda s, d: (s, d, 1.5), TypeError, "n_top must be an int"),
        (lambda s, d: (s, d, []), TypeError, "n_top must be an int"),
        (lambda s, d: (s, d, 1, 12), ValueError, "the 0 pairs"),
        (lambda s, d: (s, d, 1, 0), ValueError, "separation must be at least 1"),
        (lambda s, d: (s, d, 1, 5, np.nan), ValueError, "cutoff must be a number"),
    ],
)
def test_bad_input(change, error, says):
    with pytest.raises(error, match=says):
        contact_precision(*change(*problem()))


@pytest.mark.skipif("FASTMF_DATA" not in os.environ, reason="needs FASTMF_DATA")
def test_plmc_on_dhfr():
    """Of the 159 best pairs of the scores that plmc published 149 are contacts."""
    folder = Path(os.environ["FASTMF_DATA"]) / "sequences"
    if not folder.exists():
        pytest.skip("FASTMF_DATA has no sequences")
    distances = np.loadtxt(folder / "DHFR_distances.txt")
    scores = np.zeros_like(distances)
    scores[np.triu_indices(159, 1)] = np.loadtxt(folder / "DHFR.couplings", usecols=5)
    assert contact_precision(scores + scores.T, distances, 159) == pytest.approx(149 / 159)


def test_scores_are_those_of_a_potts_machine():
    rng = np.random.default_rng(0)
    X = rng.integers(0, 3, (200, 4))
    X[:, 3] = np.where(rng.random(200) < 0.7, X[:, 0], X[:, 3])
    machine = mf.PottsMachine(l2=0.1, l2_field=0.1).fit(X)
    flat = machine.couplings_.reshape(12, 12)
    for options in ({}, {"ignore": 0}, {"gauge": None, "apc": False}):
        found = mf.evaluation.contact_scores(machine.couplings_, **options)
        np.testing.assert_allclose(found, machine.contact_scores(**options), atol=1e-12)
    with pytest.raises(ValueError, match="couplings must be finite"):
        mf.evaluation.contact_scores(flat)
    with pytest.raises(ValueError, match="ignore must be a state"):
        mf.evaluation.contact_scores(flat, sizes=[3, 3, 3, 3], ignore=3)


# --- pseudo likelihood ----------------------------------------------------------------------------


class Digit(ThreeLevels):
    support = (-1.0, 0.0, 1.0)


def by_hand(model, X):
    """From the joint probabilities of visible states, with hidden units summed out."""
    values = model.visible.support
    found = []
    for x in X:
        total = 0.0
        for i in range(len(x)):
            states = np.array([[*x[:i], value, *x[i + 1 :]] for value in values])
            log_p = mf.evaluation.log_likelihood(model, states, 0.0)
            total += log_p[values.index(x[i])] - np.logaddexp.reduce(log_p)
        found.append(total)
    return found


@pytest.mark.parametrize("visible", [mf.Bernoulli, mf.Ising, Digit])
@pytest.mark.parametrize("hidden", [mf.Bernoulli, mf.Gaussian])
def test_against_conditionals_by_hand(visible, hidden):
    rng = np.random.default_rng(0)
    prior = hidden(np.ones(3), 4.0) if hidden is mf.Gaussian else hidden(np.ones(3))
    model = mf.RBM(rng.normal(size=(4, 3)), visible(rng.normal(size=4)), prior)
    X = np.array(list(itertools.product(visible.support, repeat=4)))[::7]
    np.testing.assert_allclose(
        mf.evaluation.pseudo_log_likelihood(model, X), by_hand(model, X), rtol=1e-10
    )


def test_uncoupled_units_are_their_likelihood():
    field = np.linspace(-3, 3, 800)
    model = mf.RBM(np.zeros((800, 5)), mf.Bernoulli(field), mf.Bernoulli(np.zeros(5)))
    X = (np.random.default_rng(0).random((700, 800)) < 0.5).astype(float)
    truth = X @ field - np.logaddexp(0, field).sum()
    np.testing.assert_allclose(mf.evaluation.pseudo_log_likelihood(model, X), truth, rtol=1e-12)


def test_large_weights_stay_finite():
    model = mf.RBM(np.full((3, 2), 400.0), mf.Bernoulli(np.zeros(3)), mf.Bernoulli(np.zeros(2)))
    found = mf.evaluation.pseudo_log_likelihood(model, [[1.0, 1.0, 1.0], [1.0, 1.0, 0.0]])
    # A third unit that is on weighs 800 more than one that is off.
    np.testing.assert_allclose(found, [0.0, -800.0], atol=1e-10)


def test_refusals():
    model = mf.RBM(np.zeros((2, 2)), mf.Bernoulli([0, 0]), mf.Bernoulli([0, 0]))
    with pytest.raises(ValueError, match="units can take"):
        mf.evaluation.pseudo_log_likelihood(model, [[0.5, 1]])
    real = mf.RBM(np.zeros((2, 2)), mf.Gaussian([0, 0], 1.0), mf.Bernoulli([0, 0]))
    for other in (real, "model"):
        with pytest.raises(TypeError, match="discrete visible"):
            mf.evaluation.pseudo_log_likelihood(other, [[0.5, 1]])


# --- denoising ------------------------------------------------------------------------------------


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def binary(rng, *shape):
    return (rng.random(shape) < 0.4).astype(np.float32)


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int64, np.float32, np.float64])
def test_flip_changes_about_a_share_p_of_the_entries(rng, dtype):
    X = binary(rng, 200, 100).astype(dtype)
    for p, error in ((0, 0), (1, 0), (0.2, 0.02)):
        Y = flip(X, p, rng)
        assert Y.dtype == dtype and set(np.unique(Y)) == {0, 1}
        assert abs((X != Y).mean() - p) <= error


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


def test_matthews_correlation_of_extremes():
    truth = np.array([0, 1, 1, 0])
    assert matthews_correlation(truth, truth) == -matthews_correlation(truth, 1 - truth) == 1
    assert matthews_correlation(truth, np.ones(4)) == 0
    assert matthews_correlation(np.zeros(4), np.zeros(4)) == 0


@pytest.mark.parametrize(
    "call, name",
    [
        (lambda: flip([[2]], 0.1, np.random.default_rng()), "X"),
        (lambda: flip([[1]], 1.1, 0), r"p must be in \[0, 1\]"),
        (lambda: flip([[1]], [], 0), "p must be a number, got list"),
        (lambda: pointwise_estimate([[0.5]], [0.5], 0.1), "Y"),
        (lambda: pointwise_estimate([[1]], [np.nan], 0.1), "means"),
        (lambda: pointwise_estimate([[1]], [0.5], [0.1]), "flip_probability must be a number"),
        (lambda: nearest_neighbour([[1]], [[1, 0]]), r"\(1, 1\) and \(1, 2\)"),
        (lambda: nearest_neighbour(np.ones((1, 3)), np.ones((0, 3))), "at least one"),
        (lambda: matthews_correlation([0, 1], [np.nan, 1]), "estimate contains NaN"),
        (lambda: matthews_correlation([], []), "an axis of entries"),
        (lambda: matthews_correlation(1.0, 1.0), "an axis of entries"),
        (lambda: contact_scores(np.zeros((0, 2, 0, 2))), "couplings must be finite and have shape"),
    ],
)
def test_bad_input_is_named(call, name):
    with pytest.raises((ValueError, TypeError), match=name):
        call()


@pytest.mark.parametrize("pairs", [1, 150, 2**24])
@pytest.mark.parametrize("n_nearest", [1, 3, 50])
def test_the_best_rows_come_in_order(monkeypatch, pairs, n_nearest):
    monkeypatch.setattr("fastmf._common.rows.BLOCK_ENTRIES", pairs)
    rng = np.random.default_rng(0)
    fields, X, costs = rng.normal(size=(7, 4)), rng.normal(size=(50, 4)), rng.normal(size=50)
    expected = np.argsort(costs - np.einsum("ri,ki->rk", fields, X), axis=1)[:, :n_nearest]
    np.testing.assert_array_equal(nearest_rows(fields, X, costs, n_nearest), expected)
