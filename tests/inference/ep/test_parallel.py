"""The parallel schedule: steps, damping, the end."""

import numpy as np
import pytest
from kernel_cases.regression import problem

from fastmf._outcomes import CONVERGED
from fastmf.inference.ep import parallel
from fastmf.inference.ep.expectation_propagation import start_of
from fastmf.inference.ep.sites import EPTrace, problem_of


@pytest.fixture
def task():
    return problem_of(problem(20, 10)[0])


def swept(task, damping, state=None, **options):
    trace = EPTrace(False)
    state = state or start_of(task)
    return *parallel.parallel_sweeps(task, state, damping, trace, **options), trace


@pytest.mark.parametrize("damping", [None, 0.0, 0.3])
def test_it_ends_at_a_fixed_point(task, damping):
    state, outcome, name, trace = swept(task, damping)
    assert (outcome, name) == (CONVERGED, "parallel")
    np.testing.assert_allclose(state.gaussian, state.tilted, atol=task.tol)
    assert trace.residuals[-1] == state.residual()


def test_extrapolation_takes_fewer_iterations_to_the_same_fixed_point():
    model, _ = problem(60, 200, 5)
    task = problem_of(model, tol=1e-10)
    ends = [swept(task, damping) for damping in (None, 0.1)]
    assert all(end[1] == CONVERGED for end in ends)
    np.testing.assert_allclose(ends[0][0].tilted, ends[1][0].tilted, atol=1e-8)
    fast, slow = (end[3].residuals for end in ends)
    assert len(fast) < len(slow)


def test_a_model_without_a_proper_gaussian_is_an_error(task, monkeypatch):
    monkeypatch.setattr(type(task.side), "moments", lambda side, site: None)
    with pytest.raises(ValueError, match="no proper Gaussian side"):
        start_of(task)
