"""The asymmetric objective: regressions of each position on the others."""

import numpy as np
import pytest
from potts_data import derivative, log_pseudo_likelihood, positions, random_rows

from fastmf.learning.pseudo_likelihood.potts.asymmetric import AsymmetricObjective
from fastmf.learning.pseudo_likelihood.potts.layout import PottsLayout
from fastmf.learning.pseudo_likelihood.potts.objective import PottsData

L2, L2_FIELD = 0.2, 0.05
SIZES = np.array([4] * 5 + [7] * 12)


@pytest.mark.parametrize("block", [0, -1])
def test_value_and_gradient(block):
    labels, weights = random_rows(SIZES, missing=0.1)
    data, layout = PottsData(labels, weights, SIZES), PottsLayout(SIZES)
    block %= layout.n_blocks
    assert layout.n_blocks > 1
    objective = AsymmetricObjective(data, layout, data.rows(layout), block, L2, L2_FIELD)
    rng = np.random.default_rng(0)
    z = objective.start(np.zeros(SIZES.sum()))
    z += rng.normal(size=len(z))
    table, field = objective.parameters(z)
    J, h, mine = np.zeros((SIZES.sum(),) * 2), np.zeros(SIZES.sum()), objective.states
    J[mine], h[mine] = table[layout.place][:, objective.within].T, field
    others = ~np.isin(positions(SIZES), positions(SIZES)[mine])
    alone = [
        np.log(q) * (labels[:, i] >= 0)
        for i, q in enumerate(SIZES)
        if others[positions(SIZES) == i].any()
    ]
    value = log_pseudo_likelihood(J, h, labels, SIZES) + np.sum(alone, 0)
    N = weights.sum()
    expected = weights @ value - N * L2 / 4 * (J**2).sum() - N * L2_FIELD / 2 * (h**2).sum()
    gradient = np.empty_like(z)
    assert -objective(z, gradient) == pytest.approx(expected, rel=1e-12)
    direction = rng.normal(size=len(z))
    found = derivative(lambda z: objective(z, np.empty_like(z)), z, direction)
    assert gradient @ direction == pytest.approx(found, rel=1e-7)


def test_a_position_is_not_coupled_to_itself():
    data, layout = PottsData(*random_rows(SIZES), SIZES), PottsLayout(SIZES)
    objective = AsymmetricObjective(data, layout, data.rows(layout), 0, L2, L2_FIELD)
    z = np.ones(objective.size)
    table = objective.parameters(z)[0][layout.place][:, objective.within].T
    position = positions(SIZES)
    np.testing.assert_array_equal(table == 0, position[objective.states][:, None] == position)
