import numpy as np
import pytest
from populations import population

from fastmf.inference.sampling.spins import sample
from fastmf.learning.pseudo_likelihood.binary import starts as module
from fastmf.learning.pseudo_likelihood.binary.distinct_rows import distinct_rows
from fastmf.learning.pseudo_likelihood.binary.objective import PseudoLikelihood
from fastmf.learning.pseudo_likelihood.binary.solvers import bslm
from fastmf.learning.pseudo_likelihood.binary.starts import starting_point
from fastmf.learning.pseudo_likelihood.newton import newton
from fastmf.models import BoltzmannMachine
from fastmf.priors import Ising


@pytest.mark.parametrize("l2", [0.0, 1e-3])
def test_the_maximum_of_the_quadratic_minorant(l2):
    """Strongly coupled units, where Newton's own first step is much too long."""
    objective, _ = population(10, seed=5, scale=1.0, l2=l2)
    independent, start = (starting_point(objective, how) for how in ("independent", "minorant"))
    value, gradient = objective.value_and_gradient(independent)
    field = independent[:10]
    hessian = objective.common_hessian(np.tanh(field) / field)
    np.testing.assert_allclose(hessian @ (start - independent), gradient, atol=1e-5)
    predicted = gradient @ (start - independent) / 2
    assert predicted > 0.1
    assert objective.value_and_gradient(start)[0] >= value + predicted
    # With sech^2 of the fields it is the Hessian where units are uncoupled.
    exact = objective.common_hessian(1 / np.cosh(field) ** 2)
    np.testing.assert_allclose(exact, objective.hessian(independent), atol=1e-12)
    fits = [newton(objective, point) for point in (independent, start)]
    assert len(fits[1].history) < len(fits[0].history)
    np.testing.assert_allclose(fits[0].parameters, fits[1].parameters, atol=1e-8)


@pytest.mark.parametrize("l2", [0.0, 0.05])
@pytest.mark.parametrize("dependent", [False, True])
def test_the_minorant_of_many_units_without_its_matrix(l2, dependent, monkeypatch):
    """Conjugate gradients predict the rise that the solution of the equations predicts."""
    rng = np.random.default_rng(3)
    common = rng.normal(size=(400, 1))
    states = np.where(rng.normal(size=(400, 12)) + 2 * common > 0.5, 1.0, -1.0)
    if dependent:
        states[:, 4], states[:, 7] = states[:, 1], 1.0
    objective = PseudoLikelihood(distinct_rows(states), l2)
    independent = starting_point(objective, "independent")
    gradient = objective.value_and_gradient(independent)[1]
    field = independent[:12]
    hessian = objective.common_hessian(np.tanh(field) / field)

    def predicted(start):
        step = start - independent
        return gradient @ step - step @ hessian @ step / 2

    expected = predicted(independent + np.linalg.lstsq(hessian, gradient, rcond=1e-10)[0])
    assert expected > 0.05
    monkeypatch.setattr(module, "_MAX_FACTORISED_PARAMETERS", 0)
    found = starting_point(objective, "minorant")
    assert predicted(found) == pytest.approx(expected, rel=1e-3)
    rise = objective.value_and_gradient(found)[0] - objective.value_and_gradient(independent)[0]
    assert rise >= predicted(found) > 0


def test_the_minorant_of_more_units_than_matrices_are_made_for(monkeypatch):
    rng = np.random.default_rng(4)
    states = np.where(rng.normal(size=(500, 150)) + rng.normal(size=(500, 1)) > 0, 1.0, -1.0)
    objective = PseudoLikelihood(distinct_rows(states))

    def no_matrix(*_):
        raise MemoryError

    monkeypatch.setattr(PseudoLikelihood, "common_hessian", no_matrix)
    starts = (starting_point(objective, how) for how in ("independent", "minorant"))
    values = [objective.value_and_gradient(start)[0] for start in starts]
    assert values[1] > values[0] + 1


@pytest.mark.parametrize("d", [5, 10, 15])
def test_bslm_from_the_minorant_is_not_behind_bslm_from_zero(d):
    """Nguyen & Wood's design, couplings and fields of variance 0.5; mean-field starts saturate."""
    for seed in range(3):
        rng = np.random.default_rng([d, seed])
        J = np.triu(np.sqrt(0.5) * rng.normal(size=(d, d)), 1)
        model = BoltzmannMachine(J + J.T, Ising(np.sqrt(0.5) * rng.normal(size=d)))
        objective = PseudoLikelihood(distinct_rows(sample(model, 2000, rng)))
        start = starting_point(objective, "minorant")
        ours, zero = bslm(objective, [start, 0 * start], max_iter=30)
        assert ours.history[-1] > zero.history[-1]
        assert ours.history[9] > zero.history[9]
        before = objective.total * objective.value_and_gradient(start)[0]
        assert (np.diff([before, *ours.history]) > -1e-11 * abs(before)).all()


@pytest.mark.parametrize("factor", [2.0**-40, 2.0**40])
@pytest.mark.parametrize("how", ["independent", "minorant", "naive_mean_field", "tap", "auto"])
def test_starts_do_not_depend_on_what_weights_add_up_to(how, factor):
    rng = np.random.default_rng(7)
    states, weights = np.where(rng.random((200, 6)) < 0.4, 1.0, -1.0), rng.random(200)
    states[:, 2] = 1
    objectives = [PseudoLikelihood(distinct_rows(states, c * weights)) for c in (1, factor)]
    first, second = (starting_point(objective, how) for objective in objectives)
    np.testing.assert_array_equal(first, second)
    assert np.isfinite(first).all()
    # With the weight of all rows, half a row of each value is Firth's penalty of single units.
    field = starting_point(objectives[0], "independent", objectives[0].total)[:6]
    total = weights.sum()
    np.testing.assert_allclose(np.tanh(field), objectives[0].mean * total / (total + 1))
