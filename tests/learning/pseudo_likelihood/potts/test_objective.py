"""Objectives of Potts machines, their gradients, and the iterations of fits."""

import numpy as np
import pytest
from potts_data import derivative, log_pseudo_likelihood, penalised, positions, random_rows

from fastmf.learning.pseudo_likelihood.potts.fitting import Options, fit
from fastmf.learning.pseudo_likelihood.potts.objective import (
    AsymmetricObjective,
    PottsData,
    PottsLayout,
    SymmetricObjective,
)

L2, L2_FIELD = 0.1, 0.03
# Blocks of one position and of several, with and without padding.
SIZES = [[3, 4, 2, 70], [4] * 9 + [7] * 12, [2] * 40]
BLOCKS = np.array([4] * 5 + [7] * 12)


def objective_at(sizes, dtype=np.float64, missing=0.15, **options):
    """An objective, rows, and some point."""
    rows = random_rows(sizes, missing=missing)
    data = PottsData(*rows, np.asarray(sizes))
    objective = SymmetricObjective(data, L2, L2_FIELD, dtype, **options)
    z = objective.start()
    z += np.random.default_rng(3).normal(size=len(z)).astype(dtype)
    return objective, rows, z


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("dtype, close", [(np.float64, 1e-12), (np.float32, 3e-6)])
def test_value_and_gradient_are_those_of_the_definition(sizes, dtype, close):
    objective, rows, z = objective_at(sizes, dtype)
    J, h = objective.parameters(z)
    np.testing.assert_array_equal(J, J.T)
    expected = penalised(J, h, rows, sizes, L2, L2_FIELD)
    assert -objective(z, gradient := np.empty_like(z)) == pytest.approx(expected, rel=close)
    if dtype is np.float64:
        direction = np.random.default_rng(4).normal(size=len(z))
        found = derivative(lambda z: objective(z, np.empty_like(z)), z, direction)
        assert gradient @ direction == pytest.approx(found, rel=1e-7)


def test_pairs_that_are_no_edges_have_no_couplings():
    coupled = np.tri(21, k=-1)
    coupled[[20, 3], [0, 2]] = 0
    objective, _, z = objective_at(SIZES[1], edges=np.argwhere(coupled))
    J, position = objective.parameters(z)[0], objective.layout.position
    norms = np.array(
        [[abs(J[position == i][:, position == j]).max() for i in range(21)] for j in range(21)]
    )
    assert np.argwhere(np.tril(norms == 0, -1)).tolist() == [[3, 2], [20, 0]]


@pytest.mark.parametrize("block", [0, -1])
def test_asymmetric_value_and_gradient(block):
    labels, weights = random_rows(BLOCKS, missing=0.1)
    data, layout = PottsData(labels, weights, BLOCKS), PottsLayout(BLOCKS)
    block %= len(layout.bounds) - 1
    objective = AsymmetricObjective(data, layout, data.rows(layout), block, L2, L2_FIELD)
    rng = np.random.default_rng(0)
    z = objective.start()
    z += rng.normal(size=len(z))
    table, field = objective.parameters(z)
    J, h, mine = np.zeros((BLOCKS.sum(),) * 2), np.zeros(BLOCKS.sum()), objective.states
    J[mine], h[mine] = table[layout.place][:, objective.within].T, field
    others = ~np.isin(positions(BLOCKS), positions(BLOCKS)[mine])
    alone = [
        np.log(q) * (labels[:, i] >= 0)
        for i, q in enumerate(BLOCKS)
        if others[positions(BLOCKS) == i].any()
    ]
    value = log_pseudo_likelihood(J, h, labels, BLOCKS) + np.sum(alone, 0)
    N = weights.sum()
    expected = weights @ value - N * L2 / 4 * (J**2).sum() - N * L2_FIELD / 2 * (h**2).sum()
    gradient = np.empty_like(z)
    assert -objective(z, gradient) == pytest.approx(expected, rel=1e-12)
    direction = rng.normal(size=len(z))
    found = derivative(lambda z: objective(z, np.empty_like(z)), z, direction)
    assert gradient @ direction == pytest.approx(found, rel=1e-7)


def test_a_position_is_not_coupled_to_itself():
    data, layout = PottsData(*random_rows(BLOCKS), BLOCKS), PottsLayout(BLOCKS)
    objective = AsymmetricObjective(data, layout, data.rows(layout), 0, L2, L2_FIELD)
    z = np.ones(objective.size)
    table = objective.parameters(z)[0][layout.place][:, objective.within].T
    position = positions(BLOCKS)
    np.testing.assert_array_equal(table == 0, position[objective.states][:, None] == position)


@pytest.mark.parametrize("l2", [1e-4, 1e-3, 10.0])
def test_fits_take_few_iterations_under_weak_and_strong_penalties(l2):
    labels = np.random.default_rng(0).integers(0, 21, (40, 60))
    sizes = np.full(60, 21)
    found = fit(PottsData(labels, np.ones(40), sizes), Options(l2, l2))
    assert found.stopped
    assert len(found.history) < 100
