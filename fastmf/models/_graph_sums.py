"""Exact sums over the states of a graph: narrow parts in rounds, then one unit after another.

The sum over a unit with at most two neighbours gives a field on its neighbour, or a table over
both, which is added to the table of their edge. Each round eliminates many units at once, no two of
them neighbours, a third of a chain or more, so that a million units take some forty rounds. The
remaining units, the core, have more neighbours, and are eliminated one after the other
(`fastmf.models._elimination`); graphs of width two have no core. In the opposite order the joint
probabilities of a unit and its neighbours follow from

    p(x, y, z) = p(x | y, z) p(y, z)

once p(y, z) is known. Smaller units are padded to equal numbers of states by states with the
log-weight -inf.
"""

from functools import partial
from typing import NamedTuple

import numpy as np

from fastmf.models._elimination import MAX_BITS, elimination_plan, sum_over_states
from fastmf.models._state_tables import Marginals, Restriction, Tables

# Maximum number of entries of the tables of all rows for elimination; maximum number of steps of
# all rows, each of one unit or of a round, and of edges for which an order is searched.
MAX_ENTRIES, MAX_ELIMINATIONS = 2**25, 8000


class GraphSums:
    """Sums over `Tables` with given edges and numbers of allowed states, at least 1.

    Sums need the memory `n_bytes`. `max_bits` is the logarithm of the largest acceptable number of
    entries: see `plan.complete`.
    """

    def __init__(self, n_states, edges, max_bytes, max_bits=MAX_BITS):
        free = n_states > 1
        edges = (np.cumsum(free) - 1)[edges[free[edges].all(1)]]
        n_states, self._max_states = n_states[free], int(n_states.max(initial=1))
        self._reduction = reduction_of(len(n_states), edges, self._max_states, max_bytes / 32)
        rounds = self._reduction.rounds
        max_edges, q = max((len(r.edges) for r in rounds), default=0), self._max_states
        tables = 2 * n_entries_of(rounds, q) + 4 * max_edges * float(q) ** 2
        self._round_bytes = 8 * tables
        core = n_states[self._reduction.core]
        self.plan = elimination_plan(core, self._reduction.edges, max_bits)

    def n_bytes(self, averages):
        """Return the memory that sums need, with or without averages or the best state."""
        return self._round_bytes + self.plan.n_bytes(averages)

    @property
    def n_entries(self):
        """Number of entries as a measure of time: all tables of rounds, and messages twice."""
        rounds = n_entries_of(self._reduction.rounds, self._max_states)
        return rounds + 2.0 * self.plan.n_message_entries

    def marginals(self, tables, averages=True, maximum=False):
        """Compute the `Marginals` over all states with positive weights.

        With `maximum`, the most probable state has all the weight.
        """
        possible = Restriction(tables)
        options = {"averages": averages, "maximum": maximum}
        sum_core = partial(sum_over_states, plan=self.plan, **options)
        marginals = sum_in_rounds(possible.tables, self._reduction, sum_core, **options)
        return possible.marginals(marginals)


# --- where sums are quick -------------------------------------------------------------------------


def is_small(graph, n_rows=1):
    """Whether a `PairwiseGraph` is small enough to search an order of elimination for rows."""
    n_units, n_edges = len(graph.n_states), len(graph.edges)
    if max(n_units * n_rows, n_edges) <= MAX_ELIMINATIONS:
        return True
    q = int(graph.n_states.max(initial=1))
    if n_edges >= 2 * n_units or n_rows * n_units * q**2 > MAX_ENTRIES:
        return False
    rounds, core, edges = reduction_of(n_units, graph.edges, q, MAX_ENTRIES / n_rows)
    return max((len(rounds) + len(core)) * n_rows, len(edges)) <= MAX_ELIMINATIONS


def eliminated(tables, max_entries, plans, mode=False):
    """Compute `Marginals` of a graph, zeros if no state is possible; None if tables are large.

    With `mode`, the most probable state has all the weight.
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


# Maximum number of visits of units in rounds, per unit of the graph. Trees and rings take 3; but in
# a long ladder only the units at its ends have two neighbours.
MAX_VISITS = 20


class Round(NamedTuple):
    """Units that are eliminated at once, by their numbers of neighbours, 0 to 2."""

    isolated: np.ndarray  # int (n_isolated,)
    leaves: np.ndarray  # int (n_leaves, 3): unit, neighbour and number of the edge
    # int (n_inner, 5): unit, its neighbours, the smaller number first, and the numbers of both
    # edges
    inner: np.ndarray
    retained: np.ndarray  # int (n_retained, 2): edges that remain: their numbers before and after
    made: np.ndarray  # int (n_inner,): numbers after the round of the edges between both neighbours
    n_edges: int  # edges after the round
    edges: np.ndarray  # int (n_edges_before, 2)


class Reduction(NamedTuple):
    """Rounds, and the remaining graph."""

    rounds: list  # list of Round
    core: np.ndarray  # int (n_core,): remaining units, ascending
    edges: np.ndarray  # int (n_edges, 2): edges between them, by their places in `core`


def reduction_of(n_units, edges, n_states=2, max_entries=np.inf):
    """Compute the `Reduction` of a graph, in which the smaller unit of each edge comes first.

    It has no rounds if these would leave most units, or need more than `max_entries`.
    """
    given = edges = np.asarray(edges, np.int64).reshape(-1, 2)
    remaining = np.ones(n_units, bool)
    rounds, n_visits, rng = [], 0, np.random.default_rng(0)
    while remaining.any() and n_visits < MAX_VISITS * n_units:
        degree = np.bincount(edges.ravel(), minlength=n_units)
        chosen = remaining & (degree <= 2)
        if not chosen.any():
            break
        n_visits += np.count_nonzero(remaining)
        rank = rng.random(n_units)
        both = edges[chosen[edges].all(1)]
        first_loses = rank[both[:, 0]] < rank[both[:, 1]]
        chosen[np.where(first_loses, both[:, 0], both[:, 1])] = False
        rounds.append(_round(edges, chosen, degree, n_units))
        edges, remaining = _edges_after(rounds[-1]), remaining & ~chosen
    # Rounds that remove few units, such as the corners of a grid, are not worth their time.
    if n_entries_of(rounds, n_states) > max_entries or remaining.sum() > n_units / 2:
        return Reduction([], np.arange(n_units), given)
    return Reduction(rounds, np.flatnonzero(remaining), (np.cumsum(remaining) - 1)[edges])


def _round(edges, chosen, degree, n_units):
    """Make the `Round` of some units, no two of them neighbours."""
    at = chosen[edges]
    touched = np.flatnonzero(at.any(1))
    second = at[touched, 1].astype(np.int64)
    unit = edges[touched, second]
    order = np.lexsort((edges[touched, 1 - second], unit))
    touched, unit = touched[order], unit[order]
    neighbour = edges[touched].sum(1) - unit
    single = degree[unit] == 1
    leaves = np.stack([unit, neighbour, touched], 1)[single]
    pairs = np.stack([neighbour, touched], 1)[~single].reshape(-1, 2, 2)
    inner = np.column_stack([unit[~single][::2], pairs[:, :, 0], pairs[:, :, 1]])
    retained = np.flatnonzero(~at.any(1))
    keys = np.concatenate([
        edges[retained, 0] * n_units + edges[retained, 1], inner[:, 1] * n_units + inner[:, 2]
    ])  # fmt: skip
    unique, number = np.unique(keys, return_inverse=True)
    isolated = np.flatnonzero(chosen & (degree == 0))
    number = number.reshape(-1)
    retained = np.stack([retained, number[: len(retained)]], 1)
    return Round(isolated, leaves, inner, retained, number[len(retained) :], len(unique), edges)


def _edges_after(round_):
    """Return the edges after a round, in the order of their numbers."""
    after = np.empty((round_.n_edges, 2), np.int64)
    after[round_.retained[:, 1]] = round_.edges[round_.retained[:, 0]]
    after[round_.made] = round_.inner[:, 1:3]
    return after


def n_entries_of(rounds, n_states):
    """Count the entries of the tables of all units of rounds."""
    n_inner = sum(len(r.inner) for r in rounds)
    n_others = sum(len(r.leaves) + len(r.isolated) for r in rounds)
    return n_inner * float(n_states) ** 3 + n_others * float(n_states) ** 2


def sum_in_rounds(tables, reduction, sum_core, averages=True, maximum=False):
    """Compute the `Marginals` of `tables`; with `maximum`, the best state has all the weight.

    sum_core(tables) does the same for tables of the core.
    """
    if not reduction.rounds:
        return sum_core(tables)
    # Pad units to equal numbers of states: added states have the log-weight -inf.
    first, second = tables.edges.T
    exists = np.arange(tables.sizes.max(initial=1)) < tables.sizes[:, None]
    pair_exists = exists[first][:, :, None] & exists[second][:, None, :]
    fields, couplings = np.full(exists.shape, -np.inf), np.zeros(pair_exists.shape)
    fields[exists], couplings[pair_exists] = tables.fields, tables.couplings
    log_partition, rounds = 0.0, []
    for round_ in reduction.rounds:
        messages, conditionals = [], []
        for clique in _cliques(round_, fields, couplings):
            message = (_log_maximum if maximum else _log_sum)(clique)
            largest = message.max(tuple(range(1, message.ndim)))
            if (largest == -np.inf).any():
                return Marginals(-np.inf, None, None)
            log_partition += largest.sum()
            message -= largest.reshape(-1, *[1] * (message.ndim - 1))
            messages.append(message)
            conditionals.append(clique if averages else None)
        couplings = _pass_on(round_, messages, fields, couplings)
        rounds.append(conditionals)
    in_core = exists[reduction.core]
    first, second = reduction.edges.T
    pair_in_core = in_core[first][:, :, None] & in_core[second][:, None, :]
    core = Marginals(0.0, np.zeros(0), np.zeros(0))
    if len(in_core):
        parts = fields[reduction.core][in_core], couplings[pair_in_core]
        core = sum_core(Tables(tables.sizes[reduction.core], reduction.edges, *parts))
    log_partition = float(log_partition) + core.log_partition
    if not averages or core.log_partition == -np.inf:
        return Marginals(log_partition, None, None)
    units, pairs = np.zeros_like(fields), np.zeros_like(couplings)
    of_core = np.zeros(in_core.shape)
    of_core[in_core] = core.units
    units[reduction.core], pairs[pair_in_core] = of_core, core.pairs
    for round_ in reversed(reduction.rounds):
        pairs = _joint(round_, rounds.pop(), units, pairs)
    return Marginals(log_partition, units[exists], pairs[pair_exists])


def _log_sum(clique):
    """Return the log-sum over the states of units; the clique becomes exp(clique - log-sum)."""
    message = clique.max(1, keepdims=True)
    message[message == -np.inf] = 0
    clique -= message
    np.exp(clique, out=clique)
    total = clique.sum(1, keepdims=True)
    impossible = total == 0
    total[impossible] = 1
    clique /= total
    message += np.log(total, out=total)
    message[impossible] = -np.inf
    return message.squeeze(1)


def _log_maximum(clique):
    """Return the maximum over the states of units; the clique becomes its indicator."""
    best = clique.argmax(1)[:, None]
    message = np.take_along_axis(clique, best, 1)
    clique[:] = 0
    np.put_along_axis(clique, best, 1, 1)
    return message.squeeze(1)


def _cliques(round_, fields, couplings):
    """Sum log-weights with the units of a round: (units, states, states of neighbours)."""
    unit, neighbour, edge = round_.leaves.T
    leaves = fields[unit][:, :, None] + _from(couplings, edge, unit < neighbour)
    unit, first, second, to_first, to_second = round_.inner.T
    by_first = fields[unit][:, :, None] + _from(couplings, to_first, unit < first)
    by_second = _from(couplings, to_second, unit < second)
    return fields[round_.isolated], leaves, by_first[..., None] + by_second[:, :, None, :]


def _from(tables, edge, is_first):
    """Return tables of some edges, with the states of one of their units first."""
    tables = tables[edge]
    return np.where(is_first[:, None, None], tables, tables.swapaxes(1, 2))


def _pass_on(round_, messages, fields, couplings):
    """Add messages to the fields, in place, and to the couplings after the round."""
    np.add.at(fields, round_.leaves[:, 1], messages[1])
    after = np.zeros((round_.n_edges, *couplings.shape[1:]))
    after[round_.retained[:, 1]] = couplings[round_.retained[:, 0]]
    np.add.at(after, round_.made, messages[2])
    return after


def _joint(round_, conditionals, units, after):
    """Compute probabilities of pairs before a round from pairs after it, and set its units."""
    isolated, leaves, inner = conditionals
    units[round_.isolated] = isolated
    before = np.empty((len(round_.edges), *after.shape[1:]))
    before[round_.retained[:, 0]] = after[round_.retained[:, 1]]
    unit, neighbour, edge = round_.leaves.T
    leaves *= units[neighbour][:, None, :]
    units[unit] = leaves.sum(2)
    before[edge] = np.where((unit < neighbour)[:, None, None], leaves, leaves.swapaxes(1, 2))
    unit, first, second, to_first, to_second = round_.inner.T
    inner *= after[round_.made][:, None]
    units[unit] = inner.sum((2, 3))
    for neighbour, edge, axis in ((first, to_first, 3), (second, to_second, 2)):
        pair = inner.sum(axis)
        before[edge] = np.where((unit < neighbour)[:, None, None], pair, pair.swapaxes(1, 2))
    return before
