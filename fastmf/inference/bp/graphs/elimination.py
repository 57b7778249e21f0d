"""Exact marginals of graphs of small width, to take or to compare with."""

import numpy as np

from fastmf.models._graph_sums import MAX_ENTRIES, eliminated, is_small
from fastmf.models._state_tables import Tables


def marginals_of_rows(units, rows, max_entries, mode=False):
    """The `Marginals` of some rows of `GraphUnits` by elimination; None if their tables are large.

    With `mode`, the most probable state takes all the weight.
    """
    graph, fields, plans, out = units.graph, units.log_weights(), {}, []
    for k in rows:
        field = fields[min(k, len(fields) - 1)]
        tables = Tables(graph.n_states, graph.edges, field, units.tables[1])
        out.append(eliminated(tables, max_entries, plans, mode))
        if out[-1] is None:
            return None
    return out


def best_states(units, rows):
    """Most probable labels of some rows, and their exponents; None if tables are large."""
    if not is_small(units.graph, len(rows)):
        return None
    marginals = marginals_of_rows(units, rows, MAX_ENTRIES / len(rows), mode=True)
    if marginals is None:
        return None
    labels = units.labels(np.array([m.units for m in marginals]))
    return labels, np.array([m.log_partition for m in marginals])
