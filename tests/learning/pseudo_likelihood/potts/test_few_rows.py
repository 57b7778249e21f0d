"""Potts machines in the memory of their rows."""

import numpy as np
import pytest
from potts_data import derivative, penalised, random_rows

from fastmf.learning.pseudo_likelihood.potts.couplings import OfFewRows
from fastmf.learning.pseudo_likelihood.potts.few_rows import FewRows
from fastmf.learning.pseudo_likelihood.potts.fitting import Options, fit
from fastmf.learning.pseudo_likelihood.potts.objective import PottsData

SIZES = np.array([3, 4, 2, 5, 3, 6])
L2, L2_FIELD = 0.2, 0.05


def test_gradient_is_the_derivative():
    data = PottsData(*random_rows(SIZES, 12, missing=0.2), SIZES)
    objective = FewRows(data, L2, L2_FIELD)
    rng = np.random.default_rng(0)
    z, direction = rng.normal(size=(2, objective.size))
    objective(z, gradient := np.empty_like(z))
    found = derivative(lambda z: objective(z, np.empty_like(z)), z, direction)
    assert gradient @ direction == pytest.approx(found, rel=1e-7)


def test_value_is_that_of_the_couplings():
    rows = random_rows(SIZES, 12, missing=0.2)
    data = PottsData(*rows, SIZES)
    objective = FewRows(data, L2, L2_FIELD)
    z = np.random.default_rng(0).normal(size=objective.size)
    A, h = objective.parameters(z)
    J = OfFewRows(A, data.labels, SIZES).dense()
    value = objective(z, np.empty_like(z))
    assert -value == pytest.approx(penalised(J, h, rows, SIZES, L2, L2_FIELD), rel=1e-12)


@pytest.mark.parametrize("l2", [1e-4, 10.0])
def test_fits_take_few_iterations_under_weak_and_strong_penalties(l2):
    """52 and 8; with a curvature for each eigenvector 193 under the weak one."""
    labels = np.random.default_rng(0).integers(0, 21, (40, 60))
    sizes = np.full(60, 21)
    found = fit(PottsData(labels, np.ones(40), sizes), Options(l2, l2))
    assert found.stopped
    assert len(found.history) < 100
