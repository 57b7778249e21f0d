"""Compiled steps from sparse rows are those from dense ones."""

import numpy as np
import pytest
from both_paths import RUN, assert_equal, every_gradient, random_machine
from scipy.sparse import csr_array

import fastmf as mf
from fastmf.learning.layered.compiled_steps import CompiledSteps
from fastmf.learning.layered.dispatch import steps
from fastmf.learning.layered.family import train
from fastmf.learning.layered.phases import Problem
from fastmf.learning.layered.settings import LayeredSettings
from fastmf.learning.layered.sparse_phase import SparseRows
from fastmf.learning.training.ascent import initial_state
from fastmf.priors._rows import few_stored


@every_gradient
@pytest.mark.parametrize("dtype, close", [("f8", 1e-9), ("f4", 1e-3)])
def test_sparse_rows_take_the_steps_of_dense_ones(options, dtype, close):
    rng = np.random.default_rng(4)
    X = (rng.random((33, 300)) < 0.05) * rng.choice([0.5, 1.0], (33, 300))
    X[5] = 0
    model, settings = random_machine(300, 9, dtype), LayeredSettings(**RUN | options)
    assert few_stored(csr_array(X)) and steps(model, csr_array(X), settings)
    expected = train(model, X.astype(dtype), settings, seed=1, n_threads=1)
    for given in (csr_array(X.astype(dtype)), csr_array(X)):
        found = train(model, given, settings, seed=1, n_threads=2)
        assert_equal(found, expected, rtol=close, atol=close * 1e-3)
    assert abs(expected.model.weights - model.weights).max() > 0.01


def test_batches_of_sparse_rows_may_differ_in_size():
    """Memory for the transpose of a batch grows with what is stored."""
    X = np.eye(24, 40)
    X[12:] = np.random.default_rng(0).random((12, 40)) < 0.5
    model, settings = random_machine(40, 5, "f8"), LayeredSettings(**RUN, gradient="pcd")
    few, rows = np.arange(12).reshape(2, 6), np.arange(24).reshape(4, 6)
    states = []
    for data in (X, csr_array(X)):
        state, taken = initial_state(model), CompiledSteps(model, data, settings, 6, 5)
        taken.take(state, few, range(2), [0.1] * 2)
        taken.take(state, rows, range(4), [0.1] * 4)
        states.append(state)
    assert_equal(states[1], states[0], rtol=1e-9, atol=1e-12)


def test_only_binary_units_of_sparse_rows_are_compiled():
    spiked = mf.GaussBernoulli(np.zeros(4), np.full(4, 2.0), np.zeros(4))
    other = mf.RBM(np.zeros((4, 4)), mf.Bernoulli(np.zeros(4)), spiked)
    assert not all(SparseRows.requires(Problem(other, LayeredSettings(), True)).values())
