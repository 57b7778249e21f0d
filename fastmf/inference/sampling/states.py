"""States of discrete columns, and batches of rows that lack columns with equal state counts.

A column is a unit, or a group of categorical states. Its states are numbered, and represented as
one-hot vectors, whatever their values.
"""

import math
from typing import NamedTuple

import numpy as np
import scipy

from fastmf.models._state_tables import states_of_units
from fastmf.models.exact import numbered_states
from fastmf.priors._groups import column_sizes
from fastmf.priors._queries import state_counts


class FlatStates(NamedTuple):
    """The concatenated states of all columns of a layer."""

    # sparse (n_states, n_units): values of the units of a column in its states, zero elsewhere
    values: scipy.sparse.csr_array
    log_weights: np.ndarray  # float64 (n_states,): log-weights of the prior
    offsets: np.ndarray  # int (n_columns + 1,): first state of each column, and the total number
    first_units: np.ndarray  # int (n_columns,): first unit of each column

    def missing(self, X):
        """Return whether each column of each row is missing: NaN in its first unit."""
        return np.isnan(X[:, self.first_units])

    def means(self, probabilities):
        """Compute means of the units, (n_rows, n_units), from probabilities of the states."""
        return (self.values.T @ probabilities.T).T


def flat_states(prior):
    """Return the states of the columns of a layer, None if units are not discrete.

    States of zero weight are left out.
    """
    if not state_counts(prior).all():
        return None
    states, widths = states_of_units(prior), column_sizes(prior)
    occurs = np.flatnonzero(states.weights > -np.inf)
    offsets = np.searchsorted(occurs, np.append(0, np.cumsum(states.sizes)))
    n_units, columns = int(widths.sum()), states.columns[occurs]
    rows = states.values[occurs], columns, np.arange(len(occurs) + 1)
    values = scipy.sparse.csr_array(rows, shape=(len(occurs), n_units))
    return FlatStates(values, states.weights[occurs], offsets, np.cumsum(widths) - widths)


def batches_of_rows(missing, offsets):
    """Yield batches of rows whose missing columns have the same numbers of states."""
    sizes = np.diff(offsets)
    distinct = np.unique(sizes)
    counts = np.stack([missing[:, sizes == size].sum(1) for size in distinct], 1)
    batches, batch = np.unique(counts, axis=0, return_inverse=True)
    for number, counts in enumerate(batches):
        rows = np.flatnonzero(batch.reshape(-1) == number)
        state_counts = np.repeat(distinct, counts)
        key = np.where(missing[rows], sizes, sizes.max() + 1)
        columns = np.argsort(key, axis=1, kind="stable")[:, : len(state_counts)]
        within = np.concatenate([np.arange(size) for size in state_counts] or [np.zeros(0, int)])
        yield rows, np.repeat(offsets[columns], state_counts, axis=1) + within, state_counts


def one_hot_states(sizes):
    """Return all joint states of some columns, one-hot: (n_states, sum of sizes)."""
    n_states = math.prod(map(int, sizes))
    return numbered_states([np.eye(size) for size in sizes], np.arange(n_states))
