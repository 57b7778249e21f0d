import numpy as np
import pytest
from kernel_cases.regression import problem
from scipy.optimize import minimize

import fastmf as mf
from fastmf.learning import evidence
from fastmf.learning.evidence import (
    EVIDENCE_TOL,
    Classification,
    Hyperparameters,
    Regression,
    curvature_by_noise,
    evidence_gradient,
    maximise_evidence,
)


def regression(shape, groups):
    model, _ = problem(*shape, seed=1, noise=0.3, inclusion_probability=3 / shape[1])
    return Regression(model.X, model.y, groups)


def classification(shape, groups):
    """Two classes, and a constant without a spike."""
    model = problem(*shape, seed=1, inclusion_probability=3 / shape[1])[0]
    X = np.concatenate([model.X, np.ones((len(model.X), 1))], axis=1)
    return Classification.of(X, np.where(model.y > 0.3, 1.0, -1.0), groups, [0.01])


@pytest.mark.parametrize(
    "make, shape", [(regression, (30, 12)), (regression, (25, 90)), (classification, (40, 30))]
)
def test_gradient_against_finite_differences(make, shape):
    groups = np.arange(shape[1]) % 2
    task = make(shape, groups)
    centre = np.array([np.log(0.1 if make is regression else 1.0), np.log(0.8), -2.0, -3.0])

    def solve(x):
        found = task.model(Hyperparameters(np.exp(x[0]), np.exp(x[1]), x[2:]))
        result = mf.expectation_propagation(found, tol=1e-11, damping=0.2)
        assert result.converged
        return found, result

    by_noise, by_slab, by_odds = evidence_gradient(*solve(centre), groups, 2)
    h = 1e-4
    expected = [
        (solve(centre + step)[1].log_evidence - solve(centre - step)[1].log_evidence) / (2 * h)
        for step in h * np.eye(4)
    ]
    np.testing.assert_allclose([by_noise, by_slab, *by_odds], expected, rtol=1e-5, atol=1e-6)


def test_learned_values_are_a_maximum_and_near_the_truth():
    model, _ = problem(200, 60, noise=0.5, inclusion_probability=0.3, slab=2.0)
    groups = np.zeros(60, int)
    start = Hyperparameters(1.0, 1.0, np.zeros(1))
    fixed = Hyperparameters(False, False, False)
    task = Regression(model.X, model.y, groups)
    best, _ = maximise_evidence(task, start, fixed, tol=1e-9, max_iter=100)

    def negative_log_evidence(x):
        model = task.model(Hyperparameters(np.exp(x[0]), np.exp(x[1]), x[2:]))
        result = mf.expectation_propagation(model, tol=1e-9)
        gradient = np.hstack(evidence_gradient(model, result, groups, 1))
        return -result.log_evidence, -gradient

    found = np.concatenate([np.log(best[:2]), best.log_odds])
    polished = minimize(
        negative_log_evidence, found, jac=True, method="BFGS", options={"gtol": 1e-4}
    )
    assert polished.success and negative_log_evidence(found)[0] - polished.fun < EVIDENCE_TOL
    assert abs(np.log(best.noise_variance / 0.25)) < 0.3
    assert abs(np.log(best.slab_variance / 2)) < 0.8
    assert abs(1 / (1 + np.exp(-best.log_odds[0])) - 0.3) < 0.15


@pytest.mark.parametrize("n_rows", [30, 200])
def test_the_curvature_by_noise_leads_to_the_minimum_of_fixed_residuals(n_rows):
    """A Newton step with it, of n ln(s2) / 2 + R / (2 s2) by ln s2, from either side."""
    log_minimum = np.log(5.0 / n_rows)  # of squares R = 5
    for start in log_minimum + np.array([-1.0, -1e-3, 0.0, 1e-12, 0.5, 3.0]):
        derivative = n_rows / 2 - 5.0 / (2 * np.exp(start))
        step = -derivative / curvature_by_noise(derivative, n_rows)
        assert start + step == pytest.approx(log_minimum, abs=1e-9)


def test_noise_is_approached_from_above(monkeypatch):
    """Below its best value fixed points are hard to find."""
    tried, solve = [], evidence.solution_from

    def recorded(model, init, **options):
        tried.append(model.noise_variance)
        return solve(model, init, **options)

    monkeypatch.setattr(evidence, "solution_from", recorded)
    model, _ = problem(60, 200, seed=0, noise=0.1, inclusion_probability=0.03)
    task = Regression(model.X, model.y, np.zeros(200, int))
    start = Hyperparameters(0.3 * task.scale, 0.5, np.full(1, -3.0))
    fixed = Hyperparameters(False, False, False)
    best, _ = maximise_evidence(task, start, fixed, tol=1e-4, max_iter=40)
    assert min(tried) > 0.9 * best.noise_variance
    # Without the curvature a trial lies far below.
    tried.clear()
    monkeypatch.setattr(evidence, "curvature_by_noise", lambda derivative, n_rows: 0.0)
    maximise_evidence(task, start, fixed, tol=1e-4, max_iter=40)
    assert min(tried) < 0.7 * best.noise_variance


def test_trials_start_from_the_best_fixed_point_so_far(monkeypatch):
    """A rejected trial may be at a fixed point of another branch, away from the best."""
    tried, solve = [], evidence.solution_from

    def recorded(model, init, **options):
        result = solve(model, init, **options)
        if init is not None:
            tried.append((init.log_evidence, result.log_evidence if result.converged else -np.inf))
        return result

    monkeypatch.setattr(evidence, "solution_from", recorded)
    model, _ = problem(30, 60, noise=0.3, inclusion_probability=0.1)
    task = Regression(model.X, model.y, np.zeros(60, int))
    start, fixed = Hyperparameters(1e-4, 10.0, np.zeros(1)), Hyperparameters(False, False, False)
    _, result = maximise_evidence(task, start, fixed, tol=1e-4, max_iter=40)
    inits, values = np.array(tried).T
    best = np.maximum.accumulate(np.append(inits[0], values))
    np.testing.assert_array_equal(inits, best[:-1])
    assert result.log_evidence == best[-1]
    assert (values < best[:-1]).any()


def test_of_two_runs_that_do_not_converge_that_of_the_smaller_residual_is_returned():
    """With a tolerance that nothing reaches, where fixed points need negative sites."""
    model, _ = problem(10, 25, 1, noise=0.05, inclusion_probability=0.2)
    options = dict(schedule="convergent", tol=0.0, max_iter=100)
    near = mf.expectation_propagation(model, **options)
    assert near.residual < 1e-6 and near.sites[1].min() < 0
    result = evidence.robust_solution(model, **options)
    assert not result.converged and result.residual <= near.residual


def test_the_search_with_weighted_rows_is_that_with_repeated_ones():
    """Rows that stand for several have the normaliser of all, whose derivative is by the noise."""
    model, _ = problem(20, 6)
    weights = np.random.default_rng(1).integers(1, 4, 20)
    root = np.sqrt(weights)
    groups = np.zeros(6, int)
    task = Regression(model.X * root[:, None], model.y * root, groups, float(weights.sum()))
    rows = np.repeat(np.arange(20), weights)
    repeated = Regression(model.X[rows], model.y[rows], groups)
    assert task.scale == pytest.approx(repeated.scale)
    start = Hyperparameters(0.3, 0.5, np.array([-1.0]))
    fixed = Hyperparameters(False, False, False)
    found, expected = (
        maximise_evidence(t, start, fixed, tol=1e-9, max_iter=100)[0] for t in (task, repeated)
    )
    np.testing.assert_allclose(np.hstack(found), np.hstack(expected), rtol=1e-4)
