"""The inner problem of the double loop: its gradient, and its solvers without and with bounds."""

import numpy as np
import pytest
from kernel_cases.regression import problem

from fastmf.inference.ep import curvature, inner_loop
from fastmf.inference.ep.expectation_propagation import start_of
from fastmf.inference.ep.sites import problem_of


@pytest.fixture
def task():
    return problem_of(problem(15, 6)[0])


def inner_problem(task):
    """Naturals of marginals for which the sites are not known, and sites inside the domain."""
    state = start_of(task)
    return inner_loop.natural(state.gaussian * [[1.2], [0.8]]), state.site


def test_the_gradient_is_the_derivative(task):
    marginal, site = inner_problem(task)
    direction, h = np.random.default_rng(0).normal(size=(2, 6)), 1e-5
    up, down = (
        inner_loop.evaluate(task, marginal, site + s * h * direction).value for s in (1, -1)
    )
    gradient = inner_loop.evaluate(task, marginal, site).gradient()
    np.testing.assert_allclose((up - down) / (2 * h), (gradient * direction).sum(), rtol=1e-6)
    assert inner_loop.evaluate(task, marginal, -1e6 * site) is None


@pytest.mark.parametrize("max_newton, max_joint", [(150, 200), (0, 200), (0, 2)])
def test_at_the_maximum_both_sides_have_the_same_moments(monkeypatch, task, max_newton, max_joint):
    """With the curvature of all units together, and with that of most units alone."""
    marginal, site = inner_problem(task)
    best = inner_loop.maximise(task, marginal, site, 1e-12)
    monkeypatch.setattr(curvature, "MAX_NEWTON_UNITS", max_newton)
    monkeypatch.setattr(curvature, "MAX_JOINT_UNITS", max_joint)
    point = inner_loop.maximise(task, marginal, site, 1e-9)
    assert point.mismatch() <= 1e-9
    np.testing.assert_allclose(point.site, best.site, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(point.cavity + point.site, marginal)


def test_a_bound_that_holds_no_site_changes_nothing(task):
    marginal, site = inner_problem(task)
    free = inner_loop.maximise(task, marginal, site, 1e-10)
    lowest = min(free.site[1].min(), free.cavity[1].min()) - 1
    bounded = task._replace(min_site_precision=lowest)
    point = inner_loop.bounded_maximise(bounded, marginal, site, 1e-10)
    assert point.value == pytest.approx(free.value, rel=1e-10)
    held = task._replace(min_site_precision=lowest + 2)
    point = inner_loop.bounded_maximise(held, marginal, site, 1e-10)
    assert point.value < free.value
    assert min(point.site[1].min(), point.cavity[1].min()) >= held.min_site_precision - 1e-12


def test_evaluations_are_counted_and_end(task):
    marginal, site = inner_problem(task)
    task = task._replace(max_iter=1, evaluations=[0])
    assert not inner_loop.exhausted(task)
    for _ in range(21):
        inner_loop.evaluate(task, marginal, site)
    assert task.evaluations == [21] and inner_loop.exhausted(task)
