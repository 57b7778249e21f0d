"""Draws from spanning trees."""

import numpy as np
from potts_data import random_parameters

import fastmf as mf
from fastmf.inference.sampling.states import flat_states
from fastmf.inference.sampling.trees import strengths, tree_draws
from fastmf.models._gauge import in_gauge


def test_draws_of_a_tree_have_its_distribution():
    sizes = np.array([3, 2, 4])
    J, h = random_parameters(sizes, strength=1.0)
    J[:3, 3:5] = J[3:5, :3] = 0  # column 2 is coupled to both others
    model = mf.BoltzmannMachine(J, mf.Categorical(np.split(h, [3, 5])))
    labels = tree_draws(model, 40_000, np.random.default_rng(0))
    exact, x = mf.exact(model), model.prior.one_hot(labels)
    np.testing.assert_allclose(x.mean(0), exact.mean, atol=0.01)
    np.testing.assert_allclose(x.T @ x / len(x), exact.pairwise, atol=0.01)


def test_a_long_chain_of_strong_couplings():
    n, t = 200, np.tanh(2.5)
    J = 2.5 * (np.eye(n, k=1) + np.eye(n, k=-1))
    labels = tree_draws(
        mf.BoltzmannMachine(J, mf.Ising(np.zeros(n))), 20_000, np.random.default_rng(1)
    )
    spins = 2 * labels - 1
    found = spins[:, 0] @ spins / len(spins)
    np.testing.assert_allclose(found, t ** np.arange(n), atol=4 / np.sqrt(20_000))


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
