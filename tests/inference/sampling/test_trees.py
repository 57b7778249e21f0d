"""Draws from spanning trees."""

import numpy as np
import pytest
from potts_data import random_parameters
from scipy.special import comb

import fastmf as mf
from fastmf.inference.sampling import categories, spins
from fastmf.inference.sampling.states import flat_states
from fastmf.inference.sampling.trees import strengths
from fastmf.models._gauge import in_gauge


def test_strengths_do_not_depend_on_the_gauge():
    sizes = np.array([3, 2, 4])
    J, h = random_parameters(sizes)
    columns = flat_states(mf.Categorical(np.split(h, [3, 5])))
    strength = strengths(columns, J)
    other = strengths(columns, in_gauge(J, h, sizes, "lattice", 0)[0])
    np.testing.assert_allclose(strength, other, atol=1e-12)
    spins = flat_states(mf.Ising(np.zeros(2)))
    found = strengths(spins, np.array([[0, -1.5], [-1.5, 0]]))
    np.testing.assert_allclose(found, [[0, 3], [3, 0]])  # a norm of four entries of 1.5


def test_draws_of_a_tree_have_its_distribution(monkeypatch):
    monkeypatch.setattr(categories, "MAX_ENUMERATED_STATES", 1)
    sizes = np.array([3, 2, 4])
    J, h = random_parameters(sizes, strength=1.0)
    J[:3, 3:5] = J[3:5, :3] = 0  # column 2 is coupled to both others
    model = mf.BoltzmannMachine(J, mf.Categorical(np.split(h, [3, 5])))
    labels = categories.sample(model, 40_000, np.random.default_rng(0), n_sweeps=1)
    exact, x = mf.exact(model), model.prior.one_hot(labels)
    np.testing.assert_allclose(x.mean(0), exact.mean, atol=0.01)
    np.testing.assert_allclose(x.T @ x / len(x), exact.pairwise, atol=0.01)


def test_a_long_chain_of_strong_couplings():
    n, t = 200, np.tanh(2.5)
    model = mf.BoltzmannMachine(2.5 * (np.eye(n, k=1) + np.eye(n, k=-1)), mf.Ising(np.zeros(n)))
    drawn = spins.sample(model, 20_000, np.random.default_rng(1), n_sweeps=1)
    found = drawn[:, 0] @ drawn / len(drawn)
    np.testing.assert_allclose(found, t ** np.arange(n), atol=4 / np.sqrt(20_000))


@pytest.mark.parametrize("categorical", [False, True])
def test_phases_have_the_shares_of_the_machine(categorical):
    """Complete graphs of spins in a weak field, summed over the number of spins that are up."""
    n, J, field = 30, 2.4 / 30, 0.02
    up = np.arange(n + 1)
    logs = np.log(comb(n, up)) + J * (2 * up - n) ** 2 / 2 + field * (2 * up - n)
    right = np.exp(logs - np.logaddexp.reduce(logs)) @ (up > n / 2)
    couplings, rng = J * (1 - np.eye(n)), np.random.default_rng(0)
    if categorical:
        couplings = np.kron(couplings, [[1, -1], [-1, 1]])
        units = mf.Categorical(n * [np.array([-field, field])])
        drawn = categories.sample(mf.BoltzmannMachine(couplings, units), 3000, rng)
    else:
        drawn = (
            spins.sample(mf.BoltzmannMachine(couplings, mf.Ising(np.full(n, field))), 3000, rng) > 0
        )
    assert (drawn.sum(1) > n / 2).mean() == pytest.approx(right, abs=0.06)
    assert right > 0.7  # chains from the tree stay where they are: 0.55
