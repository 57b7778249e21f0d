"""Elimination of the units of graphs where it is quick."""

import numpy as np

from fastmf.models._elimination import Marginals
from fastmf.models._graph_sums import GraphSums
from fastmf.models._narrow_graphs import reduction_of

# Entries of the tables of all rows, and units of all rows, up to which units are eliminated.
MAX_ENTRIES, MAX_ELIMINATIONS = 2**25, 8000
# Memory of tables, beyond which messages are made twice.
MAX_TABLE_BYTES = 2**29
# Units and edges of the largest graphs for which an order of elimination is sought.
MAX_UNITS, MAX_COUPLED_PAIRS = 2000, 6000
# Rows of larger graphs of width two.
MAX_NARROW_ROWS = 100


def is_small(graph, n_rows=1):
    """Whether an order of elimination is sought for a `PairwiseGraph` with so many rows."""
    n_units = len(graph.n_states)
    small = n_units <= MAX_UNITS and len(graph.edges) <= MAX_COUPLED_PAIRS
    if small and n_units * n_rows <= MAX_ELIMINATIONS:
        return True
    most = int(graph.n_states.max(initial=1))
    sparse = n_rows <= MAX_NARROW_ROWS and len(graph.edges) < 2 * n_units
    if not sparse or n_rows * n_units * most**2 > MAX_ENTRIES:
        return False
    reduction = reduction_of(n_units, graph.edges, most, MAX_ENTRIES / n_rows)
    n_left = len(reduction.core)
    few = n_left <= MAX_UNITS and len(reduction.edges) <= MAX_COUPLED_PAIRS
    return few and n_left * n_rows <= MAX_ELIMINATIONS


def eliminated(tables, max_entries, plans, mode=False):
    """Exact `Marginals` of a graph, -inf alone if no state is possible; None if they are large.

    With `mode`, the most probable states in the place of `units`.

    Parameters
    ----------
    tables : Tables
    max_entries : float
        Largest number of entries of all tables together.
    plans : dict
        Orders of elimination of the same edges, for other rows.
    """
    allowed = tables.fields > -np.inf if isinstance(tables.fields, np.ndarray) else [
        logs > -np.inf for logs in tables.fields
    ]  # fmt: skip
    n_allowed = np.fromiter(map(np.count_nonzero, allowed), np.int64, len(allowed))
    if not n_allowed.all():
        return Marginals(-np.inf, None, None)
    key = n_allowed.tobytes()
    if key not in plans:
        n_bytes, bits = min(32 * max_entries, MAX_TABLE_BYTES), np.log2(max(max_entries, 1.0))
        plans[key] = GraphSums(n_allowed, tables.edges, n_bytes, bits)
    sums = plans[key]
    if not sums.plan.complete or sums.n_entries > max_entries:
        return None
    if mode:
        return Marginals(np.nan, sums.most_probable(tables, allowed), None)
    return sums.marginals(tables, allowed)
