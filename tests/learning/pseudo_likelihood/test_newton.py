import numpy as np
import pytest
from populations import population
from potts_data import random_rows

from fastmf.learning.pseudo_likelihood.binary.objective import PseudoLikelihood
from fastmf.learning.pseudo_likelihood.newton import newton
from fastmf.learning.pseudo_likelihood.potts.dense import DenseObjective


def test_newton_finds_the_machine_that_made_the_data():
    objective, truth = population()
    fit = newton(objective, objective.independent())
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
    objective = PseudoLikelihood(np.array([[1.0], [-1.0]]), np.array([1e8, 1.0]))
    fit = newton(objective, np.zeros(1))
    assert fit.stopped and len(fit.history) < 18
    assert fit.parameters[0] == pytest.approx(np.log(1e8) / 2)


@pytest.mark.parametrize("l2", [0.1, 0.0])
def test_the_gradient_vanishes_where_the_hessian_is_singular(l2):
    """Changes of gauge leave the value as it is; the ridge along them does not move the maximum."""
    sizes = np.array([3, 4, 2])
    objective = DenseObjective(*random_rows(sizes, 400), sizes, l2, l2)
    fit = newton(objective, objective.independent())
    assert fit.stopped and len(fit.history) < 15
    assert abs(objective.value_and_gradient(fit.parameters)[1]).max() < 1e-9
