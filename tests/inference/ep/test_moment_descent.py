"""Descent on the energy of the moments: derivatives, curvatures, and correlated problems."""

from types import SimpleNamespace

import numpy as np
import pytest
from kernel_cases.regression import chain_of_features, problem

import fastmf as mf
from fastmf.inference.ep import double_loop, moment_descent, schedules, sites
from fastmf.inference.ep.expectation_propagation import start_of
from fastmf.inference.ep.sites import problem_of
from fastmf.learning.evidence import Classification, Hyperparameters


def correlated(n, d, k, seed=0, noise=0.1, chain=0.9):
    """Features in a chain: neighbours have a correlation of `chain`."""
    rng = np.random.default_rng(seed)
    X = chain_of_features(rng, n, d, chain)
    w = np.zeros(d)
    w[rng.choice(d, k, replace=False)] = rng.normal(size=k)
    y = X @ w + noise * rng.normal(size=n)
    prior = mf.GaussBernoulli(np.zeros(d), 1.0, np.log(k / (d - k)))
    return mf.SparseLinearModel(X, y, noise**2, prior)


def somewhere(model):
    """A point that is no fixed point."""
    task = problem_of(model)
    state = start_of(task)
    site = state.site * np.random.default_rng(1).uniform(0.7, 1.3, state.site.shape)
    return task, moment_descent.evaluate(task, site, state.cavity)


@pytest.mark.parametrize("shape", [(30, 20), (20, 90)])
def test_the_derivative_of_a_step_is_that_of_the_energy(shape):
    task, point = somewhere(problem(*shape, inclusion_probability=0.2)[0])
    step = moment_descent.MomentStep(task, point, 0.5)
    h = 1e-6  # the path has a kink in its curvature
    up, down = (step.at(s * h).value for s in (1, -1))
    assert step.derivative < 0
    np.testing.assert_allclose((up - down) / (2 * h), step.derivative, rtol=1e-5)


@pytest.mark.parametrize("shape", [(30, 20), (20, 90)])
def test_steps_without_levenbergs_term_are_newtons(monkeypatch, shape):
    """Three steps of all units together, from near a parallel fixed point, end there."""
    monkeypatch.setattr(moment_descent, "MIN_SQUARED_CORRELATION", -1.0)
    model = problem(*shape, inclusion_probability=0.2)[0]
    exact = mf.expectation_propagation(model, tol=1e-12)
    assert exact.converged
    task, noise = problem_of(model), np.random.default_rng(2).normal(size=exact.sites.shape)
    sites = exact.sites * (1 + 1e-3 * noise)
    point, errors = moment_descent.evaluate(task, sites, np.stack([exact.b, exact.a])), []
    for _ in range(4):
        errors.append(abs(point.gaussian - [exact.mean, exact.var]).max())
        point = moment_descent.MomentStep(task, point, 0.0).at(1.0)
    assert errors[0] > 1e-4 and errors[1] < 1e-2 * errors[0]
    assert errors[2] < 1e-3 * errors[1] and errors[3] < 1e-11


def test_cavities_have_the_moments_of_the_gaussian():
    task, point = somewhere(problem(20, 90, inclusion_probability=0.2)[0])
    np.testing.assert_allclose(task.prior.moments(*point.cavity), point.gaussian, rtol=1e-9)


def test_units_whose_variance_follows_from_the_mean_have_no_such_cavities():
    couplings = np.array([[0, 0.3], [0.3, 0]])
    task = problem_of(mf.BoltzmannMachine(couplings, mf.Ising(np.array([0.5, 0.1]))))
    state = start_of(task)
    assert moment_descent.evaluate(task, state.site * 1.1, state.cavity) is None


@pytest.mark.parametrize(
    "n, d, k", [(50, 300, 8), pytest.param(100, 1000, 15, marks=pytest.mark.slow)]
)
def test_large_correlated_problems(n, d, k):
    """Where the parallel schedule cycles."""
    model = correlated(n, d, k)
    assert not mf.expectation_propagation(model, max_iter=300).converged
    for schedule in ("convergent", "auto"):
        result = mf.expectation_propagation(model, schedule=schedule, history=True)
        assert result.converged and result.residual <= 1e-8
        assert result.schedule == "convergent"
        # For "auto" the energies begin with those of the parallel steps.
        falling = result.energies if schedule == "convergent" else result.energies[-3:]
        assert (np.diff(falling) <= 1e-9).all()


def test_energy_falls_though_few_units_are_taken_together(monkeypatch):
    monkeypatch.setattr(moment_descent, "MAX_JOINT_UNITS", 10)
    model = correlated(40, 200, 6)
    result = mf.expectation_propagation(model, schedule="convergent", history=True)
    assert result.converged and (np.diff(result.energies) <= 1e-9).all()


@pytest.mark.parametrize("schedule", ["convergent", "auto"])
def test_descent_from_a_result_of_descent_starts_at_once(schedule):
    """Without parallel steps, which may leave a fixed point that they do not converge to."""
    model, _ = problem(10, 25, noise=0.005, inclusion_probability=0.2, seed=2)
    found = mf.expectation_propagation(model, schedule="convergent")
    again = mf.expectation_propagation(model, found, schedule=schedule)
    assert found.converged and again.converged and again.n_iter == 1
    assert again.schedule == "convergent"
    np.testing.assert_allclose(again.log_evidence, found.log_evidence, rtol=1e-9)


@pytest.mark.parametrize(
    "width, precision",
    [
        *((1e-3, 1e-10), (1.0, 1e-10), (10.0, 1e-10), (72.0, 1e-10)),
        *((1e-5, 1e-4), (1e-3, 1e-4), (1e-2, 1e-4), (1.0, 1e-4)),
    ],
)
def test_curvature_of_units_far_from_their_cavity(width, precision):
    """On a half-line, with so little precision that they follow an exponential distribution."""
    prior = mf.TruncatedGaussian(np.zeros(2), precision, 0.0, np.inf)
    task = problem_of(mf.SparseLinearModel(np.eye(2), np.zeros(2), 1.0, prior))
    cavity = np.array([[-1 / width] * 2, [1e-7 / width**2] * 2])
    tilted = np.stack(prior.moments(*cavity))
    shift = np.array([0.0, 0.3 * width])
    point = SimpleNamespace(cavity=cavity, gaussian=tilted - [shift, [0, 0]], tilted=tilted)
    # Cumulants of an exponential distribution are width^n (n - 1)!
    second, third, fourth = width**2, 2 * width**3, 6 * width**4
    expected = (
        second + 0 * shift,
        -(third / 2 + shift * second),
        (fourth + 2 * second**2) / 4 + shift * third + shift**2 * second,
    )
    np.testing.assert_allclose(moment_descent.unit_curvature(task, point), expected, rtol=0.02)


def test_active_units_are_those_most_correlated_with_all_others(monkeypatch):
    """Also where a site of negative precision and the data cancel in a unit's own precision."""
    monkeypatch.setattr(moment_descent, "MAX_JOINT_UNITS", 20)
    task, point = somewhere(problem(20, 90, inclusion_probability=0.2)[0])
    site = point.site.copy()
    site[1, :5] *= -0.1
    point = moment_descent.evaluate(task, site, point.cavity)
    covariance = task.side.covariance(site, np.arange(90))
    var = covariance.diagonal()
    coupling = (covariance**2 / (var[:, None] * var)).sum(1)
    active = moment_descent.active_units(task, point)
    np.testing.assert_array_equal(active, np.sort(np.argsort(coupling)[-20:]))


def test_active_units_are_all_that_are_correlated_and_no_others():
    rng, n_free, n_tied = np.random.default_rng(0), 300, 250
    X = rng.normal(size=(n_tied // 2, n_tied))
    X = np.concatenate([np.zeros((len(X), n_free)), X], axis=1)
    prior = mf.GaussBernoulli(np.zeros(n_free + n_tied), np.ones(n_free + n_tied), 0.0)
    model = mf.SparseLinearModel(X, rng.normal(size=len(X)), 0.1, prior)
    task, point = somewhere(model)
    active = moment_descent.active_units(task, point)
    np.testing.assert_array_equal(active, n_free + np.arange(n_tied))


def test_classes_that_are_nearly_separable_converge_in_few_steps():
    """More units are correlated than the 200 that were once taken together: it took hundreds."""
    rng, n, d = np.random.default_rng(1), 150, 225
    X, w = rng.normal(size=(n, d)), np.zeros(d)
    w[:10] = 3 * rng.normal(size=10)
    classes = Classification.of(X, np.sign(X @ w), np.zeros(d, int))
    slabs = (
        classes.model(Hyperparameters(1.0, variance, np.array([-3.6]))) for variance in (25.0, 65.0)
    )
    first = mf.expectation_propagation(next(slabs), schedule="auto", tol=1e-4)
    result = mf.expectation_propagation(next(slabs), first, schedule="auto", tol=1e-8, max_iter=60)
    assert result.converged and result.schedule == "convergent"


def test_active_units_are_there_where_rounding_decides_on_the_gaussian(monkeypatch):
    monkeypatch.setattr(moment_descent, "MAX_JOINT_UNITS", 20)
    task, point = somewhere(problem(20, 90, inclusion_probability=0.2)[0])
    monkeypatch.setattr(type(task.side), "moments", lambda side, sites: None)
    active = moment_descent.active_units(task, point)
    assert len(np.unique(active)) == 20


# --- the double loop, and bounds on site precisions, which only it can hold -----------------------


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
    options = dict(schedule="convergent", site_precision_min=0.0, max_iter=30, history=True)
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
