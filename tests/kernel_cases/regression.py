"""Spike-and-slab regressions, and their exact posteriors."""

import itertools

import numpy as np

import fastmf as mf


def problem(n, d, seed=0, noise=0.3, inclusion_probability=0.3, slab=1.0, dtype=np.float64):
    """A model with standard normal features, and the coefficients that made its data."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)).astype(dtype)
    w = rng.normal(size=d) * np.sqrt(slab) * (rng.random(d) < inclusion_probability)
    y = X @ w + noise * rng.normal(size=n)
    prior = mf.GaussBernoulli(
        np.zeros(d), 1 / slab, np.log(inclusion_probability / (1 - inclusion_probability))
    )
    return mf.SparseLinearModel(X, y, noise**2, prior), w


def exact(model):
    """Log-evidence, means, standard deviations and inclusion probabilities, by enumeration."""
    X, y, prior = model.X.astype(float), model.y, model.prior
    d = X.shape[1]
    weights, means, squares, patterns = [], [], [], []
    for pattern in itertools.product([False, True], repeat=d):
        z = np.array(pattern)
        slab_mean, slab_var = prior.field[z] / prior.precision[z], 1 / prior.precision[z]
        B = model.noise_variance * np.eye(len(y)) + (X[:, z] * slab_var) @ X[:, z].T
        rest = y - X[:, z] @ slab_mean
        gain = slab_var[:, None] * np.linalg.solve(B, X[:, z]).T
        mean, square = np.zeros((2, d))
        mean[z] = slab_mean + gain @ rest
        square[z] = slab_var - np.einsum("ij,ji->i", gain, X[:, z] * slab_var) + mean[z] ** 2
        fit = rest @ np.linalg.solve(B, rest) + np.linalg.slogdet(2 * np.pi * B)[1]
        weights.append(prior.log_odds[z].sum() - fit / 2)
        means.append(mean), squares.append(square), patterns.append(z)
    log_partition = np.logaddexp.reduce(weights)
    p = np.exp(np.array(weights) - log_partition)
    mean = p @ np.array(means)
    evidence = log_partition - np.logaddexp(0, prior.log_odds).sum()
    return evidence, mean, np.sqrt(p @ np.array(squares) - mean**2), p @ np.array(patterns)


def inclusion(model, result):
    """Inclusion probabilities of a result."""
    return 1 / (1 + np.exp(-model.prior.tilted_log_odds(result.b, result.a)))
