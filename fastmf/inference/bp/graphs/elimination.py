"""Exact marginals of graphs of small width, to take or to compare with."""

from typing import NamedTuple

import numpy as np

from fastmf.models._graph_sums import eliminated, is_small
from fastmf.models._state_tables import Marginals, Tables


def eliminated_units(units, max_entries, plans):
    """The exact `Marginals` of a graph with one row; None if its tables are large."""
    tables = _tables(units)
    marginals = eliminated(tables, max_entries, plans)
    if marginals is None or marginals.units is not None:
        return marginals
    zeros = (np.zeros(len(part)) for part in (tables.fields, tables.couplings))
    return Marginals(-np.inf, *zeros)


class BestState(NamedTuple):
    """A most probable state of one row, labels (n_units,), and its exponent."""

    labels: np.ndarray
    objective: float


def best_states(units, rows, max_entries):
    """The `BestState` of some rows by elimination; None if tables have more entries."""
    plans, out = {}, []
    if not is_small(units.graph, len(rows)):
        return None
    for row in rows:
        tables = _tables(units.row(row))
        result = eliminated(tables, max_entries / len(rows), plans, mode=True)
        if result is None:
            return None
        labels = np.zeros(len(tables.sizes), np.int64)
        if result.units is not None:
            labels = np.flatnonzero(result.units) - tables.first
        out.append(BestState(labels, result.log_partition))
    return out


def _tables(units):
    """The `Tables` of a graph with one row."""
    fields = np.empty(units.first_state[-1])
    fields[units.state_order] = units.problem()[0].field[0]
    return Tables(units.graph.n_states, units.graph.edges, fields, units.tables[1])
