"""States of discrete units and tables of their pairs against energies."""

import numpy as np

import fastmf as mf
from fastmf.inference.mean_field.state_tables import pair_tables, states_of_units


def test_weights_and_tables_are_those_of_the_energy():
    rng = np.random.default_rng(0)
    groups, spins = mf.Categorical(rng.normal(size=(2, 3))), mf.Ising(rng.normal(size=2))
    visible = mf.Concatenated(groups, spins)
    hidden = mf.Binomial(rng.normal(size=2), np.full(2, 2))
    model = mf.RBM(rng.normal(size=(8, 2)), visible, hidden)
    field, precision = rng.normal(size=8), rng.random(8)
    free = np.array([True] * 3 + [False] * 3 + [True, False])
    values, weights = states_of_units(visible, field, precision, free)
    others, other_weights = states_of_units(hidden, np.zeros(2), np.zeros(2), np.ones(2, bool))
    tables = pair_tables((values, others), model.weights[free], (weights, other_weights))
    assert weights.shape == (2, 3) and other_weights.shape == (2, 3)
    assert tables.shape == (2, 2, 3, 3)
    assert weights[1, 2] == -np.inf
    for a in range(3):
        assert np.isclose(weights[0, a], groups.field[a] + field[a] - precision[a] / 2)
        for c in range(3):
            assert np.isclose(tables[0, 1, a, c], model.weights[a, 1] * c)
    for a, x in enumerate((-1, 1)):
        own = spins.field[0] * x + field[6] * x - precision[6] / 2
        assert np.isclose(weights[1, a], own)
        assert np.isclose(tables[1, 0, a, 2], x * model.weights[6, 0] * 2)


def test_units_that_are_not_discrete_have_no_states():
    none = np.zeros(2)
    prior = mf.Gaussian(none, np.ones(2))
    assert states_of_units(prior, none, none, none == 0) == (None, None)
