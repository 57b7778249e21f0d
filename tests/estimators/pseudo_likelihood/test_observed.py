"""Rows of a fit: distinct, with missing values, in clusters."""

import numpy as np
import pytest

from fastmf.estimators.pseudo_likelihood._observed import observed

LABELS = np.array([[0, 1], [0, 1], [1, -1], [-1, -1], [1, 0], [0, 0]])
WEIGHTS = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 0.0])
SIZES = np.array([2, 2])


def test_rows_with_missing_values_are_left_out():
    found = observed(LABELS, WEIGHTS, SIZES, ("drop", "counts"))
    assert found.labels.tolist() == [[0, 1], [1, 0]] and found.weights.tolist() == [3, 5]
    assert found.completions is None and found.sampling is None
    assert (found.n_missing, found.n_dropped) == (3, 2)


def test_rows_with_missing_values_are_completed():
    """All but those of which nothing is seen."""
    found = observed(LABELS, WEIGHTS, SIZES, ("em", "counts"))
    assert found.labels.tolist() == [[0, 1], [1, 0], [1, 1]]
    np.testing.assert_allclose(found.weights, [3, 6.5, 1.5])
    assert (found.n_missing, found.n_dropped) == (3, 1)


def test_clusters_and_weights_of_surveys():
    clusters = np.array(["a", "b", "a", "a", "b", "c"])
    found = observed(LABELS, WEIGHTS, SIZES, ("drop", "counts"), clusters)
    np.testing.assert_allclose(found.sampling.toarray(), [[1 / 8, 0], [2 / 8, 5 / 8]])
    surveyed = observed(LABELS, WEIGHTS, SIZES, ("drop", "sampling"))
    np.testing.assert_allclose(surveyed.sampling.toarray(), [[1 / 8, 0], [2 / 8, 0], [0, 5 / 8]])
    with pytest.raises(ValueError, match="one label for each of 6 rows"):
        observed(LABELS, WEIGHTS, SIZES, ("drop", "counts"), clusters[:3])
    for labels, message in (
        (["a", None, "a", "a", "b", "c"], "no missing labels, got one in row 1"),
        ([1.0, 2.0, np.nan, 1.0, 1.0, 1.0], "no missing labels, got one in row 2"),
        (["a"] * 6, "at least two"),
    ):
        with pytest.raises(ValueError, match=message):
            observed(LABELS, WEIGHTS, SIZES, ("drop", "counts"), labels)
    with pytest.raises(ValueError, match="values in each column"):
        observed(LABELS[3:4], WEIGHTS[3:4], SIZES, ("em", "counts"))
