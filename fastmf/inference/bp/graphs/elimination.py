"""Exact marginals of graphs of small width, to take or to compare with."""

from typing import NamedTuple

import numpy as np

from fastmf.models._graph_sums import MAX_ENTRIES, eliminated, is_small
from fastmf.models._state_tables import Tables


class BestState(NamedTuple):
    """A most probable state of one row, labels (n_units,), and its exponent."""

    labels: np.ndarray
    objective: float


def best_states(units, rows):
    """The `BestState` of some rows by elimination; None if their tables are large."""
    plans, out = {}, []
    if not is_small(units.graph, len(rows)):
        return None
    for row in rows:
        tables = tables_of(units.row(row))
        result = eliminated(tables, MAX_ENTRIES / len(rows), plans, mode=True)
        if result is None:
            return None
        labels = np.zeros(len(tables.sizes), np.int64)
        if result.log_partition > -np.inf:
            labels = np.flatnonzero(result.units) - tables.first
        out.append(BestState(labels, result.log_partition))
    return out


def tables_of(units):
    """The `Tables` of a graph with one row."""
    fields = np.empty(units.first_state[-1])
    fields[units.state_order] = units.problem()[0].field[0]
    return Tables(units.graph.n_states, units.graph.edges, fields, units.tables[1])
