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


def enumerated(model):
    """All inclusion patterns: the log-density of y, and means and second moments of coefficients.

    The log-densities leave out the prior of the pattern of none.
    """
    X, y, prior = model.X.astype(float), model.y, model.prior
    d = X.shape[1]
    patterns = np.array(list(itertools.product([0, 1], repeat=d)))
    weights, means, seconds = [], [], []
    for z in patterns.astype(bool):
        slab_mean, slab_var = prior.field[z] / prior.precision[z], 1 / prior.precision[z]
        B = model.noise_variance * np.eye(len(y)) + (X[:, z] * slab_var) @ X[:, z].T
        rest = y - X[:, z] @ slab_mean
        gain = slab_var[:, None] * np.linalg.solve(B, X[:, z]).T
        mean, second = np.zeros(d), np.zeros((d, d))
        mean[z] = slab_mean + gain @ rest
        second[np.ix_(z, z)] = np.diag(slab_var) - gain @ (X[:, z] * slab_var)
        fit = rest @ np.linalg.solve(B, rest) + np.linalg.slogdet(2 * np.pi * B)[1]
        weights.append(prior.log_odds[z].sum() - fit / 2)
        means.append(mean), seconds.append(second + np.outer(mean, mean))
    return patterns, *map(np.array, (weights, means, seconds))


def exact(model):
    """Log-evidence, means, standard deviations and inclusion probabilities, by enumeration."""
    patterns, weights, means, seconds = enumerated(model)
    log_partition = np.logaddexp.reduce(weights)
    p = np.exp(weights - log_partition)
    evidence = log_partition - np.logaddexp(0, model.prior.log_odds).sum()
    deviation = np.sqrt(np.einsum("k,kii->i", p, seconds) - (p @ means) ** 2)
    return evidence, p @ means, deviation, p @ patterns


def inclusion(model, result):
    """Inclusion probabilities of a result."""
    return 1 / (1 + np.exp(-model.prior.tilted_log_odds(result.b, result.a)))
