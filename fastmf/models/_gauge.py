"""Gauges: parameters of machines with groups of states that differ, and probabilities that do not.

Zero-sum: the couplings of each pair and the field of each position have mean zero over the states
of either position. Lattice gas: everything of a reference state of each position is zero. Absent
positions (gaps that are ignored) break the symmetry: then probabilities do change.
"""

import numpy as np
import scipy

from fastmf.priors._groups import fields_of_groups, groups, has_groups
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


def in_gauge(couplings, field, sizes, gauge, reference=0):
    """Parameters in a gauge."""
    groups = PositionStates(sizes)
    position = groups.position
    if gauge == "zero-sum":
        means = groups.means(couplings)
        both = groups.means(np.swapaxes(means, -1, -2))
        shift = groups.zero_sum(means.sum(-1) + field)
    else:
        kept = groups.first + reference
        means = couplings[..., kept]
        both = np.swapaxes(means, -1, -2)[..., kept]
        shift = means.sum(-1) + field
        shift = shift - shift[..., kept][..., position]
    out = couplings - means[..., position]
    out -= np.swapaxes(means, -1, -2)[..., position, :]
    out += both[..., position, :][..., position]
    return out, shift


def sparse_in_gauge(couplings, field, sizes, gauge, reference=0):
    """`in_gauge` of one csr_array of couplings, without a dense matrix."""
    groups = PositionStates(sizes)
    n_states, n_groups = len(groups.position), len(groups.sizes)
    members = scipy.sparse.csr_array((np.ones(n_states), (np.arange(n_states), groups.position)))
    if gauge == "zero-sum":
        weights = members / groups.sizes
    else:
        kept = np.ones(n_groups), (groups.first + reference, np.arange(n_groups))
        weights = scipy.sparse.csr_array(kept, shape=(n_states, n_groups))
    means = couplings @ weights
    shift = means.sum(1) + field
    shift = shift - (shift @ weights)[groups.position]
    moved = means @ members.T
    return couplings - moved - moved.T + members @ (weights.T @ means) @ members.T, shift


def position_in_zero_sum(couplings, groups):
    """The couplings of one position, (q_i, n_states), in the zero-sum gauge."""
    return groups.zero_sum(couplings - couplings.mean(0))


def layered_in_gauge(model, gauge, reference=0):
    """Couplings and layers of a layered machine in a gauge.

    The couplings of each group have, for each unit of the neighbouring layer, the mean zero over
    its states, or are zero at the reference state; the fields of groups likewise.
    """
    couplings = [np.array(w, np.float64) for w in model.couplings]
    shifts = [np.zeros(n) for n in model.sizes]
    for k, w in enumerate(couplings):
        for group in groups(model.layers[k]):
            taken = _taken(w[group], gauge, reference)
            w[group] -= taken
            shifts[k + 1] += taken
        for group in groups(model.layers[k + 1]):
            taken = _taken(w[:, group].T, gauge, reference)
            w[:, group] -= taken[:, None]
            shifts[k] += taken
    layers = []
    for prior, shift in zip(model.layers, shifts, strict=True):
        moved = with_shifted_field(prior, shift)
        if has_groups(prior):
            back = np.zeros(len(shift))
            for group, field in zip(groups(prior), fields_of_groups(moved), strict=True):
                back[group] = -_taken(field, gauge, reference)
            moved = with_shifted_field(moved, back)
        layers.append(moved)
    return tuple(w.astype(model.dtype) for w in couplings), tuple(layers)


def _taken(rows, gauge, reference):
    """Part that the gauge takes from the parameters of a group, one row a state."""
    if gauge == "zero-sum":
        return rows.mean(0)
    if reference >= len(rows):
        raise ValueError(f"reference must be a state of every group, got {reference}.")
    return rows[reference].copy()
