"""Values drawn for missing ones, and units fitted to those that were seen."""

import numpy as np
import pytest

import fastmf as mf
from fastmf.inference.missing.layered import exact_given
from fastmf.learning.layered.data import completed, completed_once, independent_of_seen
from fastmf.learning.layered.settings import LayeredSettings
from fastmf.learning.layered.step import Plan
from fastmf.learning.training.ascent import initial_state
from fastmf.learning.training.trainer import Completion
from fastmf.priors._queries import independent_units

RNG = np.random.default_rng(0)
MODEL = mf.RBM(RNG.normal(size=(5, 3)), mf.Bernoulli(RNG.normal(size=5)), mf.Ising(np.zeros(3)))
ROW = np.array([1, np.nan, 0, np.nan, np.nan])


def test_draws_have_the_means_given_what_was_seen():
    X = np.tile(ROW, (20_000, 1))
    drawn = completed(MODEL, X, np.isnan(X), 20, np.random.default_rng(0))
    assert set(np.unique(drawn)) == {0, 1} and (drawn[:, [0, 2]] == [1, 0]).all()
    means = exact_given(MODEL, ROW[None]).mean[0]
    np.testing.assert_allclose(drawn.mean(0), means, atol=4 * 0.5 / np.sqrt(20_000))


def test_rows_are_completed():
    X = np.vstack([np.ones(5), ROW, ROW])
    draw = Plan(MODEL, LayeredSettings()).draw
    state, complete = initial_state(MODEL), Completion(X, MODEL, draw)
    complete(state, np.random.default_rng(0))
    first = complete.data.copy()
    assert not np.isnan(first).any() and state.completed[0].shape == (1, 6)
    np.testing.assert_array_equal(first[~np.isnan(X)], X[~np.isnan(X)])
    assert completed_once(MODEL, first, [0]) is first
    assert not np.isnan(completed_once(MODEL, X, [0, 0])).any()


@pytest.mark.parametrize("prior", [
    mf.Bernoulli(np.zeros(2)), mf.Gaussian(np.zeros(2), np.ones(2)),
    mf.TruncatedGaussian(np.zeros(2), np.ones(2), np.full(2, -9.0), np.full(2, 9.0)),
    mf.GaussBernoulli(np.zeros(2), np.ones(2), np.zeros(2)),
])  # fmt: skip
def test_each_unit_is_fitted_to_what_was_seen_of_it(prior):
    X = RNG.normal(size=(40, 2))
    X = np.where(X > 0, 1.0, 0.0) if isinstance(prior, mf.Bernoulli) else X
    X[:7, 0] = X[30:, 1] = np.nan
    found = independent_of_seen(prior, X)
    for j, rows in enumerate((slice(7, None), slice(30))):
        column = X[rows, j : j + 1]
        own = prior._make(field[:1] for field in prior)
        for a, b in zip(found, independent_units(own, column), strict=True):
            np.testing.assert_allclose(a[j], b[0])
