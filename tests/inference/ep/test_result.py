"""How results are made of states, and of rows."""

import numpy as np
import pytest
from html_tables import shown
from kernel_cases.regression import problem

from fastmf._outcomes import CONVERGED, LOST, MESSAGES
from fastmf.inference.ep.expectation_propagation import start_of
from fastmf.inference.ep.result import result_of, stacked_rows
from fastmf.inference.ep.sites import EPTrace, problem_of


@pytest.fixture
def task():
    return problem_of(problem(15, 6)[0])


def trace_of(residuals):
    trace = EPTrace()
    for residual in residuals:
        trace.add(residual, lambda e=-residual: e)
    return trace


def test_rows_that_ended_earlier_repeat_their_last_value(task):
    end = start_of(task), CONVERGED, "parallel"
    rows = [result_of(task, end, trace_of(values), True) for values in ([3.0, 1.0], [2.0])]
    result = stacked_rows(rows)
    assert result.mean.shape == (2, 6) and result.sites.shape == (2, 2, 6)
    assert result.history.tolist() == [[3, 1], [2, 2]]
    assert result.energies.tolist() == [[-3, -1], [-2, -2]]
    assert result.n_iter.tolist() == [2, 1]
    rows = [result_of(task, end, trace_of([1.0]), False) for _ in range(2)]
    assert stacked_rows(rows).history is None


def test_notebooks_show_the_evidence_and_the_schedule(task):
    state, trace = start_of(task), trace_of([0.5])
    found = result_of(task, (state, CONVERGED, "parallel"), trace, history=False)
    title, (summary, messages) = shown(found)
    assert title == "ExpectationPropagation"
    assert summary[-2][0] == "log-evidence" and summary[-1] == ("schedule", "parallel")
    assert messages[1] == (MESSAGES[CONVERGED], "1")
    assert dict(shown(stacked_rows([found, found]))[1][0])["rows"] == "2"


def test_cavities_that_are_lost_in_rounding_are_no_fixed_point(task):
    """A site so precise that the cavity, a difference of naturals, is nothing but rounding."""
    state = start_of(task)
    assert result_of(task, (state, CONVERGED, "auto"), trace_of([3.0]), False).converged
    site = state.site.copy()
    site[:, 2] = 1e25
    result = result_of(task, (state._replace(site=site), CONVERGED, "auto"), trace_of([0.0]), False)
    assert not result.converged and result.message == MESSAGES[LOST]


def test_an_infinite_log_partition_is_no_fixed_point(task):
    state = start_of(task)._replace(log_partition=np.inf)
    result = result_of(task, (state, CONVERGED, "auto"), trace_of([0.0]), False)
    assert not result.converged and result.message == MESSAGES[LOST]
