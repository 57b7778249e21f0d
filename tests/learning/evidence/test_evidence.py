import numpy as np
import pytest
from kernel_cases.regression import problem

import fastmf as mf
from fastmf.learning.evidence import (
    Classification,
    Hyperparameters,
    Regression,
    evidence_gradient,
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
