"""Exact sums over the states of a graph: of narrow parts in rounds, then one unit after another."""

from functools import partial

import numpy as np

from fastmf.models._elimination import Marginals, most_probable_state, sum_over_states
from fastmf.models._elimination_order import MAX_BITS, elimination_plan
from fastmf.models._narrow_graphs import (
    most_probable_in_rounds,
    n_bytes_of,
    n_entries_of,
    reduction_of,
    sum_in_rounds,
)
from fastmf.models._state_tables import marginals_of_all, restricted, states_of_all

# Entries of the tables of all rows, and units of all rows, up to which units are eliminated.
MAX_ENTRIES, MAX_ELIMINATIONS = 2**25, 8000
# Edges of the largest graphs for which an order of elimination is sought.
MAX_COUPLED_PAIRS = 6000
# Rows of larger graphs of width two.
MAX_NARROW_ROWS = 100


class GraphSums:
    """Sums over all `Tables` with the same edges and numbers of allowed states.

    Parameters
    ----------
    n_states : int array of shape (n_units,)
        Allowed states of each unit, one at least.
    edges : int array of shape (n_edges, 2)
    max_bytes : float
        Memory for tables; with less than `n_bytes` sums are not to be made.
    max_bits : float
        Logarithm of the largest number of entries of use: see `plan.complete`.
    """

    def __init__(self, n_states, edges, max_bytes, max_bits=MAX_BITS):
        free = n_states > 1
        edges = (np.cumsum(free) - 1)[edges[free[edges].all(1)]]
        n_states, self._most = n_states[free], int(n_states.max(initial=1))
        self._reduction = reduction_of(len(n_states), edges, self._most, max_bytes / 32)
        own_bytes = n_bytes_of(self._reduction.rounds, self._most)
        self._own_bytes, self._left = own_bytes, max(max_bytes - own_bytes, 0)
        core = n_states[self._reduction.core]
        self.plan = elimination_plan(core, self._reduction.edges, max_bits)

    def n_bytes(self, averages, mode):
        """Memory that sums, and the most probable state, take."""
        plan = self.plan
        if plan.complete and plan.most_bytes <= self._left:
            return self._own_bytes + plan.most_bytes
        needed = plan.segments(self._left)[1] if averages else plan.n_bytes("nothing")
        return self._own_bytes + max(needed, plan.n_bytes("choices") if mode else 0)

    @property
    def n_entries(self):
        """Entries that sums take time for: of all tables of rounds, twice those of messages."""
        rounds = n_entries_of(self._reduction.rounds, self._most)
        return rounds + 2.0 * self.plan.n_message_entries

    def marginals(self, tables, allowed, averages=True):
        """The `Marginals` over allowed states, bool arrays of shape (n_states_i,)."""
        left = restricted(tables, allowed)
        of_core = partial(sum_over_states, plan=self.plan, averages=averages, max_bytes=self._left)
        found = sum_in_rounds(left.tables, self._reduction, of_core, averages)
        return marginals_of_all(left, tables.edges, found)

    def most_probable(self, tables, allowed):
        """State of each unit in the most probable joint state: int array of shape (n_units,)."""
        left = restricted(tables, allowed)
        of_core = partial(most_probable_state, plan=self.plan)
        return states_of_all(left, most_probable_in_rounds(left.tables, self._reduction, of_core))


# --- where sums are quick -------------------------------------------------------------------------


def is_small(graph, n_rows=1):
    """Whether an order of elimination is sought for `n_rows` rows of a `PairwiseGraph`."""

    def few(n_units, n_edges):
        return n_units * n_rows <= MAX_ELIMINATIONS and n_edges <= MAX_COUPLED_PAIRS

    n_units, n_edges = len(graph.n_states), len(graph.edges)
    if few(n_units, n_edges):
        return True
    q = int(graph.n_states.max(initial=1))
    is_sparse = n_rows <= MAX_NARROW_ROWS and n_edges < 2 * n_units
    if not is_sparse or n_rows * n_units * q**2 > MAX_ENTRIES:
        return False
    reduction = reduction_of(n_units, graph.edges, q, MAX_ENTRIES / n_rows)
    return few(len(reduction.core), len(reduction.edges))


def eliminated(tables, max_entries, plans, mode=False):
    """Exact `Marginals` of a graph, -inf alone if no state is possible; None if they are large.

    With `mode`, the most probable states in the place of `units`.
    """
    allowed = tables.fields > -np.inf if isinstance(tables.fields, np.ndarray) else [
        logs > -np.inf for logs in tables.fields
    ]  # fmt: skip
    n_allowed = np.fromiter(map(np.count_nonzero, allowed), np.int64, len(allowed))
    if not n_allowed.all():
        return Marginals(-np.inf, None, None)
    key = n_allowed.tobytes()
    if key not in plans:
        bits = np.log2(max(max_entries * n_allowed.max(), 1.0))
        sums = GraphSums(n_allowed, tables.edges, 16 * max_entries, bits)
        plans[key] = sums if sums.n_entries <= max_entries else None
    sums = plans[key]
    if sums is None:
        return None
    if mode:
        return Marginals(np.nan, sums.most_probable(tables, allowed), None)
    return sums.marginals(tables, allowed)
