"""Questions about priors: values, variances, data; for users' own priors too."""

from typing import NamedTuple

import numpy as np
import pytest

import fastmf as mf
from fastmf.priors._queries import (
    PRECISION_MARGIN,
    common_support,
    directions,
    fields_of,
    gaussian_units,
    independent_units,
    largest_variance,
    number_of_states,
    perturbed,
    precisions,
    support,
    two_values,
    unbounded,
    with_shifted_field,
)
from fastmf.priors._values import admissible, describe_support


class Own(NamedTuple):
    """A user's own prior with the two required methods only: a Gaussian of variance `width`^2."""

    width: np.ndarray

    def log_partition(self, b, a):
        return 0 * (b + a) * self.width

    def moments(self, b, a):
        return 0 * (b + a) * self.width, self.width**2 + 0 * (b + a)


class Levels(NamedTuple):
    """Units with the values 0, 1, ..., largest, that differ in number."""

    largest: np.ndarray

    @property
    def support(self):
        x = np.arange(self.largest.max() + 1)[:, None]
        return np.where(x <= self.largest, x, np.nan)

    def log_partition(self, b, a):
        x = self.support.T
        return np.log(np.nansum(np.exp(b[..., None] * x - a[..., None] * x * x / 2), -1))

    def moments(self, b, a):
        raise NotImplementedError

    def log_prob(self, x):
        return np.where((x >= 0) & (x <= self.largest) & (x == np.round(x)), 0.0 * x, -np.inf)


# --- values -------------------------------------------------------------------------------------


def test_values_of_discrete_units():
    np.testing.assert_array_equal(support(mf.Ising([0.3, 2.0])), [[-1, -1], [1, 1]])
    assert two_values(mf.Ising([0.3, 2.0])) == common_support(mf.Ising) == (-1.0, 1.0)
    levels, nan = Levels(np.array([1, 2])), np.nan
    np.testing.assert_array_equal(support(levels), [[0, 0], [1, 1], [nan, 2]])
    both = mf.Concatenated(mf.Bernoulli([0.0]), Levels(np.array([2.0])))
    np.testing.assert_array_equal(support(both), [[0, 0], [1, 1], [nan, 2]])
    assert number_of_states(levels) == number_of_states(both) == 6
    assert number_of_states(mf.Bernoulli(np.zeros(5000))) == np.inf


@pytest.mark.parametrize(
    "prior",
    [mf.Gaussian([0.0], 1.0), Own(np.ones(1)), mf.Concatenated(mf.Ising([0.0]), Own(np.ones(1)))],
)
def test_units_whose_values_are_not_known(prior):
    assert support(prior) is None
    assert two_values(prior) is None
    assert number_of_states(prior) == np.inf


@pytest.mark.parametrize("prior, good, bad, words", [
    (mf.Bernoulli([0.0]), [0, 0.5, 1], [-0.1, 2], "in [0, 1]"),
    (Levels(np.array([2.0])), [0, 1, 2], [0.5, 3], "one of 0, 1, 2"),
    (Levels(np.array([9.0])), [0, 9], [10], "one of 0, 1, ..., 9"),
    (mf.TruncatedGaussian(0.0, 1.0, 0.0, 2.0), [0, 2], [-1, 3], "between the bounds `lower`"),
    (mf.TruncatedGaussBernoulli(0.0, 1.0, 0.0, 1.0, 2.0), [0, 1, 2], [0.5, 3], "between the"),
    (mf.Gaussian([0.0], 1.0), [-9e99, 0], [np.inf], "where its log_prob"),
    (mf.GaussBernoulli(0.0, 1.0, 0.0), [-9.0, 0], [], "where its log_prob"),
    (Own(np.ones(1)), [-9.0, 0], [], "where its log_prob"),
], ids=lambda value: type(value).__name__)  # fmt: skip
def test_admissible_data(prior, good, bad, words):
    for X, expected in ((good, True), (bad, False)):
        X = np.array(X, float)[:, None]
        allowed = np.broadcast_to(admissible(prior, X, means=True), X.shape)
        np.testing.assert_array_equal(allowed, np.full(X.shape, expected))
    assert np.all(admissible(prior, np.array([[np.nan]]), means=True))
    assert describe_support(prior, 0, means=True).startswith(words)


# --- bounds and variances -------------------------------------------------------------------------


@pytest.mark.parametrize("prior, expected", [
    (mf.Bernoulli([0.0, 3.0]), [0.25, 0.25]), (mf.Ising([0.0, 3.0]), [1.0, 1.0]),
    (mf.Gaussian([0.0, 3.0], [1.0, 4.0]), [PRECISION_MARGIN, PRECISION_MARGIN / 4]),
])  # fmt: skip
def test_largest_variance(prior, expected):
    np.testing.assert_array_equal(largest_variance(prior), expected)
    tilts = np.linspace(-9, 9, 101)[:, None]
    assert (prior.moments(tilts, 0.0)[1] <= largest_variance(prior)).all()


@pytest.mark.parametrize("prior, expected", [
    (mf.TruncatedGaussian(0.0, 4.0, [0.0, 0.0], [3.0, np.inf]), [9 / 4, PRECISION_MARGIN / 4]),
    (mf.TruncatedGaussBernoulli(0.0, 4.0, 0.0, [1.0, -2.0], [3.0, 2.0]), [9 / 4, 4]),
    (Levels(np.array([1.0, 4.0])), [0.25, 4]), (Own(np.array([1.0, 3.0])), [1, 9]),
    (mf.Concatenated(mf.Ising([0.0]), Own(np.array([3.0]))), [1, 9]),
])  # fmt: skip
def test_largest_variance_of_other_units(prior, expected):
    np.testing.assert_allclose(largest_variance(prior), expected)


def test_unbounded_units_have_directions_precisions_and_fields():
    slab = mf.TruncatedGaussian(0.5, 1.0, [0.0, 0.0, -np.inf, -np.inf], [3.0, np.inf, 1.0, np.inf])
    prior = mf.Concatenated(
        mf.Bernoulli([2.0]), slab, mf.Gaussian([4.0], [9.0]), mf.GaussBernoulli(0, 5, 0)
    )
    expected = [False, False, True, True, True, True, True]
    np.testing.assert_array_equal(unbounded(prior), expected)
    np.testing.assert_array_equal(unbounded(Own(np.ones(2))), [False, False])
    np.testing.assert_array_equal(directions(prior), [0, 0, 1, -1, 0, 0, 0])
    np.testing.assert_array_equal(precisions(prior), [np.nan, 1, 1, 1, 1, 9, 5])
    np.testing.assert_array_equal(fields_of(prior), [2, 0.5, 0.5, 0.5, 0.5, 4, 0])
    # Spike and slab is no Gaussian, and two infinite bounds are no bounds.
    np.testing.assert_array_equal(gaussian_units(prior), [0, 0, 0, 0, 1, 1, 0])


@pytest.mark.parametrize("prior", [
    mf.Gaussian([0.3], [2.0]), mf.GaussBernoulli([0.3], [2.0], [0.4]),
    mf.TruncatedGaussBernoulli([0.3], [2.0], [0.4], [-1.0], [2.0]), mf.Ising([0.3]),
])  # fmt: skip
def test_a_shifted_field_is_a_tilt(prior):
    """log Z of the shifted prior under any tilt is that of the prior under the sum, but for 0."""
    b, a, shift = np.array([-0.7]), 0.3, np.array([0.9])
    moved = with_shifted_field(prior, shift)
    expected = prior.moments(b + shift, a)
    for found, right in zip(moved.moments(b, a), expected, strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-12)


# --- learning -------------------------------------------------------------------------------------


def test_independent_units_keep_what_is_not_learned():
    X = np.random.default_rng(0).random((50, 2))
    bounded = mf.TruncatedGaussian([0.0, 0.0], 1.0, -1.0, [2.0, 3.0])
    prior = mf.Concatenated(bounded, Own(np.ones(2)))
    fitted, own = independent_units(prior, np.hstack([X, X])).parts
    np.testing.assert_array_equal(fitted.upper, [2, 3])
    np.testing.assert_allclose(fitted.moments(0.0, 0.0)[0], X.mean(0), rtol=1e-6)
    np.testing.assert_array_equal(own.width, [1, 1])
    slab = mf.GaussBernoulli([0.5, 0.0], 3.0, 0.0)
    silent = independent_units(slab, np.zeros((9, 2)))
    np.testing.assert_allclose(silent.log_odds, -np.log(10))
    np.testing.assert_array_equal(silent.field, slab.field)


@pytest.mark.parametrize("values", [(0.0, 1.0), (-1.0, 1.0)])
def test_noise_flips_two_valued_units_with_its_probability(values):
    rng = np.random.default_rng(0)
    prior = {0.0: mf.Bernoulli, -1.0: mf.Ising}[values[0]](np.zeros(50))
    X = rng.choice(values, (400, 50))
    noisy = perturbed(prior, X, 0.1, rng)
    assert set(np.unique(noisy)) == set(values)
    assert (noisy != X).mean() == pytest.approx(0.1, abs=4 * np.sqrt(0.09 / X.size))
    np.testing.assert_array_equal(perturbed(prior, X, 0.0, rng), X)


def test_noise_moves_real_units_within_the_range_of_the_data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 50)) * np.arange(50)
    noisy = perturbed(mf.Gaussian(np.zeros(50), 1.0), X, 0.2, rng)
    np.testing.assert_array_equal(noisy[:, 0], 0)
    np.testing.assert_allclose((noisy - X).std(0), 0.2 * X.std(0), rtol=0.2)
    assert (noisy >= X.min(0)).all()
    assert (noisy <= X.max(0)).all()


def test_noise_treats_units_side_by_side_each_in_their_way():
    rng = np.random.default_rng(0)
    X = np.hstack([rng.integers(0, 2, (400, 20)), rng.normal(size=(400, 30))])
    prior = mf.Concatenated(mf.Bernoulli(np.zeros(20)), mf.Gaussian(np.zeros(30), 1.0))
    noisy = perturbed(prior, X, 0.2, rng)
    flipped = noisy[:, :20] != X[:, :20]
    np.testing.assert_array_equal(noisy[:, :20], np.where(flipped, 1 - X[:, :20], X[:, :20]))
    assert flipped.mean() == pytest.approx(0.2, abs=4 * np.sqrt(0.16 / flipped.size))
    np.testing.assert_allclose((noisy - X)[:, 20:].std(0), 0.2 * X[:, 20:].std(0), rtol=0.2)
