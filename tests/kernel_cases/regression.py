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


def chain_of_features(rng, n, d, r, s=None):
    """Features, each r times the one before plus s times a normal number."""
    X = rng.normal(size=(n, d))
    for j in range(1, d):
        X[:, j] = r * X[:, j - 1] + (np.sqrt(1 - r * r) if s is None else s) * X[:, j]
    return X


def enumerated(model):
    """All inclusion patterns: the log-density of y, and means and second moments of coefficients.

    The log-densities leave out the prior of the pattern of none.
    """
    X, y, prior = model.X.astype(float), model.y, model.prior
    n, d = X.shape
    patterns = np.array(list(itertools.product([0, 1], repeat=d)))
    slab_mean, slab_var = patterns * (prior.field / prior.precision), patterns / prior.precision
    B = model.noise_variance * np.eye(n) + (X * slab_var[:, None]) @ X.T
    rest = (y - slab_mean @ X.T)[..., None]
    solved = np.linalg.solve(B, np.concatenate([np.broadcast_to(X, (len(B), n, d)), rest], axis=2))
    gain = slab_var[..., None] * solved[..., :d].swapaxes(1, 2)
    means = slab_mean + (gain @ rest)[..., 0]
    seconds = slab_var[:, None] * (np.eye(d) - gain @ X) + means[:, :, None] * means[:, None]
    fit = (rest * solved[..., d:]).sum((1, 2)) + np.linalg.slogdet(2 * np.pi * B)[1]
    weights = patterns @ prior.log_odds - fit / 2
    return patterns, weights, means, seconds


def equal_columns():
    """Features, of which two are equal and have an effect, and their target."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=(50, 3))
    y = 2 * A[:, 0] - A[:, 1] + 0.1 * rng.normal(size=50)
    return A[:, [0, 0, 1, 2]], y


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
