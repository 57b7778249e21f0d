import numpy as np
import pytest

from fastmf.estimators._spins import binary_values, encoded, to_spins


@pytest.mark.parametrize("values", [(-1.0, 1.0), (0.0, 1.0)])
def test_the_values_of_data_are_found_and_encoded(values):
    X = np.array(values)[np.random.default_rng(0).integers(2, size=(6, 3))]
    assert binary_values(X) == values
    np.testing.assert_array_equal(encoded(X, values), np.where(X == 1, 1, -1))
    np.testing.assert_array_equal(to_spins(X, values, None), encoded(X, values))


@pytest.mark.parametrize("value, expected", [(-1.0, (-1, 1)), (0.0, (0, 1)), (1.0, (-1, 1))])
def test_data_of_one_value(value, expected):
    assert binary_values(np.full((2, 2), value)) == expected


@pytest.mark.parametrize(
    "X, message",
    [
        ([[1.0, 0.5]], r"in \{-1, 1\}, or all in \{0, 1\}, got 0.5 in row 0, column 1"),
        ([[1.0, 1.0], [0.0, -1.0]], r"got 0 in row 1, column 0.*threshold"),
        ([[2.0, 2.0]], "got 2"),
    ],
)
def test_other_values_are_named(X, message):
    with pytest.raises(ValueError, match=message):
        binary_values(np.array(X))


def test_missing_values_stay():
    X = np.array([[0.0, np.nan], [1.0, 0.0]])
    np.testing.assert_array_equal(to_spins(X, (0.0, 1.0), None), [[-1, np.nan], [1, -1]])
    np.testing.assert_array_equal(to_spins(X, (0.0, 1.0), 0.3), [[-1, np.nan], [1, -1]])


def test_later_data_have_the_values_of_the_fit():
    with pytest.raises(ValueError, match=r"in \{0, 1\}, as in fit, got -1 in row 0, column 0"):
        to_spins(np.array([[-1.0, 1.0]]), (0.0, 1.0), None)


def test_a_threshold_makes_any_data_binary():
    X = np.array([[-3.0, 0.5, 0.6, 7.0]])
    np.testing.assert_array_equal(to_spins(X, (-1.0, 1.0), 0.5), [[-1, -1, 1, 1]])
