"""Exact answers for small discrete models, by enumeration: what approximations are measured by."""

import itertools
from typing import NamedTuple

import numpy as np

from fastmf.models.boltzmann import BoltzmannMachine
from fastmf.models.dbm import DBM
from fastmf.models.rbm import RBM

LARGEST = 20
_CHUNK = 1 << 13


class Exact(NamedTuple):
    """What `exact` returns.

    Parameters
    ----------
    log_partition : float
    mean, var : array of shape (n_units,), or tuple (visible, hidden, ...) of arrays
    pairwise : array or tuple of arrays
        <x_i x_j>, (n_units, n_units); for an RBM <v_i h_j>, (n_visible, n_hidden), and for a DBM
        one such array for each pair of neighbouring layers.
    """

    log_partition: float
    mean: np.ndarray | tuple
    var: np.ndarray | tuple
    pairwise: np.ndarray | tuple


def exact(model):
    """Log-partition, means, variances and pair averages by summing over all states.

    Parameters
    ----------
    model : BoltzmannMachine, RBM or DBM
        A Boltzmann machine of at most 20 discrete units, or an RBM with one layer of at most 20
        discrete units; the other layer, of any kind, is summed analytically. In a DBM every other
        layer together takes the place of one.

    Returns
    -------
    Exact

    Raises
    ------
    ValueError
        If the model is too large or not discrete.
    TypeError
        If the model is of another class.
    """
    if isinstance(model, RBM):
        return _exact_rbm(model)
    if isinstance(model, DBM):
        return _exact_dbm(model)
    if isinstance(model, BoltzmannMachine):
        return _exact_boltzmann(model)
    raise TypeError(
        f"model must be an RBM, a DBM or a BoltzmannMachine, got {type(model).__name__}."
    )


def _enumerable(prior, n):
    return n <= LARGEST and getattr(prior, "support", None) is not None


def _states(prior, n):
    """All states of `n` units, a chunk of rows at a time."""
    values = np.asarray(prior.support, dtype=float)
    count = len(values) ** n
    place = len(values) ** np.arange(n)
    for start in range(0, count, _CHUNK):
        number = np.arange(start, min(start + _CHUNK, count))[:, None]
        yield values[number // place % len(values)]


def _normalise(log_weights):
    top = max(w.max() for w in log_weights)
    total = sum(np.exp(w - top).sum() for w in log_weights)
    log_partition = top + np.log(total)
    return log_partition, [np.exp(w - log_partition) for w in log_weights]


def _exact_boltzmann(model):
    prior, n = model.prior, model.n_units
    if not _enumerable(prior, n):
        raise ValueError(f"exact needs at most {LARGEST} discrete units, got {model}.")
    log_partition, weights = _normalise([-model.energy(x) for x in _states(prior, n)])
    pairwise, mean = np.zeros((n, n)), np.zeros(n)
    for x, w in zip(_states(prior, n), weights, strict=True):
        mean += w @ x
        pairwise += x.T @ (w[:, None] * x)
    return Exact(float(log_partition), mean, pairwise.diagonal() - mean**2, pairwise)


def _exact_rbm(model):
    v, h, couplings = model.visible, model.hidden, model.weights.astype(float)
    candidates = [
        (n, prior, other, flipped)
        for n, prior, other, flipped in (
            (model.n_visible, v, h, False),
            (model.n_hidden, h, v, True),
        )
        if _enumerable(prior, n)
    ]
    if not candidates:
        raise ValueError(f"exact needs a layer of at most {LARGEST} discrete units, got {model}.")
    n, summed, other, flipped = min(candidates, key=lambda c: c[0])
    if flipped:
        couplings = couplings.T

    log_weights = [
        summed.log_prob(x).sum(1) + other.log_partition(x @ couplings, 0.0).sum(1)
        for x in _states(summed, n)
    ]
    log_partition, weights = _normalise(log_weights)
    mean, square = np.zeros(n), np.zeros(n)
    other_mean, other_square = np.zeros(couplings.shape[1]), np.zeros(couplings.shape[1])
    pairwise = np.zeros(couplings.shape)
    for x, w in zip(_states(summed, n), weights, strict=True):
        m, c = other.moments(x @ couplings, 0.0)
        mean += w @ x
        square += w @ x**2
        other_mean += w @ m
        other_square += w @ (c + m**2)
        pairwise += x.T @ (w[:, None] * m)
    means = mean, other_mean
    variances = square - mean**2, other_square - other_mean**2
    if flipped:
        means, variances, pairwise = means[::-1], variances[::-1], pairwise.T
    return Exact(float(log_partition), means, variances, pairwise)


def _exact_dbm(model):
    whole = _exact_rbm(model.bipartite())
    n_layers = len(model.sizes)

    def parts(sides):
        found = [None] * n_layers
        for side in (0, 1):
            ends = np.cumsum(model.sizes[side::2])[:-1]
            found[side::2] = np.split(sides[side], ends)
        return tuple(found)

    # Each unit's number on its side of the RBM says which pairs belong to two layers.
    numbers = parts([np.arange(len(mean)) for mean in whole.mean])
    pairwise = tuple(
        whole.pairwise[np.ix_(lower, upper)]
        if k % 2 == 0
        else whole.pairwise[np.ix_(upper, lower)].T
        for k, (lower, upper) in enumerate(itertools.pairwise(numbers))
    )
    return Exact(whole.log_partition, parts(whole.mean), parts(whole.var), pairwise)
