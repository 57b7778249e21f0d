import numpy as np
import pytest

from fastmf.inference.sampling.spins import all_states, probabilities, sample
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


@pytest.mark.parametrize("l2", [0.0, 0.05])
@pytest.mark.parametrize("dependent", [False, True])
def test_the_minorant_of_many_units_without_its_matrix(l2, dependent, monkeypatch):
    """By conjugate gradients it promises what the solution of the equations promises."""
    rng = np.random.default_rng(3)
    common = rng.normal(size=(400, 1))
    states = np.where(rng.normal(size=(400, 12)) + 2 * common > 0.5, 1.0, -1.0)
    if dependent:
        states[:, 4], states[:, 7] = states[:, 1], 1.0
    objective = PseudoLikelihood(merged(states), l2)
    independent = solvers.starting_point(objective, "independent")
    slope = objective.value_and_gradient(independent)[1]
    field = independent[:12]
    hessian = objective.common_hessian(np.tanh(field) / field)

    def promised(start):
        step = start - independent
        return slope @ step - step @ hessian @ step / 2

    expected = promised(independent + np.linalg.lstsq(hessian, slope, rcond=1e-10)[0])
    assert expected > 0.05
    monkeypatch.setattr(solvers, "_DIRECT", 0)
    found = solvers.starting_point(objective, "minorant")
    assert promised(found) == pytest.approx(expected, rel=1e-3)
    rise = objective.value_and_gradient(found)[0] - objective.value_and_gradient(independent)[0]
    assert rise >= promised(found) > 0


def test_the_minorant_of_more_units_than_matrices_are_made_for(monkeypatch):
    rng = np.random.default_rng(4)
    states = np.where(rng.normal(size=(500, 150)) + rng.normal(size=(500, 1)) > 0, 1.0, -1.0)
    objective = PseudoLikelihood(merged(states))

    def no_matrix(*_):
        raise MemoryError

    monkeypatch.setattr(PseudoLikelihood, "common_hessian", no_matrix)
    starts = (solvers.starting_point(objective, how) for how in ("independent", "minorant"))
    values = [objective.value_and_gradient(start)[0] for start in starts]
    assert values[1] > values[0] + 1


@pytest.mark.parametrize("d", [5, 10, 15])
def test_bslm_from_the_minorant_is_not_behind_bslm_from_zero(d):
    """Nguyen & Wood's design, couplings and fields of variance 0.5; mean-field starts saturate."""
    for seed in range(3):
        rng = np.random.default_rng([d, seed])
        J = np.triu(np.sqrt(0.5) * rng.normal(size=(d, d)), 1)
        model = BoltzmannMachine(J + J.T, Ising(np.sqrt(0.5) * rng.normal(size=d)))
        objective = PseudoLikelihood(merged(sample(model, 2000, rng)))
        start = solvers.starting_point(objective, "minorant")
        ours, zero = solvers.bslm(objective, [start, 0 * start], max_iter=30)
        assert ours.history[-1] > zero.history[-1]
        assert ours.history[9] > zero.history[9]
        before = objective.total * objective.value_and_gradient(start)[0]
        assert (np.diff([before, *ours.history]) > -1e-11 * abs(before)).all()


SOLVERS = {
    "bslm": lambda objective, start, **options: solvers.bslm(objective, [start], **options)[0],
    "gradient": solvers.gradient,
    "newton": solvers.newton,
    "firth": lambda *args, **options: solvers.newton(*args, firth=True, **options),
    "lbfgs": solvers.lbfgs,
    "lbfgs, l1": lambda *args, **options: solvers.lbfgs(*args, l1=0.01, **options),
    "bslm, l1": lambda objective, start, **options: solvers.bslm(
        objective, [start], l1=0.01, **options
    )[0],
}


@pytest.mark.parametrize("tol", [1e-5, 1e-12, 0.0])
@pytest.mark.parametrize("l2", [0.0, 0.1])
@pytest.mark.parametrize("solver", SOLVERS)
def test_a_start_at_the_maximum_stops_at_once(solver, l2, tol):
    """All states equally often: zero is the maximum, where derivatives are exactly zero."""
    for d in (1, 2, 3):
        objective = PseudoLikelihood(merged(all_states(d), np.full(2**d, 3.0)), l2)
        fit = SOLVERS[solver](objective, np.zeros(objective.n_parameters), tol=tol, max_iter=1)
        assert fit.stopped and len(fit.history) == 1
        assert (fit.parameters == 0).all()
        if solver != "firth":
            assert fit.history[0] == pytest.approx(-3 * d * 2**d * np.log(2))


@pytest.mark.parametrize("total", [1.0, 1e12])
@pytest.mark.parametrize("solver", ["newton", "lbfgs", "lbfgs, l1"])
def test_rounding_errors_count_as_a_maximum(solver, total):
    """No tolerance that rounding does not permit keeps a solver from its end."""
    rng = np.random.default_rng(0)
    states = np.where(rng.random((300, 8)) + rng.random((300, 1)) > 0.8, 1.0, -1.0)
    objective = PseudoLikelihood(merged(states, np.full(300, total / 300)))
    start = solvers.starting_point(objective, "minorant")
    fit = SOLVERS[solver](objective, start, tol=0.0)
    assert fit.stopped and len(fit.history) < 60
    again = SOLVERS[solver](objective, fit.parameters, tol=0.0)
    assert again.stopped and 1 <= len(again.history) < 10
    np.testing.assert_allclose(again.parameters, fit.parameters, atol=1e-6)


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
