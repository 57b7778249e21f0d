import numpy as np
import pytest

from fastmf.evaluation.log_partition import LogPartitionEntry, LogPartitionReport
from fastmf.plotting import log_partitions


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
