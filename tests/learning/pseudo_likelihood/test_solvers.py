import numpy as np
import pytest

from fastmf.inference.sampling.spins import all_states, probabilities
from fastmf.learning.pseudo_likelihood import solvers
from fastmf.learning.pseudo_likelihood.distinct_rows import Rows, merged
from fastmf.learning.pseudo_likelihood.objective import PseudoLikelihood
from fastmf.models import BoltzmannMachine
from fastmf.priors import Ising


def population(d=5, seed=0, scale=0.5, l2=0.0):
    """All states, weighted by a machine: the maximum is the machine itself (Hyvarinen 2006)."""
    rng = np.random.default_rng(seed)
    J = np.triu(scale * rng.normal(size=(d, d)), 1)
    model = BoltzmannMachine(J + J.T, Ising(scale * rng.normal(size=d)))
    objective = PseudoLikelihood(Rows(all_states(d), 1000 * probabilities(model)), l2)
    return objective, objective.packed(model.couplings, model.prior.field)


@pytest.mark.parametrize("start", ["independent", "minorant", "naive_mean_field", "tap"])
def test_newton_finds_the_machine_that_made_the_data(start):
    objective, truth = population()
    fit = solvers.newton(objective, solvers.starting_point(objective, start))
    assert fit.stopped and len(fit.history) < 12
    np.testing.assert_allclose(fit.parameters, truth, atol=1e-12)
    assert abs(objective.value_and_gradient(fit.parameters)[1]).max() < 1e-13


@pytest.mark.parametrize("solver", ["bslm", "gradient", "lbfgs"])
def test_first_order_solvers_find_it_too(solver):
    objective, truth = population()
    start = solvers.starting_point(objective, "independent")
    if solver == "bslm":
        (fit,) = solvers.bslm(objective, [start], tol=1e-10)
    else:
        fit = getattr(solvers, solver)(objective, start, tol=1e-10)
    assert fit.stopped
    np.testing.assert_allclose(fit.parameters, truth, atol=1e-5)


@pytest.mark.parametrize("solver", ["bslm", "gradient"])
@pytest.mark.parametrize("step", [0.3, 1.0, 1.9])
@pytest.mark.parametrize("separated", [False, True])
def test_the_log_pseudo_likelihood_never_decreases(solver, step, separated):
    rng = np.random.default_rng(1)
    states = np.where(rng.random((80, 6)) < 0.5, 1.0, -1.0)
    if separated:
        states[:, 2] = states[:, 4]
    objective = PseudoLikelihood(merged(states))
    start = 2 * rng.normal(size=objective.n_parameters)
    before = objective.total * objective.value_and_gradient(start)[0]
    if solver == "bslm":
        (fit,) = solvers.bslm(objective, [start], step=step, max_iter=300)
    else:
        fit = solvers.gradient(objective, start, step=step, max_iter=300)
    history = np.array([before, *fit.history])
    assert (np.diff(history) > -1e-11 * abs(history[1:])).all()
    assert history[-1] > before + 1


@pytest.mark.parametrize("l2", [0.0, 1e-3])
def test_the_maximum_of_the_quadratic_minorant(l2):
    """Strongly coupled units, where Newton's own first step goes much too far."""
    objective, _ = population(10, seed=5, scale=1.0, l2=l2)
    independent, start = (
        solvers.starting_point(objective, how) for how in ("independent", "minorant")
    )
    value, slope = objective.value_and_gradient(independent)
    field = independent[:10]
    hessian = objective.common_hessian(np.tanh(field) / field)
    np.testing.assert_allclose(hessian @ (start - independent), slope, atol=1e-5)
    promised = slope @ (start - independent) / 2
    assert promised > 0.1
    assert objective.value_and_gradient(start)[0] >= value + promised
    # With the slopes of tanh itself it is the Hessian where units are uncoupled.
    slopes = objective.common_hessian(1 / np.cosh(field) ** 2)
    np.testing.assert_allclose(slopes, objective.hessian(independent), atol=1e-12)
    fits = [solvers.newton(objective, point) for point in (independent, start)]
    assert len(fits[1].history) < len(fits[0].history)
    np.testing.assert_allclose(fits[0].parameters, fits[1].parameters, atol=1e-8)


def test_bslm_from_several_starts_ends_in_one_point():
    objective, truth = population()
    rng = np.random.default_rng(2)
    fits = solvers.bslm(objective, list(rng.normal(size=(3, len(truth)))), tol=1e-11)
    for fit in fits:
        np.testing.assert_allclose(fit.parameters, truth, atol=1e-5)
    assert len({len(fit.history) for fit in fits}) > 1


def test_a_larger_step_saves_sweeps():
    objective, truth = population(d=6, scale=0.7)
    fits = [solvers.bslm(objective, [0 * truth], step=step, tol=1e-8)[0] for step in (1.0, 1.9)]
    assert len(fits[1].history) < 0.7 * len(fits[0].history)


def test_ridge_and_lasso_satisfy_their_optimality_conditions():
    objective, _ = population(d=6, l2=0.02)
    l1, d = 0.08, objective.n_units
    start = solvers.starting_point(objective, "auto")
    fits = [
        *solvers.bslm(objective, [start], l1=l1, tol=1e-12),
        solvers.lbfgs(objective, start, l1=l1, tol=1e-12),
    ]
    for fit in fits:
        slope = objective.value_and_gradient(fit.parameters)[1]
        couplings = fit.parameters[d:]
        np.testing.assert_allclose(slope[:d], 0, atol=1e-6)
        zero = couplings == 0
        assert 0 < zero.sum() < len(couplings)
        assert (abs(slope[d:][zero]) <= l1 + 1e-6).all()
        np.testing.assert_allclose(slope[d:][~zero], l1 * np.sign(couplings[~zero]), atol=1e-6)
    np.testing.assert_allclose(fits[0].parameters, fits[1].parameters, atol=1e-5)


@pytest.mark.parametrize("ones", [0, 3, 10])
def test_firth_for_one_unit_adds_half_a_row_of_each_value(ones):
    states = np.where(np.arange(10) < ones, 1.0, -1.0)[:, None]
    objective = PseudoLikelihood(merged(states))
    fit = solvers.newton(objective, np.zeros(1), firth=True, tol=1e-8)
    assert fit.stopped
    assert np.tanh(fit.parameters[0]) == pytest.approx((2 * ones - 10) / 11, abs=1e-9)


def test_the_gradient_of_the_firth_penalty():
    objective, truth = population(d=3)
    numeric = [
        (solvers._firth(objective, truth + e)[0] - solvers._firth(objective, truth - e)[0]) / 2e-5
        for e in 1e-5 * np.eye(len(truth))
    ]
    np.testing.assert_allclose(solvers._firth(objective, truth)[1], numeric, atol=1e-9)


def test_newton_from_a_saturated_start():
    objective, truth = population(d=4)
    fit = solvers.newton(objective, truth + 30)
    assert fit.stopped
    np.testing.assert_allclose(fit.parameters, truth, atol=1e-10)


def test_out_of_iterations():
    objective, truth = population()
    (fit,) = solvers.bslm(objective, [0 * truth], max_iter=3)
    assert not fit.stopped and len(fit.history) == 3
    for solver in (solvers.gradient, solvers.newton, solvers.lbfgs):
        fit = solver(objective, truth + 1, max_iter=2, tol=1e-9)
        assert not fit.stopped and len(fit.history) == 2


def test_steps_towards_saturation_are_doubled():
    """Newton's own steps each take about one off |2 eta|, of which there are eighteen."""
    objective = PseudoLikelihood(Rows(np.array([[1.0], [-1.0]]), np.array([1e8, 1.0])))
    fit = solvers.newton(objective, np.zeros(1))
    assert fit.stopped and len(fit.history) < 18
    assert fit.parameters[0] == pytest.approx(np.log(1e8) / 2)
