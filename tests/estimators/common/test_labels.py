"""Labels as data of estimators."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning

import fastmf as mf
from fastmf.estimators.common.categories import (
    MAX_CATEGORIES,
    coded_labels,
    position_categories,
    whole_labels,
)

ANY = BaseEstimator()


def categories(X, n_states=None, **declared):
    return position_categories(ANY, np.array(X), n_states, declared)


def labels(X, X_fit=None, n_states=None):
    found = categories(X if X_fit is None else X_fit, n_states)
    return coded_labels(ANY, np.array(X), found).tolist()


def test_missing_labels_are_minus_one():
    expected = [[0, -1], [2, -1]]
    assert labels([[0, -1], [2, -5]]) == expected
    assert labels([[0.0, np.nan], [2.0, -3.0]]) == expected
    assert (
        labels(np.array([["a", None], ["c", np.nan]], object), [["a", "b"], ["c", "c"]]) == expected
    )
    assert whole_labels(np.array([[True, False]])).dtype == np.int64


@pytest.mark.parametrize(
    "X, message",
    [([[0.5, 1.0]], "integer labels .*0.5"), (np.array([[0, 1000]], np.uint16), "at most 254"),
     ([[1, 255]], "at most 254")],
)  # fmt: skip
def test_other_numbers_are_refused(X, message):
    with pytest.raises(ValueError, match=message):
        categories(X)


@pytest.mark.parametrize(
    "X, expected",
    [
        ([[0, 1, 2], [0, -1, 0]], [[0, 1, 2]] * 3),  # states that do not occur are possible
        ([[0], [0]], [[0, 1]]),
        ([[1, 1, 3], [2, -1, np.nan]], [[1, 2, 3]] * 3),
        ([[1], [1]], [[1, 2]]),
        ([[10, 30], [20, 10]], [[10, 20, 30]] * 2),
        ([[10, 300], [20, 100]], [[10, 20], [100, 300]]),
        ([["A", "C"], ["-", "A"]], [["-", "A", "C"]] * 2),  # letters of one alphabet
        ([["m", "no"], ["f", "yes"]], [["f", "m"], ["no", "yes"]]),
        ([[-1, np.nan]], [[0, 1]] * 2),
    ],
)
def test_categories_follow_from_the_data(X, expected):
    assert [known.tolist() for known in categories(X)] == expected


def test_labels_are_places_in_the_categories():
    X = [[1, 6], [3, 2]]
    assert labels(X) == [[0, 5], [2, 1]]
    assert labels([[30.0, np.nan]], [[10, 30], [20, 10]]) == [[2, -1]]
    with pytest.raises(ValueError, match="in column 1 one of 1, 2, 3, 4, 5, 6: got 0 in row 0"):
        labels([[1, 0]], X)
    with pytest.raises(ValueError, match="in column 0 one of 0, 1, 2: got 7"):
        labels([[7, 0]], [[0, 2]])
    with pytest.raises(ValueError, match="one of 10, 20, 30: got 15"):
        labels([[10, 15]], [[10, 30], [20, 10]])


@pytest.mark.parametrize(
    "X, error, message",
    [
        ([["x", "a"], ["x", "b"]], ValueError, "column 0 has the single value 'x'"),
        (np.array([[1, "a"], ["b", "a"]], object), TypeError, "strings and numbers in column 0"),
        (np.array([[None, "a"], [None, "b"]], object), ValueError, "none in column 0"),
    ],
)
def test_odd_columns_are_named(X, error, message):
    with pytest.raises(error, match=message):
        categories(X)


@pytest.mark.parametrize("n_states, error, message", [
    ([2, 2], TypeError, "one for each of 3 columns"), ([2, 2, 1], ValueError, r"in \[2, "),
    (MAX_CATEGORIES + 1, ValueError, r"in \[2, "), (2.5, TypeError, "n_states"),
    ("three", TypeError, "n_states"),
])  # fmt: skip
def test_bad_sizes(n_states, error, message):
    with pytest.raises(error, match=message):
        categories([[0, 1, 0]], n_states)


def test_too_many_states():
    with pytest.raises(ValueError, match="at most"):
        categories([[0, MAX_CATEGORIES]])
    assert len(categories([[0, MAX_CATEGORIES - 1]])[0]) == MAX_CATEGORIES
    with pytest.raises(ValueError, match="at most 254 categories"):
        categories(1000 + 2 * np.arange(300)[:, None])


def test_minus_one_is_no_label_beside_one():
    X = np.where(np.random.default_rng(0).random((50, 3)) < 0.5, 1, -1)
    with pytest.raises(ValueError, match=r"got 1 alone beside missing ones.*recoded"):
        mf.PottsMachine().fit(X)


def test_a_single_position_has_no_couplings():
    machine = mf.PottsMachine().fit(np.array([[0], [1], [1]]))
    for report in (machine.edge_inclusion, machine.likelihood_ratio_test):
        with pytest.raises(ValueError, match=r"no couplings|pairs"):
            report()


def test_a_missing_label_is_named_where_it_separates():
    X = np.random.default_rng(0).integers(0, 2, (100, 4)).astype(float)
    X[3, 2] = np.nan
    with pytest.warns(ConvergenceWarning, match=r"1 labels are missing.*missing='em'"):
        mf.PottsMachine().fit(X)
    assert mf.PottsMachine(missing="em").fit(X).converged_
