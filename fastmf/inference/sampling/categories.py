"""Samples of a Boltzmann machine of categorical units."""

import math

import numpy as np
from scipy.special import logsumexp

from fastmf.inference.sampling.trees import tree_draws

# Up to so many states of all groups together are enumerated.
MAX_ENUMERATED_STATES = 1 << 16


def all_labels(sizes):
    """All rows of labels; the last group alternates fastest."""
    return np.stack(np.unravel_index(np.arange(math.prod(map(int, sizes))), tuple(sizes)), -1)


def softmax(t):
    """Probabilities proportional to exp(t) along the last axis."""
    return np.exp(t - logsumexp(t, axis=-1, keepdims=True))


def sample(model, n_samples, rng, n_sweeps=100):
    """Samples: exact ones where all states can be enumerated, by Gibbs sampling beyond.

    Chains start from exact draws with the couplings of the maximum spanning tree alone.

    Parameters
    ----------
    model : BoltzmannMachine
        With `Categorical` units.
    n_samples : int
    rng : numpy Generator
    n_sweeps : int
        Sweeps of each chain, one for each sample.

    Returns
    -------
    int64 array of shape (n_samples, n_groups)
        Labels.
    """
    prior = model.prior
    sizes = prior.sizes
    if math.prod(map(int, sizes)) <= MAX_ENUMERATED_STATES:
        labels = all_labels(sizes)
        p = softmax(-model.energy(labels))
        return labels[_drawn(np.cumsum(p)[None], rng.random(n_samples))]
    return sweeps(model, tree_draws(model, n_samples, rng), n_sweeps, rng)


def sweeps(model, labels, n_sweeps, rng):
    """Labels of Gibbs chains after more sweeps, each group in turn.

    Parameters
    ----------
    model : BoltzmannMachine
        With `Categorical` units.
    labels : int array of shape (n_chains, n_groups)
        Not changed.
    n_sweeps : int
    rng : numpy Generator

    Returns
    -------
    int64 array of shape (n_chains, n_groups)
    """
    prior, couplings = model.prior, model.couplings
    sizes, starts = prior.sizes, prior.starts
    labels = np.array(labels)
    local = np.repeat(prior.field[None], len(labels), axis=0)
    for i, start in enumerate(starts):
        local += couplings[start + labels[:, i]]
    for _ in range(n_sweeps):
        for i, (start, size) in enumerate(zip(starts, sizes, strict=True)):
            cumulative = np.cumsum(softmax(local[:, start : start + size]), axis=1)
            new = _drawn(cumulative, rng.random(len(labels)))
            moved = np.flatnonzero(new != labels[:, i])
            # Only in chains that changed this label fields change.
            local[moved] += couplings[start + new[moved]] - couplings[start + labels[moved, i]]
            labels[:, i] = new
    return labels


def _drawn(cumulative, uniform):
    """The first state whose cumulative probability is above a uniform number, for each."""
    if len(cumulative) == 1:
        below = np.searchsorted(cumulative[0], uniform * cumulative[0, -1], side="right")
    else:
        below = (cumulative <= (uniform * cumulative[:, -1])[:, None]).sum(1)
    return np.minimum(below, cumulative.shape[1] - 1)
