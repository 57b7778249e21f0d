"""Exact marginals of graphs of small width, to take or to compare with."""

from typing import NamedTuple

import numpy as np

from fastmf.models._elimination import Tables
from fastmf.models._graph_sums import eliminated, is_small


class Eliminated(NamedTuple):
    """Exact sums of one row: probabilities of states, and of pairs of states edge after edge."""

    log_partition: float
    beliefs: np.ndarray
    pairs: np.ndarray


def eliminated_units(units, max_entries, plans):
    """The `Eliminated` sums of a graph with one row."""
    result = eliminated(_tables(units), max_entries, plans)
    if result is None:
        return None
    if result.units is None:
        sizes = units.first_state[-1], units.tables[0][-1]
        return Eliminated(-np.inf, *map(np.zeros, sizes))
    units, pairs = (_joined(parts) for parts in (result.units, result.pairs))
    return Eliminated(result.log_partition, units, pairs)


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
        labels = np.zeros(len(tables.fields), np.int64) if result.units is None else result.units
        terms = [logs[label] for logs, label in zip(tables.fields, labels, strict=True)]
        ends = zip(tables.couplings, labels[tables.edges].tolist(), strict=True)
        out.append(
            BestState(labels, float(sum(terms) + sum(table[i, j] for table, (i, j) in ends)))
        )
    return out


def _tables(units):
    """The `Tables` of a graph with one row."""
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
    return Tables(fields, edges, tables)


def _joined(parts):
    """The entries of all arrays, one after the other."""
    if isinstance(parts, np.ndarray):
        return parts.ravel()
    return np.concatenate([np.zeros(0), *map(np.ravel, parts)])
