import numpy as np
import pytest
from populations import population

from fastmf.learning.pseudo_likelihood.binary.firth import firth
from fastmf.learning.pseudo_likelihood.binary.objective import PseudoLikelihood
from fastmf.learning.pseudo_likelihood.binary.solvers import bslm
from fastmf.learning.pseudo_likelihood.lbfgs import lbfgs
from fastmf.learning.pseudo_likelihood.newton import newton


@pytest.mark.parametrize("solver", ["bslm", "lbfgs"])
def test_first_order_solvers_find_it_too(solver):
    objective, truth = population()
    fit = SOLVERS[solver](objective, objective.independent(), tol=1e-10)
    assert fit.stopped
    np.testing.assert_allclose(fit.parameters, truth, atol=1e-5)


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


def test_bslm_from_several_starts_ends_in_one_point():
    objective, truth = population()
    rng = np.random.default_rng(2)
    fits = bslm(objective, list(rng.normal(size=(3, len(truth)))), tol=1e-11)
    for fit in fits:
        np.testing.assert_allclose(fit.parameters, truth, atol=1e-5)
    assert len({len(fit.history) for fit in fits}) > 1


def test_ridge_and_lasso_satisfy_their_optimality_conditions():
    objective, _ = population(d=6, l2=0.02)
    l1, d = 0.08, objective.n_units
    start = objective.independent()
    fits = [
        *bslm(objective, [start], l1=l1, tol=1e-12),
        lbfgs(objective, start, l1=l1, tol=1e-12),
    ]
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
