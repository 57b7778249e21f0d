"""Elimination of the units of graphs where it is quick."""

from functools import partial

import numpy as np

from fastmf.models._elimination import Marginals, sum_over_states
from fastmf.models._elimination_order import elimination_plan
from fastmf.models._narrow_graphs import n_entries_of, reduction_of, sum_in_rounds
from fastmf.models._state_tables import marginals_of_all, restricted

# Entries of the tables of all rows, and units of all rows, up to which units are eliminated.
MAX_ENTRIES, MAX_ELIMINATIONS = 2**23, 8000
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


def eliminated(tables, max_entries, plans):
    """Exact `Marginals` of a graph, -inf alone if no state is possible; None if they are large.

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
        plans[key] = _plan(n_allowed, tables.edges, max_entries)
    if plans[key] is None:
        return None
    left = restricted(tables, allowed)
    return marginals_of_all(left, tables.edges, plans[key](left.tables))


def _plan(n_allowed, edges, max_entries):
    """Function from tables to `Marginals`; None if tables would have too many entries."""
    free = n_allowed > 1
    edges = (np.cumsum(free) - 1)[edges[free[edges].all(1)]]
    n_states, most = n_allowed[free], int(n_allowed.max(initial=1))
    reduction = reduction_of(len(n_states), edges, most, max_entries)
    bits = np.log2(max_entries) if max_entries > 1 else 0.0
    plan = elimination_plan(n_states[reduction.core], reduction.edges, bits)
    if not plan.complete or (plan.order and 2.0 ** min(plan.log2_total, 60.0) > max_entries):
        return None
    if max_entries < n_entries_of(reduction.rounds, most) or max_entries <= 0:
        return None
    sum_core = partial(sum_over_states, plan=plan, kept="cliques")
    return partial(sum_in_rounds, reduction=reduction, sum_core=sum_core)
