import numpy as np
import pytest
from matplotlib.figure import Figure

from fastmf.plotting import coefficient_forest, coefficient_paths

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


PATHS = np.array([[0.0, 1.0, 0.1], [0.5, -2.0, 0.2]])


def test_the_largest_coefficients_are_named():
    (ax,) = coefficient_paths([1, 10], PATHS, names=["a", "b", "c"], n_named=2, label="size").axes
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["b", "a"]
    grey, first, second = ax.lines[:3]
    for line, column in ((grey, 2), (first, 1), (second, 0)):
        np.testing.assert_array_equal(line.get_xydata(), np.stack([[1, 10], PATHS[:, column]], 1))
    assert ax.get_xscale() == "log" and ax.get_xlabel() == "size"


def test_a_parameter_that_may_be_zero_has_a_linear_axis():
    (ax,) = coefficient_paths([0, 1], PATHS).axes
    assert ax.get_xscale() == "linear" and len(ax.get_legend().get_texts()) == 3


def test_dots_of_paths_are_as_large_as_probable():
    probability = np.array([[0.1, 0.5, 0.0], [1.0, 0.2, 0.0]])
    (ax,) = coefficient_paths([1, 10], PATHS, probability, names=["a", "b", "c"], n_named=2).axes
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    assert texts == ["a", "b", "inclusion probability 1"]
    first, second, legend = ax.collections
    (largest,) = legend.get_sizes()
    for dots, column in ((first, 0), (second, 1)):
        np.testing.assert_allclose(dots.get_sizes(), largest * probability[:, column])
        np.testing.assert_array_equal(
            dots.get_offsets(), np.stack([[1, 10], PATHS[:, column]], axis=1)
        )
    assert not coefficient_paths([1, 10], PATHS, probability, n_named=0).axes[0].collections


@pytest.mark.parametrize("wrong", [[0.5, 0.5], PATHS, np.full(PATHS.shape, np.nan)])
def test_probabilities_of_paths_must_fit(wrong):
    with pytest.raises(ValueError, match=r"must have shape \(2, 3\) and values in \[0, 1\]"):
        coefficient_paths([1, 10], PATHS, wrong)


class Fit:
    """Attributes of a fitted regression of three named features."""

    coef_var_ = np.ones(3)
    feature_names_in_ = np.array(["a", "b", "c"])

    def __init__(self, coef, probability):
        self.coef_, self.inclusion_probability_ = coef, probability


def test_paths_of_fitted_estimators_are_those_of_their_arrays():
    probability = np.array([[0.1, 0.5, 0.0], [1.0, 0.2, 0.0]])
    fits = [Fit(*values) for values in zip(PATHS, probability, strict=True)]
    (drawn,) = coefficient_paths([1, 10], fits).axes
    (expected,) = coefficient_paths([1, 10], PATHS, probability, names=["a", "b", "c"]).axes
    for one, other in zip(drawn.lines, expected.lines, strict=True):
        np.testing.assert_array_equal(one.get_xydata(), other.get_xydata())
        assert one.get_label() == other.get_label()
    for one, other in zip(drawn.collections, expected.collections, strict=True):
        np.testing.assert_array_equal(one.get_sizes(), other.get_sizes())
    with pytest.raises(ValueError, match="leave out inclusion_probability"):
        coefficient_paths([1, 10], fits, probability)


def test_paths_need_a_row_for_each_fit():
    with pytest.raises(ValueError, match=r"shape \(3, n_features\), got \(2, 3\)"):
        coefficient_paths([1, 2, 3], PATHS)
