"""Steps of machines with groups of states."""

import numpy as np
import pytest
from training_runs import assert_equal, states_by_threads

import fastmf as mf
from fastmf.learning.layered.settings import LayeredSettings
from fastmf.learning.layered.step import train


def groups(n, rng):
    return mf.Categorical([0.3 * rng.normal(size=m) for m in (2 * n // 5, n - 2 * n // 5)])


def binary(n, rng):
    return mf.Bernoulli(0.3 * rng.normal(size=n))


def spiked(n, rng):
    return mf.GaussBernoulli(*0.3 * rng.normal(size=(1, n)), np.full(n, 2.0), rng.normal(size=n))


def mixed(n, rng):
    return mf.Concatenated(groups(n - n // 3, rng), spiked(n // 3, rng))


def machine(visible, hidden, n=10, n_hidden=7, dtype=np.float64):
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(n, n_hidden)) / np.sqrt(n + n_hidden)
    return mf.RBM(weights.astype(dtype), visible(n, rng), hidden(n_hidden, rng))


def data(model, n_rows=24):
    rng = np.random.default_rng(1)
    return model.visible.sample(np.zeros((n_rows, model.n_visible)), 0.0, rng)


def test_groups_of_two_states_are_binary_units():
    """x in {0, 1} with field b is a group of fields (0, b), whose first state is not coupled.

    The difference between its states is what the binary unit is, and moves twice as far.
    """
    rng = np.random.default_rng(0)
    weights, field = rng.normal(size=(6, 5)) / 3, rng.normal(size=6)
    hidden = mf.Bernoulli(np.zeros(5))
    pairs = mf.Categorical([np.array([0, b]) for b in field])
    X = rng.integers(0, 2, (20, 6))
    settings = LayeredSettings(batch_size=20, n_epochs=1, learning_rate=0.01, l2=0.0)
    binary = train(mf.RBM(weights, mf.Bernoulli(field), hidden), 1.0 * X, settings, seed=0)
    coupled = np.zeros((12, 5))
    coupled[1::2] = weights
    found = train(mf.RBM(coupled, pairs, hidden), X, settings, seed=0)
    step = found.model.weights - coupled
    expected = binary.model.weights - weights
    np.testing.assert_allclose(step[1::2] - step[::2], 2 * expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_number_of_threads_does_not_matter(dtype):
    model = machine(mixed, groups, 200, 40, dtype)
    X, settings = data(model, 90).astype(dtype), LayeredSettings(batch_size=30)
    rows = np.stack([np.random.default_rng(k).permutation(90)[:30] for k in range(4)])
    states = states_by_threads(model, X, settings, rows, 0.02)
    assert abs(states[0].model.weights - model.weights).max() > 1e-3
    for state in states[1:]:
        assert_equal(state, states[0], rtol=0, atol=0)
