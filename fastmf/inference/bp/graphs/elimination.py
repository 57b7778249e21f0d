"""Exact marginals of graphs of small width, to take or to compare with."""

from typing import NamedTuple

import numpy as np

from fastmf.models._elimination import Tables, sum_over_states
from fastmf.models._elimination_order import elimination_plan
from fastmf.models._state_tables import marginals_of_all, restricted

# Units and edges of the largest graphs for which an order of elimination is sought.
MAX_UNITS, MAX_EDGES = 2000, 6000


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


def eliminated(units, max_entries):
    """The `Eliminated` sums of a graph with one row.

    Parameters
    ----------
    units : GraphUnits
        With one row at most.
    max_entries : float
        Largest number of entries of all tables together.

    Returns
    -------
    Eliminated or None
        None if there are more, or if no state is possible.
    """
    sizes, edges = units.graph.n_states, units.graph.edges
    if len(sizes) > MAX_UNITS or len(edges) > MAX_EDGES:
        return None
    flat = np.empty(units.first_state[-1])
    flat[units.state_order] = units.problem()[0].field[0]
    fields = np.split(flat, units.first_state[1:-1])
    allowed = [logs > -np.inf for logs in fields]
    n_allowed = np.array([np.count_nonzero(a) for a in allowed])
    if not n_allowed.all():
        return None
    free = n_allowed > 1
    number = np.cumsum(free) - 1
    plan = elimination_plan(n_allowed[free], number[edges[free[edges].all(1)]])
    if not plan.complete or 2.0 ** min(plan.log2_total, 60.0) > max_entries:
        return None
    first, values = units.tables
    tables = [
        table.reshape(shape)
        for table, shape in zip(np.split(values, first[1:-1]), sizes[edges], strict=False)
    ]
    left = restricted(Tables(fields, edges, tables), allowed)
    found = marginals_of_all(left, edges, sum_over_states(left.tables, plan, "cliques"))
    if found.log_partition == -np.inf:
        return None
    pairs = [np.zeros(0), *map(np.ravel, found.pairs)]
    return Eliminated(found.log_partition, np.concatenate(found.units), np.concatenate(pairs))
