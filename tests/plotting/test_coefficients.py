import numpy as np
import pytest
from matplotlib.figure import Figure

from fastmf.plotting import coefficient_forest

VALUES, DEVIATIONS = np.array([0.1, -3.0, 2.0]), np.array([0.05, 0.5, 0.25])


def ticks(ax):
    return [label.get_text() for label in ax.get_yticklabels()]


def test_the_most_probable_coefficients_are_on_top():
    figure = coefficient_forest(VALUES, DEVIATIONS, [0.9, 0.2, 1.0], names=["a", "b", "c"], n_top=2)
    ax, bar = figure.axes
    assert ticks(ax) == ["c", "a"] and ax.yaxis_inverted()
    bars, points = ax.collections
    np.testing.assert_array_equal(points.get_offsets(), [[2.0, 0], [0.1, 1]])
    np.testing.assert_array_equal(points.get_array(), [1.0, 0.9])
    np.testing.assert_allclose(
        bars.get_segments(), [[[1.5, 0], [2.5, 0]], [[0, 1], [0.2, 1]]], atol=1e-12
    )
    assert bar.get_ylabel() == "inclusion probability"


def test_without_probabilities_the_largest_are_on_top():
    ax = Figure().add_subplot()
    assert coefficient_forest(VALUES, DEVIATIONS, ax=ax) is ax.figure
    assert ticks(ax) == ["1", "2", "0"] and len(ax.figure.axes) == 1


class Fitted:
    coef_, coef_var_ = VALUES[None], DEVIATIONS[None] ** 2
    inclusion_probability_ = np.array([0.9, 0.2, 1.0])
    feature_names_in_ = np.array(["a", "b", "c"], object)


def test_a_forest_of_a_fitted_estimator():
    figure = coefficient_forest(Fitted(), n_top=2)
    ax = figure.axes[0]
    assert ticks(ax) == ["c", "a"]
    bars, points = ax.collections
    np.testing.assert_array_equal(points.get_offsets(), [[2.0, 0], [0.1, 1]])
    np.testing.assert_allclose(bars.get_segments()[0], [[1.5, 0], [2.5, 0]])
    assert ticks(coefficient_forest(Fitted(), names=["x", "y", "z"]).axes[0]) == ["z", "x", "y"]
    with pytest.raises(ValueError, match="leave them out"):
        coefficient_forest(Fitted(), DEVIATIONS)
    with pytest.raises(ValueError, match="deviations are needed"):
        coefficient_forest(VALUES)


def test_a_forest_needs_one_entry_for_each_coefficient():
    with pytest.raises(ValueError, match="deviations must be one-dimensional"):
        coefficient_forest(VALUES, DEVIATIONS[:2])
    with pytest.raises(ValueError, match="inclusion_probability must be"):
        coefficient_forest(VALUES, DEVIATIONS, [[0.5] * 3])
    with pytest.raises(ValueError, match="all 3 coefficients, got 1"):
        coefficient_forest(VALUES, DEVIATIONS, names=["a"])
    with pytest.raises(ValueError, match="n_top"):
        coefficient_forest(VALUES, DEVIATIONS, n_top=0)
