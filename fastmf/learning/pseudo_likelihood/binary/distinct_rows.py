"""Distinct rows of spins, each with the sum of the weights of its copies."""

from typing import NamedTuple

import numpy as np

# Units up to which the sum of +-2^k is an exact key of a row in double precision.
_MAX_KEY_UNITS = 52


class WeightedRows(NamedTuple):
    """Rows of spins and their weights.

    Parameters
    ----------
    states : array of shape (n_rows, n_units)
        Spins, -1 and +1, float64.
    weights : array of shape (n_rows,)
        Positive.
    """

    states: np.ndarray
    weights: np.ndarray

    @property
    def total(self):
        """Weight of all rows together."""
        return self.weights.sum()

    def moments(self):
        """Weighted means of x_j and of x_j x_k."""
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

    Parameters
    ----------
    states : array of shape (n_rows, n_units)
        Spins, -1 and +1.
    weights : array of shape (n_rows,), optional
        Not negative; default ones.

    Returns
    -------
    WeightedRows
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
