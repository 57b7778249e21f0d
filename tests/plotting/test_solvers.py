from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from fastmf.evaluation.log_partition import LogPartitionEntry, LogPartitionReport
from fastmf.plotting import convergence_history, log_partitions


def test_rows_that_did_not_converge_stand_out():
    history = np.array([[1.0, 0.1, 0.1], [1.0, 0.5, 0.25]])
    result = SimpleNamespace(
        history=history, n_iter=np.array([2, 3]), converged=np.array([True, False])
    )
    (ax,) = convergence_history(result, tol=1e-3).axes
    ended, moving, tolerance = ax.lines
    np.testing.assert_array_equal(ended.get_xydata(), [[1, 1.0], [2, 0.1]])
    np.testing.assert_array_equal(moving.get_ydata(), history[1])
    assert to_rgb(ended.get_color()) != to_rgb(moving.get_color()) == to_rgb("C3")
    assert set(tolerance.get_ydata()) == {1e-3}
    assert ax.get_title() == "1 of 2 rows converged" and ax.get_yscale() == "log"


def test_a_single_row_and_residuals_of_zero():
    result = SimpleNamespace(history=np.array([0.5, 0.0]), n_iter=2, converged=True)
    ax = Figure().add_subplot()
    assert convergence_history(result, ax=ax) is ax.figure
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), [0.5, np.nan])
    ax.figure.draw_without_rendering()


def test_a_result_without_history_says_what_to_do():
    with pytest.raises(ValueError, match="history=True"):
        convergence_history(SimpleNamespace(history=None))


def test_log_partitions_have_bars_of_two_errors():
    report = LogPartitionReport(
        [
            LogPartitionEntry("exact", 2.0, None, 0.1, ""),
            LogPartitionEntry("AIS", 2.5, 0.25, 0.1, ""),
            LogPartitionEntry("none", -np.inf, None, 0.1, ""),
        ]
    )
    (ax,) = log_partitions(report).axes
    truth, points = ax.lines
    assert set(truth.get_xdata()) == {2.0}
    np.testing.assert_array_equal(points.get_xydata(), [[2.0, 0], [2.5, 1]])
    np.testing.assert_allclose(ax.collections[0].get_segments()[1], [[2.0, 1], [3.0, 1]])
    assert [label.get_text() for label in ax.get_yticklabels()] == ["exact", "AIS", "none"]
    with pytest.raises(ValueError, match="empty"):
        log_partitions(LogPartitionReport())
