"""The graph of a fully visible machine: which units are coupled, and by what."""

from typing import NamedTuple

import numpy as np

from fastmf._common.rows import is_sparse
from fastmf.models._couplings import stored
from fastmf.priors._groups import column_sizes, has_groups
from fastmf.priors._queries import state_counts


class PairwiseGraph(NamedTuple):
    """Edges between units, where a group of states is one unit."""

    # int64 (n_edges, 2): pairs with a coupling that is not zero, each once, the smaller number
    # first, in lexicographic order
    edges: np.ndarray
    # int64 (n_units,): number of states of each unit; 0 for units with a continuum of values, or
    # with unknown values
    n_states: np.ndarray
    # (offsets[-1],): the coupling of each edge. For categorical units i < j
    # ``values[offsets[e]:offsets[e + 1]].reshape(n_states[i], n_states[j])`` is the table of the
    # logarithms; a unit that is no group has one row or column in it, which its value multiplies
    values: np.ndarray
    offsets: np.ndarray  # int64 (n_edges + 1,)


def pairwise_graph(model):
    """The `PairwiseGraph` of a BoltzmannMachine with dense or sparse couplings."""
    rows, columns, values = _entries(model.couplings)
    n_states = state_counts(model.prior)
    upper = rows < columns
    rows, columns, values = (part[upper] for part in (rows, columns, values))
    if not has_groups(model.prior):
        edges = np.stack([rows, columns], 1).astype(np.int64)
        return PairwiseGraph(edges, n_states, values, np.arange(len(edges) + 1))
    sizes = column_sizes(model.prior)
    unit, first = np.repeat(np.arange(len(sizes)), sizes), np.cumsum(sizes) - sizes
    i, j = unit[rows], unit[columns]
    pairs, edge = np.unique(i * len(sizes) + j, return_inverse=True)
    edges = np.stack(np.divmod(pairs, len(sizes)), 1).astype(np.int64)
    offsets = np.append(0, np.cumsum(sizes[edges].prod(1)))
    tables = np.zeros(offsets[-1], values.dtype)
    within = (rows - first[i]) * sizes[j] + columns - first[j]
    tables[offsets[edge.reshape(-1)] + within] = values
    return PairwiseGraph(edges, n_states, tables, offsets)


def _entries(couplings):
    """Rows, columns and values of the couplings that are not zero, row by row."""
    if is_sparse(couplings):
        return stored(couplings)
    rows, columns = np.nonzero(couplings)
    return rows, columns, couplings[rows, columns]
