import numpy as np
import pytest
import scipy
from differences import differences
from populations import features, population

from fastmf.learning.pseudo_likelihood import fit as module
from fastmf.learning.pseudo_likelihood.binary import PseudoLikelihood, bslm, firth, penalty
from fastmf.learning.pseudo_likelihood.fit import lbfgs, newton


def test_partial_correlations_are_near_the_maximum():
    """The start is exact for two units without fields, and better than uncoupled units for more."""
    pair = PseudoLikelihood(
        np.array([[1.0, 1.0], [-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0]]), [3, 3, 1, 1]
    )
    np.testing.assert_allclose(pair.correlated(), [0, 0, np.log(3) / 2], atol=2e-3)
    objective, truth = population()
    ends = [newton(objective, start) for start in (objective.independent(), objective.correlated())]
    np.testing.assert_allclose([end.parameters for end in ends], [truth, truth], atol=1e-6)
    assert len(ends[1].history) < len(ends[0].history)


@pytest.mark.parametrize("separated", [False, True])
def test_the_log_pseudo_likelihood_never_decreases(separated):
    rng = np.random.default_rng(1)
    states = np.where(rng.random((80, 6)) < 0.5, 1.0, -1.0)
    if separated:
        states[:, 2] = states[:, 4]
    objective = PseudoLikelihood(states)
    start = 2 * rng.normal(size=objective.n_parameters)
    before = objective.total * objective.value_and_gradient(start)[0]
    (fit,) = bslm(objective, [start], max_iter=300)
    history = np.array([before, *fit.history])
    assert (np.diff(history) > -1e-11 * abs(history[1:])).all()
    assert history[-1] > before + 1


SOLVERS = {
    "bslm": lambda objective, start, **options: bslm(objective, [start], **options)[0],
    "newton": newton,
    "firth": firth,
    "lbfgs": lbfgs,
    "lbfgs, l1": lambda *args, **options: lbfgs(*args, l1=0.01, **options),
    "bslm, l1": lambda objective, start, **options: bslm(objective, [start], l1=0.01, **options)[0],
}


@pytest.mark.parametrize("total", [1.0, 1e12])
@pytest.mark.parametrize("solver", ["newton", "lbfgs", "lbfgs, l1"])
def test_rounding_errors_count_as_a_maximum(solver, total):
    """No tolerance that rounding does not permit keeps a solver from its end."""
    rng = np.random.default_rng(0)
    states = np.where(rng.random((300, 8)) + rng.random((300, 1)) > 0.8, 1.0, -1.0)
    objective = PseudoLikelihood(states, np.full(300, total / 300))
    start = objective.independent()
    fit = SOLVERS[solver](objective, start, tol=0.0)
    assert fit.stopped and len(fit.history) < 60
    again = SOLVERS[solver](objective, fit.parameters, tol=0.0)
    assert again.stopped and 1 <= len(again.history) < 10
    np.testing.assert_allclose(again.parameters, fit.parameters, atol=1e-6)


def test_ridge_and_lasso_satisfy_their_optimality_conditions():
    objective, _ = population(d=6, l2=0.02)
    l1, d = 0.08, objective.n_units
    start = objective.independent()
    fits = [*bslm(objective, [start], l1=l1, tol=1e-12), lbfgs(objective, start, l1=l1, tol=1e-12)]
    for fit in fits:
        gradient = objective.value_and_gradient(fit.parameters)[1]
        couplings = fit.parameters[d:]
        np.testing.assert_allclose(gradient[:d], 0, atol=1e-6)
        zero = couplings == 0
        assert 0 < zero.sum() < len(couplings)
        assert (abs(gradient[d:][zero]) <= l1 + 1e-6).all()
        np.testing.assert_allclose(gradient[d:][~zero], l1 * np.sign(couplings[~zero]), atol=1e-6)
    np.testing.assert_allclose(fits[0].parameters, fits[1].parameters, atol=1e-5)


@pytest.mark.parametrize("l2", [1e6, 1e10])
@pytest.mark.parametrize("solver", ["bslm", "newton", "lbfgs"])
def test_under_strong_penalties_parameters_are_the_first_gradient(solver, l2):
    """At zero, over the penalty: h = <x> / l2, J = 2 <x x'> / l2, but for terms in 1 / l2^2."""
    rng = np.random.default_rng(0)
    states = np.where(rng.random((300, 6)) < rng.uniform(0.1, 0.9, 6), 1.0, -1.0)
    states[:, 1] = np.where(rng.random(300) < 0.8, states[:, 0], -states[:, 0])
    pairs = np.triu_indices(6, 1)
    expected = np.append(states.mean(0), 2 * (states.T @ states / 300)[pairs])
    objective = PseudoLikelihood(states, l2=l2)
    fit = SOLVERS[solver](objective, objective.independent())
    np.testing.assert_allclose(l2 * fit.parameters, expected, rtol=0, atol=1e-3)


# --- firth ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("ones", [0, 3, 10])
def test_firth_for_one_unit_adds_half_a_row_of_each_value(ones):
    states = np.where(np.arange(10) < ones, 1.0, -1.0)[:, None]
    objective = PseudoLikelihood(states)
    fit = firth(objective, np.zeros(1), tol=1e-8)
    assert fit.stopped
    assert np.tanh(fit.parameters[0]) == pytest.approx((2 * ones - 10) / 11, abs=1e-9)


def test_the_gradient_of_the_firth_penalty():
    objective, truth = population(d=3)
    numeric = differences(lambda p: penalty(objective, p)[0], truth)
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
@pytest.mark.parametrize("n, d, ones", [(25, 4, 0.8), (40, 6, 0.1), (60, 7, 0.2)])
def test_the_maximum_is_that_of_a_general_optimiser(n, d, ones, scale):
    rng = np.random.default_rng(4)
    states = np.where(rng.random((n, d)) < ones, 1.0, -1.0)
    objective = PseudoLikelihood(states, scale * rng.integers(1, 4, n))
    fit = firth(objective, objective.independent(objective.total))
    assert fit.stopped and (np.diff(fit.history) > -1e-9).all()
    expected = maximum(objective.states, objective.weights * objective.total)
    np.testing.assert_allclose(fit.parameters, expected, atol=1e-5)


@pytest.mark.parametrize(
    "n, d, ones", [(150, 40, 0.1), pytest.param(300, 40, 0.05, marks=pytest.mark.slow)]
)
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


# --- objective ------------------------------------------------------------------------------------


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
    product = objective.hessian_product(parameters, np.arange(1.0, len(parameters) + 1))
    np.testing.assert_allclose(product, -numeric @ np.arange(1.0, len(parameters) + 1), atol=1e-7)


@pytest.mark.parametrize("size", [10.0, 1e3, 1e8])
def test_certain_units_are_finite(size):
    objective, parameters = problem()
    value, gradient = objective.value_and_gradient(size * parameters)
    assert np.isfinite(value) and np.isfinite(gradient).all()
    assert np.isfinite(objective.hessian(size * parameters)).all()
