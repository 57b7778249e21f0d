"""Rows of ordinal items, and their log-pseudo-likelihood by its definition."""

import itertools

import numpy as np


def random_rows(n_categories, n_rows=200, *, seed=0, weighted=False):
    """Scores of items that depend on a common factor, and weights."""
    rng = np.random.default_rng(seed)
    n_categories = np.asarray(n_categories)
    factor = rng.normal(size=(n_rows, 1))
    levels = 0.5 + 0.25 * factor + 0.25 * rng.normal(size=(n_rows, len(n_categories)))
    states = np.clip((levels * n_categories).astype(int), 0, n_categories - 1)
    return states, rng.random(n_rows) + 0.1 if weighted else np.ones(n_rows)


def log_weights(sigma, mu, states):
    """Logarithms of unnormalised probabilities of states."""
    fields = sum(np.append(0, mu[i])[states[:, i]] for i in range(len(mu)))
    return ((states @ sigma) * states).sum(1) / 2 + fields


def _conditionals(sigma, mu, states, i):
    """Probabilities of the categories of item i given all others, (n_rows, m + 1)."""
    rest = sum(sigma[i, j] * states[:, j] for j in range(len(mu)) if j != i)
    eta = np.append(0, mu[i]) + np.arange(len(mu[i]) + 1) * rest[:, None]
    p = np.exp(eta - eta.max(1, keepdims=True))
    return p / p.sum(1, keepdims=True)


def log_pseudo_likelihoods(sigma, mu, states):
    """Sum over items of the log-probability given all others, for each row."""
    rows = np.arange(len(states))
    return sum(
        np.log(_conditionals(sigma, mu, states, i)[rows, states[:, i]]) for i in range(len(mu))
    )


def scores(sigma, mu, states):
    """Derivatives of rows' values by all thresholds, then by couplings i < j, item by item."""
    d, first = len(mu), np.cumsum([0, *map(len, mu)])
    pairs = {pair: first[-1] + k for k, pair in enumerate(itertools.combinations(range(d), 2))}
    out = np.zeros((len(states), first[-1] + len(pairs)))
    for i in range(d):
        c, p = np.arange(len(mu[i]) + 1), _conditionals(sigma, mu, states, i)
        out[:, first[i] : first[i + 1]] = ((c == states[:, i, None]) - p)[:, 1:]
        for j in range(d):
            if j != i:
                out[:, pairs[min(i, j), max(i, j)]] += states[:, j] * (states[:, i] - p @ c)
    return out
