import numpy as np
import pytest

from fastmf.learning.pseudo_likelihood.binary import objective as module
from fastmf.learning.pseudo_likelihood.binary.objective import PseudoLikelihood
from fastmf.learning.pseudo_likelihood.newton import newton


def problem(d=5, n=200, l2=0.0, seed=0):
    rng = np.random.default_rng(seed)
    states = np.where(rng.random((n, d)) < 0.4, -1.0, 1.0)
    objective = PseudoLikelihood(states, rng.random(n), l2)
    return objective, rng.normal(size=objective.n_parameters) / 2


def by_definition(objective, parameters):
    """Equation 2.1 of the paper, term by term."""
    J, h = objective.unpacked(parameters)
    total = 0.0
    for x, weight in zip(objective.states, objective.weights, strict=True):
        for j in range(len(h)):
            eta = sum(J[j, k] * x[k] for k in range(len(h))) + h[j]
            total += weight * (x[j] * eta - np.log(np.cosh(eta)) - np.log(2))
    return total - objective.l2 / 2 * (parameters**2).sum()


def differences(function, x, step=1e-5):
    return np.array(
        [(function(x + e) - function(x - e)) / (2 * step) for e in step * np.eye(len(x))]
    )


@pytest.mark.parametrize("l2", [0.0, 0.3])
def test_value_and_derivatives(l2, monkeypatch):
    objective, parameters = problem(l2=l2)
    monkeypatch.setattr(module, "BLOCK_NUMBERS", 100)  # several blocks of rows
    value, gradient = objective.value_and_gradient(parameters)
    assert value == pytest.approx(by_definition(objective, parameters), rel=1e-13)
    numeric = differences(lambda p: objective.value_and_gradient(p)[0], parameters)
    np.testing.assert_allclose(gradient, numeric, atol=1e-9)
    numeric = differences(lambda p: objective.value_and_gradient(p)[1], parameters)
    np.testing.assert_allclose(-objective.hessian(parameters), numeric, atol=1e-9)


def test_scores_and_leverages_against_single_rows():
    objective, parameters = problem(d=4, n=30)
    rng = np.random.default_rng(5)
    inverse = rng.normal(size=2 * (objective.n_parameters,))
    leverages = objective.leverages(inverse)
    expected = np.zeros_like(inverse)
    mean_score = objective.value_and_gradient(parameters)[1]
    for i, x in enumerate(objective.states):
        alone = PseudoLikelihood(x[None])
        score = alone.value_and_gradient(parameters)[1]
        expected += objective.weights[i] * np.outer(score - mean_score, score - mean_score)
        eta = lambda p, x=x: x @ objective.unpacked(p)[0] + objective.unpacked(p)[1]  # noqa: E731
        features = np.array([eta(e) for e in np.eye(len(parameters))]).T
        for j in range(4):
            assert leverages[i, j] == pytest.approx(features[j] @ inverse @ features[j])
    np.testing.assert_allclose(objective.score_covariance(parameters), expected, atol=1e-13)


def test_score_covariance_of_a_penalised_maximum():
    """With a ridge scores do not vanish in the mean at the maximum."""
    objective, _ = problem(d=4, n=30, l2=0.3)
    parameters = newton(objective, np.zeros(objective.n_parameters)).parameters
    one_by_one = [PseudoLikelihood(x[None]) for x in objective.states]
    scores = np.array([alone.value_and_gradient(parameters)[1] for alone in one_by_one])
    np.testing.assert_allclose(objective.weights @ scores, 0.3 * parameters, atol=1e-12)
    expected = np.cov(scores.T, aweights=objective.weights, ddof=0)
    np.testing.assert_allclose(objective.score_covariance(parameters), expected, atol=1e-13)
    along = objective.score_variances(parameters, np.eye(len(parameters)))
    np.testing.assert_allclose(along, expected.diagonal(), atol=1e-13)


@pytest.mark.parametrize("size", [10.0, 1e3, 1e8])
def test_certain_units_are_finite(size):
    objective, parameters = problem()
    value, gradient = objective.value_and_gradient(size * parameters)
    assert np.isfinite(value) and np.isfinite(gradient).all()
    assert np.isfinite(objective.hessian(size * parameters)).all()
