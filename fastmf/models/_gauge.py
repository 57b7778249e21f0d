"""Gauges: parameters of machines with groups of states that differ, and probabilities that do not.

Zero-sum: the couplings of each pair and the field of each position have mean zero over the states
of either position. Lattice gas: everything of a reference state of each position is zero. Absent
positions (gaps that are ignored) break the symmetry: then probabilities do change.
"""

import numpy as np
import scipy

from fastmf._common.rows import is_sparse
from fastmf.priors._groups import column_is_group, column_sizes, fields_of_groups, groups
from fastmf.priors._queries import with_shifted_field

GAUGES = ("zero-sum", "lattice")


class PositionStates:
    """Flat states of positions.

    Parameters
    ----------
    sizes : int array of shape (n_groups,)
    """

    def __init__(self, sizes):
        self.sizes = np.asarray(sizes)
        self.first = np.cumsum(self.sizes) - self.sizes
        self.position = np.repeat(np.arange(len(self.sizes)), self.sizes)

    def means(self, array):
        """Means over the states of each position, along the last axis."""
        return np.add.reduceat(array, self.first, axis=-1) / self.sizes

    def zero_sum(self, array):
        """The array less these means."""
        return array - self.means(array)[..., self.position]

    def softmax(self, fields):
        """Probabilities of the states of each position, along the last axis."""
        largest = np.maximum.reduceat(fields, self.first, axis=-1)
        p = np.exp(fields - largest[..., self.position])
        p /= np.add.reduceat(p, self.first, axis=-1)[..., self.position]
        return p

    def log_softmax(self, fields):
        """Logarithms of these probabilities."""
        logs = fields - np.maximum.reduceat(fields, self.first, axis=-1)[..., self.position]
        logs -= np.log(np.add.reduceat(np.exp(logs), self.first, axis=-1))[..., self.position]
        return logs


def projection(sizes, gauge, reference=0, is_group=True):
    """Matrix Q and weights w of a gauge: Q x is x less w'x of each group of states.

    Columns that are no group stay as they are.
    """
    positions, is_group = PositionStates(sizes), np.broadcast_to(is_group, len(sizes))
    if gauge == "zero-sum":
        weights = np.where(is_group, 1 / positions.sizes, 0.0)[positions.position]
    else:
        if reference >= positions.sizes[is_group].min(initial=reference + 1):
            raise ValueError(f"reference must be a state of every group, got {reference}.")
        weights = np.zeros(len(positions.position))
        weights[(positions.first + reference)[is_group]] = 1
    states, shape = np.arange(len(weights)), (len(weights), len(sizes))
    members = scipy.sparse.csr_array((np.ones(len(weights)), (states, positions.position)), shape)
    used = np.flatnonzero(weights)
    entries = weights[used], (used, positions.position[used])
    taken = members @ scipy.sparse.csr_array(entries, shape).T
    return scipy.sparse.csr_array(scipy.sparse.identity(len(weights))) - taken, weights


def in_gauge(couplings, field, sizes, gauge, reference=0):
    """Parameters Q J Q' and Q (h + J w) in a gauge; dense ones may have further axes in front."""
    Q, weights = projection(sizes, gauge, reference)
    shift = (field + couplings @ weights) @ Q.T
    if is_sparse(couplings):
        return Q @ couplings @ Q.T, shift
    for _ in range(2):  # rows, then columns
        projected = couplings.reshape(-1, len(weights)) @ Q.T
        couplings = np.swapaxes(projected.reshape(couplings.shape), -1, -2)
    return couplings, shift


def position_in_zero_sum(couplings, groups):
    """The couplings of one position, (q_i, n_states), in the zero-sum gauge."""
    return groups.zero_sum(couplings - couplings.mean(0))


def layered_in_gauge(model, gauge, reference=0):
    """Couplings and layers of a layered machine in a gauge.

    The couplings of each group have, for each unit of the neighbouring layer, the mean zero over
    its states, or are zero at the reference state; the fields of groups likewise.
    """
    gauges = [
        projection(column_sizes(layer), gauge, reference, column_is_group(layer))
        for layer in model.layers
    ]
    couplings, shifts = [], [np.zeros(n) for n in model.sizes]
    for k, w in enumerate(model.couplings):
        (lower, lower_weights), (upper, upper_weights) = gauges[k : k + 2]
        shifts[k + 1] += lower_weights @ w
        w = lower @ w.astype(np.float64)
        shifts[k] += w @ upper_weights
        couplings.append((w @ upper.T).astype(model.dtype))
    layers = []
    for prior, shift, (Q, _) in zip(model.layers, shifts, gauges, strict=True):
        moved, field = with_shifted_field(prior, shift), np.zeros(len(shift))
        for group, fields in zip(groups(moved), fields_of_groups(moved), strict=True):
            field[group] = fields
        layers.append(with_shifted_field(moved, Q @ field - field) if field.any() else moved)
    return tuple(couplings), tuple(layers)
