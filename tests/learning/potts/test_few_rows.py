"""Potts machines in the memory of their rows."""

import numpy as np
import pytest
from potts_data import derivative, penalised, random_rows

from fastmf.learning.potts.couplings import OfFewRows
from fastmf.learning.potts.few_rows import FewRows, kernel_of
from fastmf.learning.potts.objective import PottsData

SIZES = np.array([3, 4, 2, 5, 3, 6])
L2, L2_FIELD = 0.2, 0.05


@pytest.mark.parametrize("symmetric", [True, False])
def test_gradient_is_the_derivative(symmetric):
    data = PottsData(*random_rows(SIZES, 12, missing=0.2), SIZES)
    objective = FewRows(data, L2, L2_FIELD, symmetric)
    rng = np.random.default_rng(0)
    z, direction = rng.normal(size=(2, objective.size))
    objective(z, gradient := np.empty_like(z))
    found = derivative(lambda z: objective(z, np.empty_like(z)), z, direction)
    assert gradient @ direction == pytest.approx(found, rel=1e-7)


def test_value_is_that_of_the_couplings():
    rows = random_rows(SIZES, 12, missing=0.2)
    data = PottsData(*rows, SIZES)
    objective = FewRows(data, L2, L2_FIELD, True)
    z = np.random.default_rng(0).normal(size=objective.size)
    A, h = objective.parameters(z)
    J = OfFewRows(A, data.labels, SIZES).dense()
    value = objective(z, np.empty_like(z))
    assert -value == pytest.approx(penalised(J, h, rows, SIZES, L2, L2_FIELD), rel=1e-12)


def test_sites_may_be_fitted_apart():
    data = PottsData(*random_rows(SIZES, 12), SIZES)
    whole = FewRows(data, L2, L2_FIELD, False)
    z = np.random.default_rng(0).normal(size=whole.size)
    coefficients = z[: whole.n_coefficients].reshape(whole.S.shape[1], -1)
    total = 0.0
    for sites in (slice(0, 2), slice(2, 6)):
        part = FewRows(data, L2, L2_FIELD, False, sites, (whole.K, whole.S))
        mine = slice(part.begin, part.end)
        fields = z[whole.n_coefficients :][mine]
        z_part = np.append(coefficients[:, mine].reshape(-1), fields)
        total += part(z_part, np.empty_like(z_part))
    assert total == pytest.approx(whole(z, np.empty_like(z)), rel=1e-12)


def test_the_kernel_is_whitened_where_it_is_not_zero():
    labels = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])  # the third is the sum of differences
    K, S = kernel_of(labels, np.array([2, 2]))
    np.testing.assert_array_equal(K, (labels[:, None] == labels).sum(2))
    assert S.shape == (4, 3)
    np.testing.assert_allclose(S.T @ K @ S, np.eye(3), atol=1e-12)
