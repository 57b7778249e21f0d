"""Gauges: different parameters of machines with groups of states, with the same probabilities.

Zero-sum: the couplings of each pair and the field of each position have mean zero over the states
of either position. Lattice gas: couplings and field of a reference state of each position are zero.
Absent positions (gaps that are ignored) break the symmetry: then probabilities change.
"""

import numpy as np

GAUGES = ("zero-sum", "lattice")


class PositionStates:
    """Concatenated states of positions with these numbers of states."""

    def __init__(self, sizes):
        self.sizes = np.asarray(sizes)
        self.first = np.cumsum(self.sizes) - self.sizes
        self.position = np.repeat(np.arange(len(self.sizes)), self.sizes)

    def means(self, array):
        """Average over the states of each position, along the last axis."""
        return np.add.reduceat(array, self.first, axis=-1) / self.sizes

    def zero_sum(self, array):
        """Subtract the means over the states of each position."""
        return array - self.means(array)[..., self.position]

    def softmax(self, fields):
        """Compute probabilities of the states of each position, along the last axis."""
        largest = np.maximum.reduceat(fields, self.first, axis=-1)
        p = np.exp(fields - largest[..., self.position])
        p /= np.add.reduceat(p, self.first, axis=-1)[..., self.position]
        return p

    def log_softmax(self, fields):
        """Compute the logarithms of `softmax`."""
        logs = fields - np.maximum.reduceat(fields, self.first, axis=-1)[..., self.position]
        logs -= np.log(np.add.reduceat(np.exp(logs), self.first, axis=-1))[..., self.position]
        return logs


def in_gauge(couplings, field, sizes, gauge, reference=0):
    """Transform couplings and fields to a gauge; arrays may have further leading axes."""
    positions = PositionStates(sizes)
    if reference >= positions.sizes.min():
        raise ValueError(f"reference must be a state of every group, got {reference}.")

    def removed(array):
        if gauge == "zero-sum":
            return positions.means(array)
        return array[..., positions.first + reference]

    def projected(array):
        return array - removed(array)[..., positions.position]

    field = projected(field + removed(couplings).sum(-1))
    for _ in range(2):  # columns, then rows
        couplings = np.swapaxes(projected(couplings), -1, -2)
    return couplings, field
