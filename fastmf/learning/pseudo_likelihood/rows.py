"""Distinct rows with the weights of their copies, units of sampling, and available cases.

The conditional probability of a unit needs its neighbours in the graph alone, so that

    sum_r w_r sum_i a_ri ln p(x_ri | neighbours of i in row r)

with a_ri = 1 where unit i and all its neighbours were seen in row r, and else 0, needs nothing that
is missing. Its score has mean zero if values are missing completely at random. Where all pairs of
units may be coupled, its rows are the complete ones.
"""

from typing import NamedTuple

import numpy as np
from scipy import sparse


def distinct(labels, weights):
    """Return distinct rows of positive weight, their weights, and the place of each row."""
    present, members = weights > 0, np.full(len(weights), -1)
    labels, weights = np.ascontiguousarray(labels[present]), weights[present]
    keys = labels
    if labels.size and -128 <= labels.min() and labels.max() < 128:
        keys = labels.astype(np.int8)
    keys = keys.view(np.dtype((np.void, keys.dtype.itemsize * keys.shape[1])))[:, 0]
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    if len(first) == len(labels):
        members[present] = np.arange(len(labels))
        return labels, weights, members
    members[present] = inverse.reshape(-1)
    return labels[first], np.bincount(members[present], weights, len(first)), members


def sampling(members, weights, clusters=None):
    """Units of independent sampling, as `CompositeLikelihood.score_covariance` takes them."""
    present = members >= 0
    members, share = members[present], (weights / weights.sum())[present]
    n = int(members.max(initial=-1)) + 1
    if clusters is None:
        return np.bincount(members, share**2, n)
    labels, cluster = np.unique(np.asarray(clusters)[present], return_inverse=True)
    return sparse.coo_array((share, (cluster, members)), shape=(len(labels), n)).tocsr()


def available(labels, edges=None):
    """The terms of the rows that need no missing value."""
    seen = labels >= 0
    if edges is None:
        return np.repeat(seen.all(1, keepdims=True), seen.shape[1], axis=1)
    terms = seen.copy()
    for i, j in edges:
        terms[:, i] &= seen[:, j]
        terms[:, j] &= seen[:, i]
    return terms


def target_labels(labels, edges):
    """Labels of available terms, and -1 for all other terms."""
    return np.where(available(labels, edges), labels, -1)


class WeightedRows(NamedTuple):
    """Rows of spins and their weights.

    Parameters
    ----------
    states : array of shape (n_rows, n_units)
        Spins, -1 and +1, float64; 0 where missing.
    weights : array of shape (n_rows,)
        Positive.
    targets : array of shape (n_rows, n_units), optional
        The spins of units whose conditional probabilities are in the sum, 0 for all others: of
        available cases. Default all.
    """

    states: np.ndarray
    weights: np.ndarray
    targets: np.ndarray | None = None

    @classmethod
    def of_labels(cls, labels, weights, edges=None):
        """Rows of labels 0 and 1, negative where missing; only `edges` may be coupled."""
        states = 2.0 * labels - 1
        if not (labels < 0).any():
            return cls(states, weights)
        states[labels < 0] = 0
        return cls(states, weights, states * available(labels, edges))

    @property
    def total(self):
        """Weight of all rows together."""
        return self.weights.sum()

    @property
    def own(self):
        """The spins whose conditional probabilities are in the sum, and zeros."""
        return self.states if self.targets is None else self.targets

    def weighted(self, weights):
        """The same with other weights; rows of weight 0 are left out."""
        positive = weights > 0
        targets = None if self.targets is None else self.targets[positive]
        return WeightedRows(self.states[positive], weights[positive], targets)

    def joined(self, other):
        """These rows and others."""
        none = self.targets is None and other.targets is None
        return WeightedRows(
            np.concatenate([self.states, other.states]),
            np.concatenate([self.weights, other.weights]),
            None if none else np.concatenate([self.own, other.own]),
        )

    def constant_units(self):
        """Units with a single value, wherever they have a part of their own in the sum."""
        return np.flatnonzero((self.own >= 0).all(0) | (self.own <= 0).all(0))

    def moments(self):
        """Weighted means of x_j and of x_j x_k; missing values are replaced by means."""
        if self.targets is not None:
            seen = self.states != 0
            sums, counts = self.weights @ self.states, self.weights @ seen
            means = np.divide(sums, counts, out=np.zeros_like(sums), where=counts > 0)
            return WeightedRows(np.where(seen, self.states, means), self.weights).moments()
        mean = self.weights @ self.states / self.total
        second = np.zeros(2 * mean.shape)
        # In blocks: a copy of all rows would double the memory.
        size = max(256, (1 << 20) // len(mean))
        for i in range(0, len(self.weights), size):
            states = self.states[i : i + size]
            second += states.T @ (self.weights[i : i + size, None] * states)
        return mean, second / self.total


def distinct_rows(states, weights=None):
    """Return the distinct rows of spins of positive weight as `WeightedRows`."""
    weights = np.ones(len(states)) if weights is None else weights
    labels, weights, _ = distinct((states > 0).astype(np.int8), weights)
    return WeightedRows(2.0 * labels - 1, weights)
