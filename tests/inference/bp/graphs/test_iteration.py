"""Rules by which rows end."""

import numpy as np

from fastmf._outcomes import (
    CONFIRMING,
    CONVERGED,
    CYCLING,
    INFEASIBLE,
    OUT_OF_ITERATIONS,
    RUNNING,
)
from fastmf.inference.bp.graphs.iteration import SweepRecord, SweepSettings
from fastmf.kernels.bp.arguments import MAX_DAMPING

SETTINGS = SweepSettings(False, 1e-8, 1e-15, 100, None, 0, 16, False, None)


def assessed(record, change, damping=0.0):
    """The record after a sweep of its only row."""
    record.assess(np.arange(1), np.array([change]), np.array([damping]), SETTINGS)
    return record


def test_an_undamped_sweep_decides():
    assert assessed(SweepRecord.of_rows(1, SETTINGS), 1e-9).status[0] == CONVERGED
    assert assessed(SweepRecord.of_rows(1, SETTINGS), 1e-7).status[0] == RUNNING
    assert assessed(SweepRecord.of_rows(1, SETTINGS), np.inf).status[0] == INFEASIBLE
    record = SweepRecord.of_rows(1, SETTINGS)
    record.n_iter[:] = 99
    assert assessed(record, 1.0).status[0] == OUT_OF_ITERATIONS


def test_damped_rows_are_confirmed_by_an_undamped_sweep():
    record = SweepRecord.of_rows(1, SETTINGS._replace(damping=0.5))
    assert assessed(record, 1e-10, 0.5).status[0] == CONFIRMING
    assert assessed(record, 1e-6, 0.0).status[0] == RUNNING
    assert record.limit[0] < 1e-8
    assert assessed(record, 1e-10, 0.0).status[0] == CONVERGED


def test_damping_is_raised_when_the_residual_no_longer_falls():
    record = SweepRecord.of_rows(1, SETTINGS)
    for k in range(17):
        assert record.damping[0] == 0
        assessed(record, 1.0 + k % 2)
    assert record.damping[0] == 0.5
    for _ in range(17):
        assessed(record, 1.0, 0.5)
    assert record.damping[0] == 0.75


def test_rows_that_stall_at_the_largest_damping_are_given_up():
    for gives_up, status in ((True, CYCLING), (False, RUNNING)):
        settings = SETTINGS._replace(gives_up=gives_up, max_iter=1000)
        record = SweepRecord.of_rows(1, settings)
        for _ in range(130):
            if record.status[0] == RUNNING:
                record.assess(np.arange(1), np.ones(1), record.damping[:1], settings)
        assert record.status[0] == status and record.damping[0] == MAX_DAMPING
