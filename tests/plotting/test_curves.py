from types import SimpleNamespace as Fitted

import numpy as np
import pytest
from matplotlib.figure import Figure

from fastmf.plotting import learning_curve

HISTORY = {"epoch": [1, 2, 3], "log_likelihood": [-0.3, -0.2, -0.1]}
VALIDATED = HISTORY | {"validation_log_likelihood": [-0.3, -0.25, -0.2]}


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_learning_curve_draws_training_and_validation():
    figure = learning_curve(VALIDATED)
    (ax,) = figure.axes
    training, validation = ax.lines
    np.testing.assert_array_equal(
        training.get_xydata(), np.transpose([[1, 2, 3], [-0.3, -0.2, -0.1]])
    )
    np.testing.assert_array_equal(validation.get_ydata(), [-0.3, -0.25, -0.2])
    assert training.get_linestyle() != validation.get_linestyle()
    assert legend(ax) == ["training data", "validation data"]
    assert ax.get_xlabel() == "epoch"


def test_learning_curves_share_axes():
    ax = Figure().add_subplot()
    for label in ("25", "50"):
        history = {name: np.array(values) for name, values in VALIDATED.items()}  # or arrays
        assert learning_curve(history, label=label, ax=ax) is ax.figure
    assert len(ax.lines) == 4
    assert legend(ax) == ["25", "50"]
    assert ax.get_legend().get_title().get_text() == "dashed: validation data"
    colors = [line.get_color() for line in ax.lines]
    assert colors[0] == colors[1] != colors[2] == colors[3]


@pytest.mark.parametrize("history, error, message", [
    *((h, ValueError, "log_likelihood")
      for h in ({}, {"epoch": [1]}, {"epoch": [1, 2], "log_likelihood": [0.0]})),
    *((h, TypeError, "history must be a fitted estimator") for h in (3, "abc", Fitted(model_=1))),
])  # fmt: skip
def test_learning_curve_refuses_other_histories(history, error, message):
    with pytest.raises(error, match=message):
        learning_curve(history)


def test_learning_curve_of_a_fitted_estimator():
    (line,) = learning_curve(Fitted(history_=HISTORY)).axes[0].lines
    np.testing.assert_array_equal(line.get_ydata(), HISTORY["log_likelihood"])
    labels = {"epoch": [1, 2], "accuracy": [0.5, 0.75], "validation_accuracy": [0.4, 0.5]}
    (ax,) = learning_curve(Fitted(history_=labels)).axes
    assert [list(line.get_ydata()) for line in ax.lines] == [[0.5, 0.75], [0.4, 0.5]]
    assert ax.get_ylabel() == "fraction of correct labels"
    (ax,) = learning_curve(Fitted(history_=np.array([-3.0, -2.0]))).axes
    np.testing.assert_array_equal(ax.lines[0].get_xydata(), [[1, -3], [2, -2]])
    assert ax.get_xlabel() == "iteration" and "pseudo" in ax.get_ylabel()
