"""Exact marginals of graphs of small width, to take or to compare with."""

from typing import NamedTuple

import numpy as np

from fastmf.models._elimination import Tables
from fastmf.models._quick_elimination import eliminated


class Eliminated(NamedTuple):
    """Exact sums of one row.

    Parameters
    ----------
    log_partition : float
    beliefs : array of shape (n_states,)
        Probabilities of the states of all units.
    pairs : array of shape (n_values,)
        Probabilities of the pairs of states of all edges, table after table.
    """

    log_partition: float
    beliefs: np.ndarray
    pairs: np.ndarray


def eliminated_units(units, max_entries, plans):
    """The `Eliminated` sums of a graph with one row.

    Parameters
    ----------
    units : GraphUnits
        With one row at most.
    max_entries, plans
        As for `fastmf.models._quick_elimination.eliminated`.

    Returns
    -------
    Eliminated or None
        None if there are more entries. If no state is possible, -inf and probabilities of 0.
    """
    sizes, edges = units.graph.n_states, units.graph.edges
    flat = np.empty(units.first_state[-1])
    flat[units.state_order] = units.problem()[0].field[0]
    first, values = units.tables
    n_states = int(sizes.max(initial=1))
    if (sizes == n_states).all():
        tables, fields = values.reshape(-1, n_states, n_states), flat.reshape(-1, n_states)
    else:
        tables = [
            table.reshape(shape)
            for table, shape in zip(np.split(values, first[1:-1]), sizes[edges], strict=False)
        ]
        fields = np.split(flat, units.first_state[1:-1])
    found = eliminated(Tables(fields, edges, tables), max_entries, plans)
    if found is None:
        return None
    if found.units is None:
        return Eliminated(-np.inf, np.zeros_like(flat), np.zeros_like(values))
    units, pairs = (_joined(parts) for parts in (found.units, found.pairs))
    return Eliminated(found.log_partition, units, pairs)


def _joined(parts):
    """The entries of all arrays, one after the other."""
    if isinstance(parts, np.ndarray):
        return parts.ravel()
    return np.concatenate([np.zeros(0), *map(np.ravel, parts)])
