import numpy as np
import pytest
from sklearn.base import BaseEstimator

from fastmf.estimators.common.categories import codes, from_spins, two_categories

ANY = BaseEstimator()
SPINS = np.where(np.random.default_rng(0).random((6, 3)) < 0.5, -1.0, 1.0)


def categories(X, **declared):
    return two_categories(ANY, np.array(X), declared)


@pytest.mark.parametrize(
    "values", [(-1.0, 1.0), (0.0, 1.0), (1, 2), (False, True), ("no", "yes"), (-7, 2.5)]
)
def test_the_values_of_data_are_found_and_encoded(values):
    X = np.array(values)[(SPINS > 0).astype(int)]
    found = categories(X)
    assert [known.tolist() for known in found] == [list(values)] * 3
    np.testing.assert_array_equal(codes(ANY, X, found), SPINS > 0)
    np.testing.assert_array_equal(from_spins(SPINS, found), X)


@pytest.mark.parametrize("value, expected", [(-1.0, (-1, 1)), (0.0, (0, 1)), (1.0, (-1, 1))])
def test_data_of_one_value(value, expected):
    assert categories(np.full((2, 2), value))[0].tolist() == list(expected)


def test_columns_with_a_value_in_common_have_both():
    found = categories([["no", "m"], ["yes", "f"], ["no", "f"]])
    assert [known.tolist() for known in found] == [["no", "yes"], ["f", "m"]]
    assert [known.tolist() for known in categories([[0, 1], [1, 2]])] == [[0, 1], [1, 2]]
    found = categories([["no", "no"], ["yes", "no"]])
    assert [known.tolist() for known in found] == [["no", "yes"]] * 2
    found = two_categories(ANY, np.array([["no", "a"]]), {0: np.array(["yes", "no"]), 1: found[0]})
    assert found[0].tolist() == ["yes", "no"]


@pytest.mark.parametrize(
    "X, message",
    [
        ([[1.0, 0.5]], r"in \{-1, 1\}, or all in \{0, 1\}, .* got 0.5 in column 1"),
        ([[1.0, 1.0], [0.0, -1.0]], r"got -1, 0, 1 in column 0.*OrdinalMachine"),
        ([[2.0, 2.0]], "got 2 in column 0, which is constant"),
        ([[0, 1], [1, 2], [2, 2]], "got 0, 1, 2 in column 0"),
        ([["a"], ["b"], ["c"], ["a"], ["b"]], "got 'a', 'b', 'c' in column 0"),
        ([["a", "x"], ["b", "x"]], "got 'x' in column 1, which is constant"),
    ],
)
def test_other_values_are_named(X, message):
    with pytest.raises(ValueError, match=message):
        categories(X)


def test_means_of_strings_are_the_more_probable_ones():
    means = np.array([[-0.2, 0.9]])
    assert from_spins(means, [np.array(["no", "yes"])] * 2).tolist() == [["no", "yes"]]
    mixed = from_spins(means, [np.array(["no", "yes"]), np.array([0.0, 1.0])])
    assert mixed.tolist() == [["no", 1.0]]
