"""Newton's method with conjugate gradients."""

import numpy as np
import pytest
from potts_data import random_rows

from fastmf.learning.pseudo_likelihood.potts import newton
from fastmf.learning.pseudo_likelihood.potts.objective import PottsData, SymmetricObjective


@pytest.mark.parametrize("l2", [0.1, 0.0])
def test_the_gradient_vanishes_at_the_minimum(l2):
    sizes = np.array([3, 4, 2])
    data = PottsData(*random_rows(sizes, 400), sizes)
    objective = SymmetricObjective(data, l2, l2, np.float64)
    z = objective.start(np.zeros(sizes.sum()))
    found = newton.minimise(objective, z, tol=1e-20, max_iter=50)
    assert found.converged and len(found.history) < 15
    objective(z, gradient := np.empty_like(z))
    assert abs(gradient).max() < 1e-8


def test_the_limit_of_iterations():
    sizes = np.array([3, 3])
    data = PottsData(*random_rows(sizes), sizes)
    objective = SymmetricObjective(data, 0.1, 0.1, np.float64)
    found = newton.minimise(objective, objective.start(np.zeros(6)), tol=0, max_iter=1)
    assert not found.converged and len(found.history) == 1
