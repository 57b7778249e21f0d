"""Thresholds as functions of their parameters."""

import numpy as np
import pytest

from fastmf.learning.pseudo_likelihood.ordinal import Thresholds

SIZES = [2, 5, 3]


def test_blume_and_capel():
    thresholds = Thresholds(SIZES, "blume_capel")
    assert thresholds.item_of_parameter.tolist() == [0, 1, 1, 2, 2]
    alpha, beta = np.array([0.3, -0.4, 0.7]), np.array([0, -0.2, 0.5])
    table = thresholds.table(np.array([0.3, -0.4, -0.2, 0.7, 0.5]), np.nan)
    for i, q in enumerate(SIZES):
        c = np.arange(q)
        np.testing.assert_allclose(table[:q, i], alpha[i] * c + beta[i] * c**2)
        assert np.isnan(table[q:, i]).all()


def test_items_need_two_categories():
    with pytest.raises(ValueError, match=r"items \[1\] have fewer"):
        Thresholds([2, 1, 3])


@pytest.mark.parametrize("kind", ["free", "blume_capel"])
def test_the_slope_is_the_score(kind):
    thresholds = Thresholds(SIZES, kind)
    table = thresholds.table(thresholds.slope)
    for i, q in enumerate(SIZES):
        np.testing.assert_allclose(table[:q, i], np.arange(q))
        rows, columns, block = thresholds.of_item(i)
        np.testing.assert_allclose(block @ thresholds.slope[columns], thresholds.category[rows])


@pytest.mark.parametrize("kind", ["free", "blume_capel"])
def test_frequencies_of_items_without_couplings(kind):
    """Thresholds are found again, exactly, from the frequencies that they give."""
    thresholds = Thresholds(SIZES, kind)
    parameters = np.random.default_rng(1).normal(size=len(thresholds.slope))
    p = np.exp(thresholds.table(parameters, -np.inf))
    np.testing.assert_allclose(thresholds.from_frequencies(p / p.sum(0)), parameters, atol=1e-12)
