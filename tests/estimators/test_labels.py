"""Labels as data of estimators."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator

from fastmf.estimators._labels import MAX_STATES, check_range, checked_labels, checked_sizes


def labels(X, reset=True):
    return checked_labels(BaseEstimator(), X, reset)


def test_missing_labels_are_minus_one():
    expected = [[0, -1], [2, -1]]
    assert labels([[0, -1], [2, -5]]).tolist() == expected
    assert labels([[0.0, np.nan], [2.0, -3.0]]).tolist() == expected
    assert labels(np.array([[True, False]])).dtype == np.int64


@pytest.mark.parametrize(
    "X, message",
    [([[0.5, 1.0]], "integer labels .*0.5"), ([[np.inf, 1.0]], "infinity"),
     (np.array([[1000]], np.uint16), "at most 253")],
)  # fmt: skip
def test_other_numbers_are_refused(X, message):
    with pytest.raises(ValueError, match=message):
        labels(X)


def test_sizes():
    X = np.array([[0, 1, 2], [0, -1, 0]])
    assert checked_sizes(None, X).tolist() == [3, 3, 3]
    assert checked_sizes(None, X[:, :1]).tolist() == [2]
    assert checked_sizes(5, X).tolist() == [5, 5, 5]
    assert checked_sizes([2, 4, 3], X).tolist() == [2, 4, 3]


@pytest.mark.parametrize(
    "n_states, error, message",
    [
        (2, ValueError, "labels of site 2 must be below"),
        ([2, 2], ValueError, "one entry per site"),
        ([2, 2, 1], ValueError, r"in \[2, "),
        (MAX_STATES + 1, ValueError, r"in \[2, "),
        (2.5, TypeError, "n_states"),
        ("three", TypeError, "n_states"),
    ],
)
def test_bad_sizes(n_states, error, message):
    with pytest.raises(error, match=message):
        checked_sizes(n_states, np.array([[0, 1, 2], [0, -1, 0]]))


def test_too_many_states():
    with pytest.raises(ValueError, match="at most"):
        checked_sizes(None, np.array([[MAX_STATES]]))
    assert checked_sizes(None, np.array([[MAX_STATES - 1]])).tolist() == [MAX_STATES]
    check_range(np.array([[1]]), np.array([2]))
