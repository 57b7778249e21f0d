"""The double loop, and bounds on site precisions, which only it can hold."""

import numpy as np
import pytest
from kernel_cases.regression import problem

import fastmf as mf
from fastmf.inference.ep import double_loop, schedules, sites
from fastmf.inference.ep.expectation_propagation import start_of
from fastmf.inference.ep.sites import problem_of

SCHEDULES = tuple(schedules.SCHEDULES)


def test_double_loop_and_descent_on_the_moments_are_one_minimisation(from_the_first_sites):
    """Two algorithms for one energy, the double loop under a bound that holds no site."""
    model, _ = problem(20, 30, inclusion_probability=0.1)
    energies = []
    for bound in (None, -1e4):
        with pytest.MonkeyPatch.context() as patch:
            from_the_first_sites(patch)
            result = mf.expectation_propagation(
                model, schedule="convergent", site_precision_min=bound, max_iter=200, history=True
            )
        assert result.converged and len(result.energies) > 3
        assert (np.diff(result.energies) <= 1e-8).all()
        assert result.energies[0] > result.energies[-1] + 0.1
        energies.append(result.energies[-1])
        np.testing.assert_allclose(-result.log_partition, result.energies[-1], rtol=1e-8)
    np.testing.assert_allclose(*energies, rtol=1e-8)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_bound_on_site_precisions(schedule):
    """Eq. 13 of the paper; the double loop bounds the cavities too."""
    model, _ = problem(10, 25, noise=1.0, inclusion_probability=0.2, seed=0)
    options = dict(schedule=schedule, max_iter=300, history=True)
    if schedule in ("parallel", "sequential"):
        options["damping"] = 0.5
    free = mf.expectation_propagation(model, **options)
    bound = mf.expectation_propagation(model, site_precision_min=0.01, **options)
    assert free.sites[1].min() < 0
    assert bound.sites[1].min() >= 0.01 - 1e-12
    assert np.isfinite(bound.log_evidence)
    if schedule in ("parallel", "sequential"):
        assert "site_precision_min" in bound.message
    if schedule == "convergent":
        assert bound.a.min() >= 0.01 - 1e-12
        np.testing.assert_allclose(-bound.log_partition, bound.energies[-1], rtol=1e-9)
        assert (np.diff(bound.energies) <= 1e-8).all()
        # A bound that is active moves the solution off the fixed point: the price of the option.
        assert free.residual <= 1e-8 < bound.residual


def test_what_is_returned_under_a_bound_is_what_was_minimised():
    """Also where a site is held, so that the Gaussian and the units differ at the solution."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(5, 3))
    y = X @ [1, 0, 0.3] + 0.1 * rng.normal(size=5)
    model = mf.SparseLinearModel(X, y, 0.01, mf.GaussBernoulli(np.zeros(3), 1, -1.0))
    held = 0
    for least in (-0.5, 0.0, 0.01):
        result = mf.expectation_propagation(
            model, schedule="convergent", site_precision_min=least, history=True, max_iter=30
        )
        np.testing.assert_allclose(-result.log_partition, result.energies[-1], rtol=1e-9)
        assert min(result.a.min(), result.sites[1].min()) >= least - 1e-12
        np.testing.assert_allclose(result.mean, model.prior.moments(result.b, result.a)[0])
        held += result.residual > 1e-3
    assert held


def test_bounded_energy_never_rises_where_the_inner_problem_is_hard():
    """Where one pass of its solver used to end half a nat short of the maximum."""
    model, _ = problem(10, 25, noise=0.05, inclusion_probability=0.2, seed=0)
    options = dict(schedule="convergent", site_precision_min=0.0, max_iter=100, history=True)
    result = mf.expectation_propagation(model, **options)
    assert result.n_iter > 2
    assert (np.diff(result.energies) <= 1e-8).all()


@pytest.fixture
def task():
    return problem_of(problem(15, 6)[0])


def inner_problem(task):
    """Naturals of marginals for which the sites are not known, and sites inside the domain."""
    state = start_of(task)
    return double_loop.natural(state.gaussian * [[1.2], [0.8]]), state.site


def test_the_gradient_is_the_derivative(task):
    marginal, site = inner_problem(task)
    direction, h = np.random.default_rng(0).normal(size=(2, 6)), 1e-5
    up, down = (
        double_loop.evaluate(task, marginal, site + s * h * direction).value for s in (1, -1)
    )
    gradient = double_loop.evaluate(task, marginal, site).gradient()
    np.testing.assert_allclose((up - down) / (2 * h), (gradient * direction).sum(), rtol=1e-6)
    assert double_loop.evaluate(task, marginal, -1e6 * site) is None


def test_at_the_maximum_both_sides_have_the_same_moments(task):
    """Where no bound holds a site; where one does, the maximum is lower."""
    marginal, site = inner_problem(task)
    free = double_loop.maximise(task, marginal, site, 1e-9)
    assert sites.mismatch(free.gaussian, free.tilted) <= 1e-9
    np.testing.assert_allclose(free.cavity + free.site, marginal)
    lowest = min(free.site[1].min(), free.cavity[1].min()) - 1
    bounded = task._replace(min_site_precision=lowest)
    point = double_loop.maximise(bounded, marginal, site, 1e-10)
    assert point.value == pytest.approx(free.value, rel=1e-10)
    held = task._replace(min_site_precision=lowest + 2)
    point = double_loop.maximise(held, marginal, site, 1e-10)
    assert point.value < free.value
    assert min(point.site[1].min(), point.cavity[1].min()) >= held.min_site_precision - 1e-12
