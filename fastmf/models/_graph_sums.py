"""Exact sums over the states of a graph: of narrow parts in rounds, then one unit after another."""

from functools import partial

import numpy as np

from fastmf.models._elimination import sum_over_states
from fastmf.models._elimination_order import MAX_BITS, elimination_plan
from fastmf.models._narrow_graphs import n_bytes_of, n_entries_of, reduction_of, sum_in_rounds
from fastmf.models._state_tables import Marginals, Restriction

# Entries of the tables of all rows up to which units are eliminated; and steps of all rows, each of
# one unit or of a round, which is also the number of edges up to which an order is sought.
MAX_ENTRIES, MAX_ELIMINATIONS = 2**25, 8000


class GraphSums:
    """Sums over all `Tables` with the same edges and numbers of allowed states, one at least each.

    With less memory than `n_bytes` sums are not to be made. `max_bits` is the logarithm of the
    largest number of entries of use: see `plan.complete`.
    """

    def __init__(self, n_states, edges, max_bytes, max_bits=MAX_BITS):
        free = n_states > 1
        edges = (np.cumsum(free) - 1)[edges[free[edges].all(1)]]
        n_states, self._most = n_states[free], int(n_states.max(initial=1))
        self._reduction = reduction_of(len(n_states), edges, self._most, max_bytes / 32)
        self._round_bytes = n_bytes_of(self._reduction.rounds, self._most)
        core = n_states[self._reduction.core]
        self.plan = elimination_plan(core, self._reduction.edges, max_bits)

    def n_bytes(self, averages):
        """Memory that sums take, with averages or the most probable state, or without."""
        return self._round_bytes + self.plan.n_bytes(averages)

    @property
    def n_entries(self):
        """Entries as a measure of time: all tables of rounds, and messages twice."""
        rounds = n_entries_of(self._reduction.rounds, self._most)
        return rounds + 2.0 * self.plan.n_message_entries

    def marginals(self, tables, averages=True, maximum=False):
        """The `Marginals` over all states with positive weights.

        With `maximum`, the most probable state takes all the weight.
        """
        possible = Restriction(tables)
        options = {"averages": averages, "maximum": maximum}
        sum_core = partial(sum_over_states, plan=self.plan, **options)
        marginals = sum_in_rounds(possible.tables, self._reduction, sum_core, **options)
        return possible.marginals(marginals)


# --- where sums are quick -------------------------------------------------------------------------


def is_small(graph, n_rows=1):
    """Whether an order of elimination is sought for `n_rows` rows of a `PairwiseGraph`."""
    n_units, n_edges = len(graph.n_states), len(graph.edges)
    if max(n_units * n_rows, n_edges) <= MAX_ELIMINATIONS:
        return True
    q = int(graph.n_states.max(initial=1))
    if n_edges >= 2 * n_units or n_rows * n_units * q**2 > MAX_ENTRIES:
        return False
    rounds, core, edges = reduction_of(n_units, graph.edges, q, MAX_ENTRIES / n_rows)
    return max((len(rounds) + len(core)) * n_rows, len(edges)) <= MAX_ELIMINATIONS


def eliminated(tables, max_entries, plans, mode=False):
    """Exact `Marginals` of a graph, zeros if no state is possible; None if its tables are large.

    With `mode`, the most probable state takes all the weight.
    """
    no_state = Marginals(-np.inf, np.zeros(len(tables.fields)), np.zeros(len(tables.couplings)))
    n_possible = np.bincount(tables.units, tables.fields > -np.inf, len(tables.sizes))
    if not n_possible.all():
        return no_state
    key = n_possible.tobytes()
    if key not in plans:
        bits = np.log2(max(max_entries * n_possible.max(initial=1), 1.0))
        sums = GraphSums(n_possible.astype(np.int64), tables.edges, 16 * max_entries, bits)
        plans[key] = sums if sums.n_entries <= max_entries else None
    if plans[key] is None:
        return None
    marginals = plans[key].marginals(tables, maximum=mode)
    return no_state if marginals.units is None else marginals
