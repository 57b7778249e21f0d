"""Schedules agree where they converge, and the convergent one does where the parallel does not."""

from types import SimpleNamespace

import numpy as np
import pytest
from kernel_cases.regression import problem
from numpy.linalg import LinAlgError

import fastmf as mf
from fastmf._outcomes import CONVERGED
from fastmf.inference.ep import levenberg, parallel, schedules, sites
from fastmf.inference.ep.expectation_propagation import start_of
from fastmf.inference.ep.parallel import AndersonExtrapolation
from fastmf.inference.ep.sites import EPTrace, problem_of

SCHEDULES = tuple(schedules.SCHEDULES)


@pytest.mark.parametrize("shape", [(60, 40), (30, 90), (50, 200)])
def test_schedules_agree(shape):
    model, _ = problem(*shape, seed=2, noise=0.1, inclusion_probability=6 / shape[1])
    first, *others = (mf.expectation_propagation(model, schedule=s) for s in SCHEDULES)
    assert first.converged
    for other in others:
        assert other.converged
        np.testing.assert_allclose(other.mean, first.mean, atol=1e-6)
        np.testing.assert_allclose(other.var, first.var, atol=1e-6)
        np.testing.assert_allclose(other.log_evidence, first.log_evidence, rtol=1e-6)


def paper_problem(seed):
    """The setting of the paper's first experiment: 25 features, 10 rows, hardly any noise."""
    return problem(10, 25, seed, noise=0.005, inclusion_probability=0.2)[0]


# The last six failed where fewer units were taken together in a step.
@pytest.mark.parametrize("seed", [*range(12), 204, 347, 501, 557, 576, 633])
def test_convergent_schedule_converges_and_its_energy_never_rises(seed):
    result = mf.expectation_propagation(paper_problem(seed), schedule="convergent", history=True)
    assert result.converged and result.residual <= 1e-8
    # The energy's terms are a million times larger than itself.
    assert (np.diff(result.energies) <= 1e-8).all()


# --- sequential sweeps: every update is seen by the next ------------------------------------------


@pytest.mark.parametrize("shape", [(60, 55), (20, 70)])
def test_a_sequential_sweep_sees_every_update_before(shape):
    """The Gaussian anew for every unit, where the sweep changes what it keeps, and late."""
    model, _ = problem(*shape, seed=3, noise=0.2, inclusion_probability=0.1)
    X, prior, s2 = model.X, model.prior, model.noise_variance
    start = np.stack([np.zeros(shape[1]), np.full(shape[1], 2.0)])
    sites = start.copy()
    for i in range(shape[1]):
        covariance = np.linalg.inv(X.T @ X / s2 + np.diag(sites[1]))
        mean = covariance[i] @ (X.T @ model.y / s2 + sites[0])
        b, a = mean / covariance[i, i] - sites[0, i], 1 / covariance[i, i] - sites[1, i]
        mean, var = (moment[i] for moment in prior.moments(b, a))
        sites[:, i] = mean / var - b, 1 / var - a
    result = mf.expectation_propagation(model, start, schedule="sequential", max_iter=1)
    assert sites[1].min() < 0
    np.testing.assert_allclose(result.sites, sites, rtol=1e-7, atol=1e-7)


# --- the parallel schedule: steps, damping, the end -----------------------------------------------


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
    assert trace.residuals[-1] == state.residual


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


# --- anderson's extrapolation, of made-up linear iterations ---------------------------------------


@pytest.mark.parametrize("rates", [[0.5], [0.5, -0.7], [0.8, -1.2, 0.3]])
def test_a_linear_iteration_is_solved_in_as_many_steps_as_it_has_dimensions(rates):
    """Also one that diverges by itself."""
    rng = np.random.default_rng(1)
    directions, goal = rng.normal(size=(len(rates), 20)), rng.normal(size=20)
    inverse = np.linalg.pinv(directions)
    site, extrapolation = goal + rng.normal(size=len(rates)) @ directions, AndersonExtrapolation()
    for _ in range(len(rates) + 1):
        step = ((np.array(rates) - 1) * ((site - goal) @ inverse)) @ directions
        extrapolation.remember(site, step, 3 * step)
        site = extrapolation(1.0)
    np.testing.assert_allclose(site, goal, atol=1e-4)


def test_differences_without_a_scale_are_not_extrapolated():
    extrapolation = AndersonExtrapolation()
    for difference in (np.nan, 1.0):
        extrapolation.remember(np.zeros(2), np.ones(2), np.full(2, difference))
    np.testing.assert_array_equal(extrapolation(1.0), 1)


# --- newton's steps with Levenberg's term, on an energy of one variable and on that of moments ----


TASK = SimpleNamespace(max_iter=100, tol=1e-12)


class Point:
    """On the energy (x^2 - 1)^2 / 4, which is not convex below 1 / sqrt(3); none beyond `limit`."""

    rounding_error = 1e-16

    def __init__(self, x, limit=np.inf):
        self.x, self.limit, self.value = x, limit, (x * x - 1) ** 2 / 4

    def state(self, problem):
        residual = abs(self.x * (self.x**2 - 1))
        return SimpleNamespace(residual=residual, agrees=lambda tol: residual <= tol, x=self.x)

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
    monkeypatch.setattr(levenberg, "_advance", lambda *_: (None, np.inf))
    result = mf.expectation_propagation(model, schedule="convergent")
    assert not result.converged and result.n_iter == 1
    assert "init" in result.message and "max_iter" not in result.message


def test_the_energy_is_stationary_at_the_fixed_point():
    model = problem(15, 6)[0]
    task, fixed = sites.problem_of(model), mf.expectation_propagation(model, tol=1e-12).sites

    def at(site):
        return task.energy(task.state_of(site))

    direction = np.random.default_rng(1).normal(size=(2, 6))
    up, down = (at(fixed + s * 1e-4 * direction) for s in (1, -1))
    elsewhere = [at(1.2 * fixed + s * 1e-4 * direction) for s in (1, -1)]
    assert abs(up - down) < 1e-4 * abs(elsewhere[0] - elsewhere[1])


def test_the_mismatch_of_wide_units_is_relative():
    wide = np.array([[3e6], [1e12]])
    assert sites.mismatch(wide, wide + [[500.0], [0.0]]) == pytest.approx(5e-4)
    assert sites.mismatch(wide, wide - [[0.0], [1e5]]) == pytest.approx(1e-7)


def test_the_log_partition_of_gaussians_is_their_integral():
    w = np.linspace(-30, 30, 200_001)
    expected = np.log(np.trapezoid(np.exp(0.7 * w - 0.4 * w * w), w))
    found = sites.gaussian_log_partition(np.array([[0.7, 0.7], [0.8, 0.8]]))
    assert found == pytest.approx(2 * expected, rel=1e-10)
