import numpy as np
import pytest
import scipy
from populations import population
from separated_units import features

from fastmf.learning.pseudo_likelihood.binary.firth import firth, penalty
from fastmf.learning.pseudo_likelihood.binary.objective import PseudoLikelihood


@pytest.mark.parametrize("ones", [0, 3, 10])
def test_firth_for_one_unit_adds_half_a_row_of_each_value(ones):
    states = np.where(np.arange(10) < ones, 1.0, -1.0)[:, None]
    objective = PseudoLikelihood(states)
    fit = firth(objective, np.zeros(1), tol=1e-8)
    assert fit.stopped
    assert np.tanh(fit.parameters[0]) == pytest.approx((2 * ones - 10) / 11, abs=1e-9)


def test_the_gradient_of_the_firth_penalty():
    objective, truth = population(d=3)
    numeric = [
        (penalty(objective, truth + e)[0] - penalty(objective, truth - e)[0]) / 2e-5
        for e in 1e-5 * np.eye(len(truth))
    ]
    np.testing.assert_allclose(penalty(objective, truth)[1], numeric, atol=1e-9)


def maximum(states, weights):
    """Maximum of the penalised log-pseudo-likelihood by SciPy, and its value."""
    Z = features(states) * states[:, :, None]  # derivatives of eta, not of margins

    def loss(parameters):
        eta = Z @ parameters
        value = weights @ (states * eta - np.logaddexp(eta, -eta)).sum(1)
        weighted = weights[:, None] / np.cosh(eta) ** 2
        H = np.einsum("ij,ijp,ijq->pq", weighted, Z, Z)
        sign, log_det = np.linalg.slogdet(H)
        if sign <= 0:
            return 1e10, np.zeros(len(parameters))
        leverages = np.einsum("ijp,pq,ijq->ij", Z, np.linalg.inv(H), Z)
        terms = weights[:, None] * (states - np.tanh(eta)) - weighted * np.tanh(eta) * leverages
        return -(value + log_det / 2), -np.einsum("ij,ijp->p", terms, Z)

    start = np.zeros(Z.shape[2])
    return scipy.optimize.minimize(loss, start, jac=True, options={"gtol": 1e-8}).x


@pytest.mark.parametrize("scale", [1e-4, 1.0, 50.0])
@pytest.mark.parametrize("n, d, ones", [(25, 4, 0.8), (40, 6, 0.1), (60, 8, 0.2)])
def test_the_maximum_is_that_of_a_general_optimiser(n, d, ones, scale):
    rng = np.random.default_rng(4)
    states = np.where(rng.random((n, d)) < ones, 1.0, -1.0)
    objective = PseudoLikelihood(states, scale * rng.integers(1, 4, n))
    fit = firth(objective, objective.independent(objective.total))
    assert fit.stopped and (np.diff(fit.history) > -1e-9).all()
    expected = maximum(objective.states, objective.weights * objective.total)
    np.testing.assert_allclose(fit.parameters, expected, atol=1e-5)


@pytest.mark.parametrize("n, d, ones", [(150, 40, 0.1), (300, 40, 0.05)])
def test_separated_units_take_few_steps(n, d, ones):
    """Scoring alone needs more than 100 steps, most of them with many halvings."""
    states = np.where(np.random.default_rng(0).random((n, d)) < ones, 1.0, -1.0)
    objective = PseudoLikelihood(states)
    fit = firth(objective, objective.independent())
    assert fit.stopped and len(fit.history) < 60
    gradient = objective.value_and_gradient(fit.parameters)[1]
    np.testing.assert_allclose(-penalty(objective, fit.parameters)[1], gradient, atol=1e-7)


def test_a_start_where_units_are_certain_is_no_answer():
    """So far out the Hessian is zero in double precision, and its inverse overflows."""
    objective = PseudoLikelihood(np.where(np.eye(4) > 0, 1.0, -1.0)[:, :3])
    for size in (20.0, 180.0, 1e4):
        fit = firth(objective, np.full(objective.n_parameters, size))
        assert np.isfinite(fit.parameters).all() and np.isfinite(fit.history).all()
        assert not fit.stopped or abs(fit.parameters).max() < 10
