"""Distinct rows of spins, each with the sum of the weights of its copies."""

from typing import NamedTuple

import numpy as np

from fastmf.learning.pseudo_likelihood.available import available

# Units up to which the sum of +-2^k is an exact key of a row in double precision.
_MAX_KEY_UNITS = 52


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
        """Rows of labels 0 and 1, negative where missing, of which `edges` may be coupled."""
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
        kept = weights > 0
        targets = None if self.targets is None else self.targets[kept]
        return WeightedRows(self.states[kept], weights[kept], targets)

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
    """Distinct rows of positive weight, with the sums of the weights of equal rows.

    Rows are packed into numbers and sorted, which is far faster than `np.unique(axis=0)`.
    """
    n_rows, n_units = states.shape
    if n_units <= _MAX_KEY_UNITS:
        keys = states @ 2.0 ** np.arange(n_units)
        if weights is None:
            keys, weights = np.unique(keys, return_counts=True)
            bits = ((keys + (2.0**n_units - 1)) / 2).astype(np.int64)
            units = (bits[:, None] >> np.arange(n_units)) & 1
            return WeightedRows(2.0 * units - 1, weights.astype(float))
        _, first, members = np.unique(keys, return_index=True, return_inverse=True)
    else:
        packed = np.packbits(states > 0, axis=1)
        padded = np.zeros((n_rows, -(-packed.shape[1] // 8) * 8), np.uint8)
        padded[:, : packed.shape[1]] = packed
        _, first, members = np.unique(
            padded.view(np.uint64), axis=0, return_index=True, return_inverse=True
        )
    members = members.reshape(-1)
    weights = np.bincount(members, weights, len(first)).astype(float)
    kept = weights > 0
    if len(first) == n_rows and kept.all():
        # All rows differ: they are kept in their order.
        return WeightedRows(np.ascontiguousarray(states, float), weights[members])
    return WeightedRows(np.ascontiguousarray(states[first[kept]], float), weights[kept])
