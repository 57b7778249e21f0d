import numpy as np
import pytest
from kernel_cases.regression import problem
from scipy.optimize import minimize

import fastmf as mf
from fastmf.learning.evidence import Hyperparameters, Regression, Task, evidence_gradient
from fastmf.learning.evidence.parameter_priors import ParameterPriors
from fastmf.learning.evidence.search import (
    EVIDENCE_TOL,
    curvature_by_noise,
    maximise_evidence,
    on_bounds,
)


def test_learned_values_are_a_maximum_and_near_the_truth():
    model, _ = problem(200, 60, noise=0.5, inclusion_probability=0.3, slab=2.0)
    groups = np.zeros(60, int)
    start = Hyperparameters(1.0, 1.0, np.zeros(1))
    fixed = Hyperparameters(False, False, False)
    task = Task.of(Regression(model.X, model.y, groups))
    best = maximise_evidence(task, start, fixed).hyperparameters

    def negative_log_evidence(x):
        model = task.parts[0].model(Hyperparameters(np.exp(x[0]), np.exp(x[1]), x[2:]))
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


def test_the_search_with_weighted_rows_is_that_with_repeated_ones():
    """Rows that stand for several have the normaliser of all, whose derivative is by the noise."""
    model, _ = problem(20, 6)
    weights = np.random.default_rng(1).integers(1, 4, 20)
    root = np.sqrt(weights)
    groups = np.zeros(6, int)
    task = Task.of(
        Regression(model.X * root[:, None], model.y * root, groups, float(weights.sum()))
    )
    rows = np.repeat(np.arange(20), weights)
    repeated = Task.of(Regression(model.X[rows], model.y[rows], groups))
    assert task.scale == pytest.approx(repeated.scale)
    start = Hyperparameters(0.3, 0.5, np.array([-1.0]))
    fixed = Hyperparameters(False, False, False)
    found, expected = (maximise_evidence(t, start, fixed).hyperparameters for t in (task, repeated))
    np.testing.assert_allclose(np.hstack(found), np.hstack(expected), rtol=1e-4)


def test_with_priors_the_density_has_its_maximum():
    model, _ = problem(60, 20, noise=0.5, inclusion_probability=0.2)
    task = Task.of(Regression(model.X, model.y, np.zeros(20, int)))
    start, fixed = Hyperparameters(1.0, 1.0, np.zeros(1)), Hyperparameters(False, False, False)
    priors = ParameterPriors.of(task)
    point = maximise_evidence(task, start, fixed, priors=priors)
    best = point.hyperparameters

    def density(x):
        here = Hyperparameters(np.exp(x[0]), np.exp(x[1]), x[2:])
        result = mf.expectation_propagation(task.parts[0].model(here), tol=1e-9)
        return result.log_evidence + priors.log_density(here, np.ones(3, bool))[0]

    centre = np.concatenate([np.log(best[:2]), best.log_odds])
    value = density(centre)
    around = [density(centre + step) for step in 0.3 * np.vstack([np.eye(3), -np.eye(3)])]
    assert max(around) < value + EVIDENCE_TOL
    assert on_bounds(task, best, fixed) == []


def test_optima_on_bounds_are_named():
    model, _ = problem(20, 8)
    task = Task.of(Regression(model.X, model.y, np.zeros(8, int)))
    here = Hyperparameters(2 * task.scale, 1e-6 * task.slab_scale, np.array([-np.log(80.0)]))
    free = Hyperparameters(False, False, False)
    assert on_bounds(task, here, free) == [
        ("noise variance", "upper bound"),
        ("slab variance", "lower bound"),
        ("prior inclusion", "lower bound"),
    ]
    some = Hyperparameters(True, False, True)
    assert on_bounds(task, here, some) == [("slab variance", "lower bound")]
