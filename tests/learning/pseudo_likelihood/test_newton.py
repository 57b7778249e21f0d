import numpy as np
import pytest
from populations import population
from potts_data import random_rows

from fastmf.learning.pseudo_likelihood.binary.distinct_rows import WeightedRows
from fastmf.learning.pseudo_likelihood.binary.objective import PseudoLikelihood
from fastmf.learning.pseudo_likelihood.binary.starts import starting_point
from fastmf.learning.pseudo_likelihood.newton import minimise, newton
from fastmf.learning.pseudo_likelihood.potts.objective import PottsData, SymmetricObjective


@pytest.mark.parametrize("start", ["independent", "minorant", "naive_mean_field", "tap"])
def test_newton_finds_the_machine_that_made_the_data(start):
    objective, truth = population()
    fit = newton(objective, starting_point(objective, start))
    assert fit.stopped and len(fit.history) < 12
    np.testing.assert_allclose(fit.parameters, truth, atol=1e-12)
    assert abs(objective.value_and_gradient(fit.parameters)[1]).max() < 1e-13


def test_newton_from_a_saturated_start():
    objective, truth = population(d=4)
    fit = newton(objective, truth + 30)
    assert fit.stopped
    np.testing.assert_allclose(fit.parameters, truth, atol=1e-10)


def test_steps_towards_saturation_are_doubled():
    """Newton's own steps each take about one off |2 eta|, of which there are eighteen."""
    objective = PseudoLikelihood(WeightedRows(np.array([[1.0], [-1.0]]), np.array([1e8, 1.0])))
    fit = newton(objective, np.zeros(1))
    assert fit.stopped and len(fit.history) < 18
    assert fit.parameters[0] == pytest.approx(np.log(1e8) / 2)


@pytest.mark.parametrize("l2", [0.1, 0.0])
def test_the_gradient_vanishes_at_the_minimum(l2):
    sizes = np.array([3, 4, 2])
    data = PottsData(*random_rows(sizes, 400), sizes)
    objective = SymmetricObjective(data, l2, l2, np.float64)
    z = objective.start(np.zeros(sizes.sum()))
    found = minimise(objective, z, tol=1e-20, max_iter=50)
    assert found.converged and len(found.history) < 15
    objective(z, gradient := np.empty_like(z))
    assert abs(gradient).max() < 1e-8


def test_the_limit_of_iterations():
    sizes = np.array([3, 3])
    data = PottsData(*random_rows(sizes), sizes)
    objective = SymmetricObjective(data, 0.1, 0.1, np.float64)
    found = minimise(objective, objective.start(np.zeros(6)), tol=0, max_iter=1)
    assert not found.converged and len(found.history) == 1
