"""Exact sums over the states of a graph: of narrow parts in rounds, then one unit after another."""

from functools import partial

import numpy as np

from fastmf.models._elimination import most_probable_state, sum_over_states
from fastmf.models._elimination_order import MAX_BITS, elimination_plan
from fastmf.models._narrow_graphs import (
    most_probable_in_rounds,
    n_bytes_of,
    n_entries_of,
    reduction_of,
    sum_in_rounds,
)
from fastmf.models._state_tables import marginals_of_all, restricted, states_of_all


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
        """Entries of all tables, that are made one after another."""
        own = n_entries_of(self._reduction.rounds, self._most)
        return own + (2.0 ** min(self.plan.log2_total, 1000.0) if len(self._reduction.core) else 0)

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
