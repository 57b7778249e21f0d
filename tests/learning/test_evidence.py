import numpy as np
import pytest
from kernel_cases.regression import problem

import fastmf as mf
from fastmf.learning.evidence import Hyperparameters, evidence_gradient, maximise_evidence


@pytest.mark.parametrize("shape", [(30, 12), (25, 90)])
def test_gradient_against_finite_differences(shape):
    model, _ = problem(*shape, seed=1, noise=0.3, share=3 / shape[1])
    groups = np.arange(shape[1]) % 2
    centre = np.array([np.log(0.1), np.log(0.8), -2.0, -3.0])

    def solve(x):
        found = Hyperparameters(np.exp(x[0]), np.exp(x[1]), x[2:]).model(model.X, model.y, groups)
        result = mf.expectation_propagation(found, tol=1e-11)
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
    model, _ = problem(200, 60, noise=0.5, share=0.3, slab=2.0)
    groups = np.zeros(60, int)
    start = Hyperparameters(1.0, 1.0, np.zeros(1))
    fixed = Hyperparameters(False, False, False)
    best = maximise_evidence(model.X, model.y, start, fixed, groups, tol=1e-9, max_iter=100)
    found = best.model(model.X, model.y, groups)
    result = mf.expectation_propagation(found, tol=1e-9)
    assert np.abs(np.hstack(evidence_gradient(found, result, groups, 1))).max() < 0.01
    assert abs(np.log(best.noise_variance / 0.25)) < 0.3
    assert abs(np.log(best.slab_variance / 2)) < 0.8
    assert abs(1 / (1 + np.exp(-best.log_odds[0])) - 0.3) < 0.15
