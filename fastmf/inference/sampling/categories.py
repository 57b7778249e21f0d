"""Samples of a Boltzmann machine of categorical units."""

import math

import numpy as np
from scipy.special import logsumexp

from fastmf.inference.sampling.trees import annealed_draws

# Up to so many states of all groups together are enumerated.
MAX_ENUMERATED_STATES = 1 << 16


def all_labels(sizes):
    """All rows of labels; the last group alternates fastest."""
    return np.stack(np.unravel_index(np.arange(math.prod(map(int, sizes))), tuple(sizes)), -1)


def softmax(t):
    """Probabilities proportional to exp(t) along the last axis."""
    return np.exp(t - logsumexp(t, axis=-1, keepdims=True))


def sample(model, n_samples, rng, n_sweeps=100):
    """Samples: exact ones where all states can be enumerated, `annealed_draws` beyond."""
    prior = model.prior
    sizes = prior.sizes
    if math.prod(map(int, sizes)) <= MAX_ENUMERATED_STATES:
        labels = all_labels(sizes)
        p = softmax(-model.energy(labels))
        below, u = np.cumsum(p), rng.random(n_samples)
        drawn = np.searchsorted(below, u * below[-1], side="right")
        return labels[np.minimum(drawn, len(p) - 1)]
    return prior.labels(annealed_draws(model, n_samples, n_sweeps, rng))
