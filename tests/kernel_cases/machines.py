"""Machines of any size for the cases, and data for them."""

import numpy as np

import fastmf as mf


def rbm(size, dtype="float64", patterns=5.0, noise=3.0):
    """A binary RBM with four planted patterns on random weights.

    The defaults give machines with several solutions, reached in tens of sweeps at any size; strong
    noise without patterns gives machines whose undamped sweeps cycle.
    """
    rng = np.random.default_rng(0)
    n_visible, n_hidden = size.n_visible, size.n_hidden
    weights = rng.normal(size=(n_visible, n_hidden)) * noise / np.sqrt(n_visible + n_hidden)
    left, right = rng.choice([-1, 1], (n_visible, 4)), rng.choice([-1, 1], (n_hidden, 4))
    weights += left @ right.T * patterns / np.sqrt(n_visible * n_hidden)
    # The fields put {0, 1} units at the point where spins would have none.
    visible = rng.normal(size=n_visible) / 10 - weights.sum(1) / 2
    hidden = -weights.sum(0) / 2
    return mf.RBM(
        weights.astype(dtype),
        mf.Bernoulli(visible.astype(dtype)),
        mf.Bernoulli(hidden.astype(dtype)),
    )


def boltzmann_machine(size, dtype="float64", noise=0.8, uniform=0.0):
    """A fully visible machine of Ising units with random couplings around a uniform one."""
    rng = np.random.default_rng(0)
    n = size.n_visible
    upper = np.triu(uniform + rng.normal(size=(n, n)) * noise / np.sqrt(n), 1).astype(dtype)
    return mf.BoltzmannMachine(upper + upper.T, mf.Ising(rng.normal(size=n).astype(dtype) / 5))


def data(model, n_rows):
    """Random rows of the first layer's values."""
    low, high = model.layers[0].support
    rng = np.random.default_rng(1)
    n_units = len(model.layers[0].field)
    return np.where(rng.random((n_rows, n_units)) < 0.5, low, high).astype(model.dtype)
