"""Models in notebooks."""

import numpy as np
import pytest
from html_tables import shown

import fastmf as mf

UNITS = mf.Bernoulli([-1.0, 0.0, 4.0])
PAIR = np.array([[0.0, 2.0], [2.0, 0.0]])
MIXED = mf.Concatenated(mf.Gaussian(np.zeros(2), np.full(2, 3.0)), mf.Ising(np.ones(1)))
ZEROS = mf.Bernoulli(np.zeros(2))
MODELS = {
    "RBM": (mf.RBM(np.ones((3, 2)), UNITS, ZEROS),
            ["weights", "visible.field", "hidden.field"]),
    "RBM of two kinds": (mf.RBM(np.ones((3, 2)), MIXED, ZEROS),
                         ["weights", "visible[0].field", "visible[0].precision",
                          "visible[1].field", "hidden.field"]),
    "DBM": (mf.DBM((np.ones((3, 2)), np.ones((2, 2))), (UNITS, ZEROS, ZEROS)),
            ["weights[0]", "weights[1]", "layers[0].field", "layers[1].field", "layers[2].field"]),
    "BoltzmannMachine": (mf.BoltzmannMachine(PAIR, ZEROS), ["couplings", "prior.field"]),
    "CRBM": (mf.CRBM(np.zeros((3, 0)), np.ones((3, 4)), np.zeros((0, 4)), np.zeros(3), np.zeros(0)),
             ["weights", "visible_weights", "hidden_weights", "visible_bias", "hidden_bias"]),
    "SparseLinearModel": (mf.SparseLinearModel(np.eye(2), np.ones(2), 0.1,
                                               mf.GaussBernoulli(np.zeros(2), 1.0, np.zeros(2))),
                          ["X", "y", "noise_variance", "prior.field", "prior.precision",
                           "prior.log_odds"]),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_a_model_shows_a_line_for_each_parameter(name):
    model, names = MODELS[name]
    title, (table,) = shown(model)
    assert title == repr(model)
    assert [row[0] for row in table] == ["", *names]


def test_figures_are_those_of_the_arrays():
    _, (table,) = shown(MODELS["RBM"][0])
    assert table[1] == ("weights", "", "3 x 2", "1", "1", "1")
    assert table[2] == ("visible.field", "Bernoulli", "3", "-1", "1", "4")
    _, (table,) = shown(MODELS["SparseLinearModel"][0])
    assert table[3] == ("noise_variance", "", "number", "0.1", "0.1", "0.1")
    _, (table,) = shown(MODELS["CRBM"][0])
    assert table[1] == ("weights", "", "3 x 0", "", "", "")
