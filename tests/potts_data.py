"""Rows of labels, and the pseudo-likelihood of a Potts machine by its definition."""

import numpy as np


def random_rows(sizes, n_rows=80, *, missing=0.0, seed=0):
    """Labels whose neighbouring positions tend to agree, and weights."""
    rng = np.random.default_rng(seed)
    sizes = np.asarray(sizes)
    labels = rng.integers(0, sizes, (n_rows, len(sizes)))
    for i in range(1, len(sizes)):
        copied = rng.random(n_rows) < 0.4
        labels[copied, i] = labels[copied, i - 1] % sizes[i]
    labels[rng.random(labels.shape) < missing] = -1
    return labels, rng.random(n_rows) + 0.2


def random_parameters(sizes, *, strength=0.5, seed=1):
    """Flat couplings, symmetric and zero within positions, and a field."""
    rng = np.random.default_rng(seed)
    position = positions(sizes)
    J = rng.normal(size=(len(position), len(position))) * strength
    J = (J + J.T) / 2
    J[position[:, None] == position] = 0
    return J, rng.normal(size=len(position)) * strength


def all_labels(sizes):
    """All rows of labels; the last position alternates fastest."""
    return np.stack(np.unravel_index(np.arange(np.prod(sizes)), tuple(sizes)), -1)


def positions(sizes):
    """The position of each flat state."""
    return np.repeat(np.arange(len(sizes)), sizes)


def one_hot(labels, sizes):
    """Flat one-hot rows; zeros where labels are missing."""
    first = np.cumsum(sizes) - sizes
    out = np.zeros((len(labels), int(np.sum(sizes))))
    s, i = np.nonzero(labels >= 0)
    out[s, first[i] + labels[s, i]] = 1
    return out


def log_pseudo_likelihood(J, h, labels, sizes):
    """Of each row, position by position; if J is not symmetric, J[a] couple to state a."""
    x, position = one_hot(labels, sizes), positions(sizes)
    eta = x @ J.T + h
    total = np.zeros(len(labels))
    for i in range(len(sizes)):
        mine = eta[:, position == i]
        log_p = mine - np.log(np.exp(mine).sum(1, keepdims=True))
        total += (log_p * x[:, position == i]).sum(1)
    return total


def penalised(J, h, rows, sizes, l2, l2_field):
    """The symmetric objective of all rows."""
    labels, weights = rows
    N = weights.sum()
    value = weights @ log_pseudo_likelihood(J, h, labels, sizes)
    return value - N * l2 / 4 * (J**2).sum() - N * l2_field / 2 * (h**2).sum()


def derivative(function, x, direction, step=1e-5):
    """Central difference along a direction."""
    return (function(x + step * direction) - function(x - step * direction)) / (2 * step)
