"""Rules by which rows end."""

from dataclasses import replace

import numpy as np

from fastmf._outcomes import (
    CONFIRMING,
    CONVERGED,
    CYCLING,
    INFEASIBLE,
    MAX_DAMPING,
    OUT_OF_ITERATIONS,
    RUNNING,
)
from fastmf.inference.bp._kernel_arguments import convergence_settings, record_of
from fastmf.inference.bp._options import BPOptions
from fastmf.inference.bp.graphs.iteration import assess

OPTIONS = BPOptions(max_iter=100)


def new_record(options=OPTIONS):
    """The record of one row."""
    return record_of(1, options)


def assessed(record, change, damping=0.0, options=OPTIONS):
    """The record after a sweep of its only row."""
    settings = convergence_settings(options, 1e-15)
    assess(options, settings, record, np.arange(1), np.array([change]), np.array([damping]))
    return record


def test_an_undamped_sweep_decides():
    assert assessed(new_record(), 1e-9).status[0] == CONVERGED
    assert assessed(new_record(), 1e-7).status[0] == RUNNING
    assert assessed(new_record(), np.inf).status[0] == INFEASIBLE
    record = new_record()
    record.n_iter[:] = 99
    assert assessed(record, 1.0).status[0] == OUT_OF_ITERATIONS


def test_damped_rows_are_confirmed_by_an_undamped_sweep():
    record = new_record(replace(OPTIONS, damping=0.5))
    assert assessed(record, 1e-10, 0.5).status[0] == CONFIRMING
    assert assessed(record, 1e-6, 0.0).status[0] == RUNNING
    assert record.limit[0] < 1e-8
    assert assessed(record, 1e-10, 0.0).status[0] == CONVERGED


def test_damping_is_raised_when_the_residual_no_longer_falls():
    record = new_record()
    for k in range(17):
        assert record.damping[0] == 0
        assessed(record, 1.0 + k % 2)
    assert record.damping[0] == 0.5
    for _ in range(17):
        assessed(record, 1.0, 0.5)
    assert record.damping[0] == 0.75


def test_decoded_rows_that_stall_at_the_largest_damping_are_given_up():
    for algorithm, status in (("max", CYCLING), ("sum", RUNNING)):
        options = BPOptions(algorithm=algorithm, max_iter=1000)
        record = new_record(options)
        for _ in range(130):
            if record.status[0] == RUNNING:
                assessed(record, 1.0, record.damping[0], options)
        assert record.status[0] == status and record.damping[0] == MAX_DAMPING
