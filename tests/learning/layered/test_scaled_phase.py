"""Compiled steps of hidden units whose scale is free; more kinds of them are in `test_moves.py`."""

import numpy as np
import pytest
from both_paths import ONE_BY_ONE, assert_equal

import fastmf as mf
from fastmf.learning.layered.compiled_steps import phases_of
from fastmf.learning.layered.family import train
from fastmf.learning.layered.phases import Problem
from fastmf.learning.layered.scaled_phase import MoveScaled
from fastmf.learning.layered.settings import LayeredSettings


@pytest.mark.parametrize("gradient", ["pcd", "tap"])
def test_they_are_those_of_the_general_path_and_hold_precisions(gradient):
    rng = np.random.default_rng(0)
    hidden = mf.GaussBernoulli(np.zeros(4), np.array([0.5, 1.0, 2.0, 4.0]), np.zeros(4))
    model = mf.RBM(0.1 * rng.normal(size=(9, 4)), mf.Bernoulli(np.zeros(9)), hidden)
    settings = LayeredSettings(
        gradient=gradient, batch_size=7, n_epochs=3, learning_rate=0.1, momentum=0.5, l2=0.01
    )
    assert phases_of(Problem(model, settings, False))[-1] is MoveScaled
    X = 1.0 * (rng.random((30, 9)) < 0.4)
    found = train(model, X, settings, seed=1)
    expected = train(model, X, settings, seed=1, family=ONE_BY_ONE)
    assert_equal(found, expected, rtol=1e-9, atol=1e-11)
    assert abs(found.model.weights - model.weights).max() > 1e-3
    np.testing.assert_array_equal(found.model.hidden.precision, hidden.precision)
