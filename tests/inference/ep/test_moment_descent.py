"""Descent on the energy of the moments: its derivatives, and large correlated problems."""

import numpy as np
import pytest
from kernel_cases.regression import problem

import fastmf as mf
from fastmf.inference.ep import curvature, moment_descent
from fastmf.inference.ep.expectation_propagation import start_of
from fastmf.inference.ep.sites import problem_of


def correlated(n, d, k, seed=0, noise=0.1, chain=0.9):
    """Features in a chain: neighbours have a correlation of `chain`."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    for j in range(1, d):
        X[:, j] = chain * X[:, j - 1] + np.sqrt(1 - chain**2) * X[:, j]
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
def test_steps_without_levenbergs_term_are_newtons(shape):
    """Three of them from near a fixed point, found by the parallel schedule, end there."""
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


@pytest.mark.parametrize("n, d, k", [(50, 300, 8), (100, 1000, 15)])
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
    monkeypatch.setattr(curvature, "MAX_JOINT_UNITS", 10)
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
