"""Newton's steps with Levenberg's term, on an energy of one variable and on that of moments."""

from types import SimpleNamespace

import numpy as np
import pytest
from kernel_cases.regression import problem
from numpy.linalg import LinAlgError

import fastmf as mf
from fastmf.inference.ep import levenberg
from fastmf.inference.ep.sites import EPTrace

TASK = SimpleNamespace(max_iter=100, tol=1e-12)


class Point:
    """On the energy (x^2 - 1)^2 / 4, which is not convex below 1 / sqrt(3); none beyond `limit`."""

    rounding_error = 1e-16

    def __init__(self, x, limit=np.inf):
        self.x, self.limit, self.value = x, limit, (x * x - 1) ** 2 / 4

    def state(self, problem):
        residual = abs(self.x * (self.x**2 - 1))
        return SimpleNamespace(
            residual=lambda: residual, agrees=lambda tol: residual <= tol, x=self.x
        )

    def step(self, problem, parameter):
        gradient, hessian = self.x * (self.x**2 - 1), 3 * self.x**2 - 1 + parameter
        if hessian <= 0:
            raise LinAlgError("not convex")
        change = -gradient / hessian
        return SimpleNamespace(point=self, derivative=gradient * change,
                               at=lambda length: self.moved(length * change))  # fmt: skip

    def moved(self, change):
        x = self.x + change
        return Point(x, self.limit) if abs(x) < self.limit else None


@pytest.mark.parametrize("start", [10.0, 1.1, 0.3, 1e-3])
def test_it_ends_at_a_minimum_and_never_rises(start):
    trace = EPTrace()
    state, converged = levenberg.descend(TASK, Point(start), trace)
    assert converged and state.x == pytest.approx(1, abs=1e-12)
    assert (np.diff(trace.energies) <= 0).all()
    # Newton's steps in the end: the residual is squared.
    assert len(trace.residuals) < 40 and trace.residuals[-1] < 1e-2 * trace.residuals[-2]


def test_steps_out_of_the_domain_are_shortened():
    trace = EPTrace()
    state, converged = levenberg.descend(TASK, Point(0.1, limit=1.01), trace)
    assert converged and state.x == pytest.approx(1, abs=1e-12)


def test_steps_that_rounding_hides_must_lower_the_residual():
    class Flat(Point):
        rounding_error = 1.0  # of any change of the energy

    # Steps of the wrong length, under which the residual grows, are not repeated for ever.
    class Overshooting(Flat):
        def step(self, problem, parameter):
            step = super().step(problem, 0.0)
            step.at = lambda length: Overshooting(1 + 1.5 * (self.x - 1))
            return step

    state, converged = levenberg.descend(TASK, Overshooting(1.001), EPTrace())
    assert not converged and state.x == 1.001
    assert levenberg.descend(TASK, Flat(1.001), EPTrace())[1]


def test_without_a_step_it_does_not_ask_for_more_iterations(monkeypatch, from_the_first_sites):
    """A descent that is not allowed a single step, as where rounding hides all decreases."""
    model, _ = problem(20, 30, inclusion_probability=0.1)
    from_the_first_sites(monkeypatch)
    monkeypatch.setattr(levenberg, "MAX_LEVENBERG", 0.0)
    result = mf.expectation_propagation(model, schedule="convergent")
    assert not result.converged and result.n_iter == 1
    assert "init" in result.message and "max_iter" not in result.message
