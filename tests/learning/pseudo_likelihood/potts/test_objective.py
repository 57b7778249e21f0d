"""The symmetric objective, its gradient and Hessian."""

import numpy as np
import pytest
from potts_data import derivative, penalised, random_rows

from fastmf.learning.pseudo_likelihood.potts.objective import PottsData, SymmetricObjective

L2, L2_FIELD = 0.1, 0.03
# Fewer positions than a block has, and several blocks.
SIZES = [[3, 4, 2, 5], [4] * 9 + [7] * 12, [2] * 40]


def objective_at(sizes, dtype=np.float64, missing=0.15, **options):
    """An objective, rows, and some point."""
    rows = random_rows(sizes, missing=missing)
    data = PottsData(*rows, np.asarray(sizes))
    objective = SymmetricObjective(data, L2, L2_FIELD, dtype, **options)
    z = objective.start(np.zeros(sum(sizes)))
    z += np.random.default_rng(3).normal(size=len(z)).astype(dtype)
    return objective, rows, z


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("dtype, close", [(np.float64, 1e-12), (np.float32, 3e-6)])
def test_value_is_that_of_the_definition(sizes, dtype, close):
    objective, rows, z = objective_at(sizes, dtype)
    J, h = objective.parameters(z)
    np.testing.assert_array_equal(J, J.T)
    expected = penalised(J, h, rows, sizes, L2, L2_FIELD)
    assert -objective(z, np.empty_like(z)) == pytest.approx(expected, rel=close)


@pytest.mark.parametrize("sizes", SIZES)
def test_gradient_is_the_derivative(sizes):
    objective, _, z = objective_at(sizes)
    direction = np.random.default_rng(4).normal(size=len(z))

    def gradient(z):
        objective(z, out := np.empty_like(z))
        return out

    found = derivative(lambda z: objective(z, np.empty_like(z)), z, direction)
    assert gradient(z) @ direction == pytest.approx(found, rel=1e-7)


def test_number_of_threads_does_not_matter():
    sizes = SIZES[1]
    labels, weights = random_rows(sizes, 3000)
    found = []
    for n_threads in (1, 2):
        data = PottsData(labels, weights, np.asarray(sizes), n_threads)
        objective = SymmetricObjective(data, L2, L2_FIELD, np.float32)
        assert objective.evaluator.n_workers == n_threads
        z = objective.start(np.zeros(sum(sizes)))
        z += np.random.default_rng(3).normal(size=len(z)).astype(np.float32)
        found.append((objective(z, gradient := np.empty_like(z)), gradient))
    assert found[0][0] == found[1][0]
    np.testing.assert_array_equal(found[0][1], found[1][1])


def test_excluded_pairs_have_no_couplings():
    objective, _, z = objective_at(SIZES[1], excluded=[[0, 20], [3, 2]])
    J = objective.parameters(z)[0]
    position = objective.layout.position
    norms = np.array(
        [[abs(J[position == i][:, position == j]).max() for i in range(21)] for j in range(21)]
    )
    zero = {(i, j) for i, j in np.argwhere(norms == 0) if i > j}
    assert zero == {(20, 0), (3, 2)}
