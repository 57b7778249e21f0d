"""Steps of machines with groups of states."""

import numpy as np

import fastmf as mf
from fastmf.learning.layered.settings import LayeredSettings
from fastmf.learning.layered.step import train


def groups(n, rng):
    return mf.Categorical([0.3 * rng.normal(size=m) for m in (2 * n // 5, n - 2 * n // 5)])


def binary(n, rng):
    return mf.Bernoulli(0.3 * rng.normal(size=n))


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
