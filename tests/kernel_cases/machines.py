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


def dbm(size, dtype="float64"):
    """Three layers, of which the last is larger than the one it is coupled to."""
    first, rng, n = rbm(size, dtype), np.random.default_rng(5), size.n_hidden + 9
    weights = (rng.normal(size=(size.n_hidden, n)) / 9).astype(dtype)
    top = mf.Ising(rng.normal(size=n).astype(dtype))
    return mf.DBM((first.weights, weights), (*first.layers, top))


def groups(n_states, rng, scale=1.0):
    """Groups of 2 to 4 states, so many states in all."""
    sizes = []
    while sum(sizes) < n_states - 4:
        sizes.append(2 + len(sizes) % 3)
    sizes.append(n_states - sum(sizes))
    return mf.Categorical([scale * rng.normal(size=size) for size in sizes])


def potts_rbm(size, dtype="float64", noise=2.0):
    """An RBM of groups of states, beside other units on both sides."""
    rng = np.random.default_rng(3)
    n_visible, n_hidden = size.n_visible, size.n_hidden
    weights = rng.normal(size=(n_visible, n_hidden)) * noise / np.sqrt(n_visible + n_hidden)
    visible = mf.Concatenated(groups(n_visible - 3, rng), mf.Ising(rng.normal(size=3)))
    hidden = mf.Bernoulli(rng.normal(size=n_hidden))
    if n_hidden > 6:
        hidden = mf.Concatenated(mf.Bernoulli(rng.normal(size=n_hidden - 5)), groups(5, rng))
    return mf.RBM(weights.astype(dtype), visible, hidden)


def potts_machine(size, dtype="float64", noise=0.8):
    """A fully visible machine of groups of states and an Ising unit."""
    rng = np.random.default_rng(4)
    n = size.n_visible
    prior = mf.Concatenated(mf.Ising([0.2]), groups(n - 1, rng, 0.3))
    upper = np.triu(rng.normal(size=(n, n)) * noise / np.sqrt(n), 1)
    same = np.repeat(np.arange(prior.parts[1].n_groups), prior.parts[1].sizes)
    upper[1:, 1:][same[:, None] == same] = 0
    return mf.BoltzmannMachine((upper + upper.T).astype(dtype), prior)


def data(model, n_rows):
    """Random rows of the first layer's values."""
    if isinstance(model.layers[0], mf.Concatenated):
        zero = np.zeros((n_rows, model.layers[0].n_units()))
        return model.layers[0].sample(zero, zero, 1).astype(model.dtype)
    low, high = model.layers[0].support
    rng = np.random.default_rng(1)
    n_units = len(model.layers[0].field)
    return np.where(rng.random((n_rows, n_units)) < 0.5, low, high).astype(model.dtype)


def truncated_spiked_rbm(size, dtype="float64"):
    """An RBM of pixels in [0, 1] with a spike at zero, and binary hidden units."""
    rng = np.random.default_rng(5)
    n_visible, n_hidden = size.n_visible, size.n_hidden
    weights = rng.normal(size=(n_visible, n_hidden)) / np.sqrt(n_visible + n_hidden)
    visible = (rng.normal(size=n_visible), 1 + rng.random(n_visible), rng.normal(size=n_visible),
               np.zeros(n_visible), np.ones(n_visible))  # fmt: skip
    return mf.RBM(
        weights.astype(dtype),
        mf.TruncatedGaussBernoulli(*(field.astype(dtype) for field in visible)),
        mf.Bernoulli(rng.normal(size=n_hidden).astype(dtype)),
    )


def uniform_data(model, n_rows):
    """Random rows in [0, 1], half of them zeros."""
    rng = np.random.default_rng(1)
    shape = n_rows, model.sizes[0]
    return (rng.random(shape) * (rng.random(shape) < 0.5)).astype(model.dtype)


def spiked(n, rng, dtype):
    """Units with a spike at zero."""
    field, precision, log_odds = rng.normal(size=n), 1 + rng.random(n), rng.normal(size=n)
    return mf.GaussBernoulli(*(f.astype(dtype) for f in (field, precision, log_odds)))


def solved_gaussian(model):
    """Mean, covariance and log-partition of a machine of Gaussian units alone."""
    if not isinstance(model, mf.BoltzmannMachine):
        model = fully_visible(model.bipartite())
    matrix, field = np.diag(model.prior.precision) - model.couplings, model.prior.field
    covariance = np.linalg.inv(matrix)
    mean = covariance @ field
    return mean, covariance, (field @ mean - np.linalg.slogdet(matrix / (2 * np.pi))[1]) / 2


def fully_visible(model):
    """The same machine, with its two layers in one."""
    n, m = model.weights.shape
    couplings = np.zeros((n + m, n + m), model.dtype)
    couplings[:n, n:] = model.weights
    couplings[n:, :n] = model.weights.T
    prior = type(model.visible)(*map(np.concatenate, zip(model.visible, model.hidden, strict=True)))
    return mf.BoltzmannMachine(couplings, prior)
