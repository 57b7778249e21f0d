import numpy as np
import pytest
from kernel_cases.regression import problem
from scipy.special import logsumexp

import fastmf as mf
from fastmf.learning.evidence import Hyperparameters, Regression, Task
from fastmf.learning.evidence.parameter_priors import ParameterPriors
from fastmf.learning.evidence.search import averaged_points, maximise_evidence


@pytest.fixture(scope="module")
def task():
    model, _ = problem(40, 20, noise=1.0, inclusion_probability=0.1)
    return Task.of(Regression(model.X, model.y, np.zeros(20, int)))


def averages(task, fixed, start):
    priors = ParameterPriors.of(task)
    best = maximise_evidence(task, start, fixed, priors=priors)
    return averaged_points(task, best, fixed, priors=priors)


def test_against_a_fine_grid_of_all_parameters(task):
    """Means over a regular grid in three dimensions, the noise among them."""
    start, fixed = Hyperparameters(0.5, 0.5, np.array([-2.0])), Hyperparameters(False, False, False)
    points, weights = averages(task, fixed, start)
    assert weights.sum() == pytest.approx(1) and 5 < len(points) < 100
    priors, best, densities, means = ParameterPriors.of(task), points[0].hyperparameters, [], []
    for odds in best.log_odds + np.linspace(-4, 4, 9):
        for slab in np.exp(np.linspace(-4, 4, 9)):
            for noise in np.exp(np.linspace(-0.8, 0.8, 7)):
                here = Hyperparameters(
                    best.noise_variance * noise, best.slab_variance * slab, np.array([odds])
                )
                found = mf.expectation_propagation(
                    task.parts[0].model(here), schedule="auto", tol=1e-4
                )
                prior, _ = priors.log_density(here, np.ones(3, bool))
                densities.append(found.log_evidence + prior)
                means.append(found.mean)
    fine = np.exp(np.array(densities) - logsumexp(densities)) @ np.array(means)
    ours = weights @ np.array([point.results[0].mean for point in points])
    np.testing.assert_allclose(ours, fine, atol=0.01)
    # At the maximum alone they are further away.
    assert abs(points[0].results[0].mean - fine).max() > 2 * abs(ours - fine).max()


def test_what_is_given_does_not_vary(task):
    start = Hyperparameters(0.5, 0.5, np.array([-2.0]))
    points, _ = averages(task, Hyperparameters(True, False, True), start)
    assert {p.hyperparameters.noise_variance for p in points} == {0.5}
    assert {float(p.hyperparameters.log_odds[0]) for p in points} == {-2.0}
    assert len({p.hyperparameters.slab_variance for p in points}) == len(points) > 2
