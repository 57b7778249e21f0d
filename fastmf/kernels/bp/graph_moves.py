"""Moves of the units of random forests in a graph with cycles to their most probable states.

Units are taken in a random order unless they close a cycle among those taken. Given all others,
the most probable states of these are found by dynamic programming from the leaves of each tree to
its root and back. Noise in the fields makes them a sample (Papandreou and Yuille 2011).
"""

from typing import NamedTuple

import numpy as np

from fastmf._jit.argument_types import Float64, Int64
from fastmf._jit.intrinsics import fetch_and_increment, row, smaller
from fastmf._jit.kernel import kernel
from fastmf._threads.interrupts import next_task
from fastmf.kernels.bp.graph_decoding import _add_couplings, _best, _objective

# Entries of `above` and `parent` without a unit or slot.
NOT_TAKEN, NONE = -1, -1
# Entry of `parent` of units that are still to be reached.
UNSEEN = -2


class ForestMemory(NamedTuple):
    """Working memory of `forest_move`, for each worker.

    Parameters
    ----------
    above : int64 array of shape (n_workers, n_units)
        The next unit on the way to one that stands for the tree; -1 for units that are not taken.
    parent : int64 array of shape (n_workers, n_units)
        Slot from each unit to its parent, -1 for roots.
    sequence : int64 array of shape (n_workers, n_units)
        Units of the forest, parents before children.
    totals : float64 array of shape (n_workers, n_states)
        Largest exponents of what is below each unit, for each of its states.
    """

    above: Int64[2]
    parent: Int64[2]
    sequence: Int64[2]
    totals: Float64[2]


@kernel(mode="inner")
def _root(above, i):
    """The unit that stands for the tree of a unit; ways are halved."""
    while above[i] != i:
        above[i] = above[above[i]]
        i = above[i]
    return i


@kernel(mode="inner")
def _grow(problem, order, above, mark):
    """Take units in an order unless they close a cycle."""
    for i in range(above.shape[0]):
        above[i], mark[i] = NOT_TAKEN, NONE
    for t in range(order.shape[0]):
        i, has_cycle = order[t], False
        for k in range(problem.starts[i], problem.starts[i + 1]):
            j = np.int64(problem.neighbours[k])
            if above[j] != NOT_TAKEN:
                top = _root(above, j)
                has_cycle |= mark[top] == i
                mark[top] = i
        if not has_cycle:
            above[i] = i
            for k in range(problem.starts[i], problem.starts[i + 1]):
                j = np.int64(problem.neighbours[k])
                if above[j] != NOT_TAKEN:
                    above[_root(above, j)] = i


@kernel(mode="inner")
def _reach(problem, above, parent, sequence):
    """Put parents before children, tree after tree; returns the number of units."""
    for i in range(above.shape[0]):
        parent[i] = UNSEEN
    n_reached = head = np.int64(0)
    for first in range(above.shape[0]):
        if above[first] != NOT_TAKEN and parent[first] == UNSEEN:
            parent[first], sequence[n_reached] = NONE, first
            n_reached += 1
        while head < n_reached:
            i = sequence[head]
            for k in range(problem.starts[i], problem.starts[i + 1]):
                j = np.int64(problem.neighbours[k])
                if above[j] != NOT_TAKEN and parent[j] == UNSEEN:
                    parent[j], sequence[n_reached] = problem.reverse[k], j
                    n_reached += 1
            head += 1
    return n_reached


@kernel(mode="inner")
def _send_up(problem, k, total, sent):
    """Add the maxima over the states of a unit to the totals of its parent, by the slot to it."""
    n, m = total.shape[0], sent.shape[0]
    start = problem.first_value[problem.edges[k]]
    along, across = (np.int64(1), n) if problem.transposed[k] else (m, np.int64(1))
    for b in range(m):
        largest = -np.inf
        for a in range(n):
            value = total[a] + problem.tables[start + a * along + b * across]
            if value > largest:
                largest = value
        sent[b] += largest


@kernel(mode="inner")
def _maximise(problem, states, n_taken, memory):
    """Most probable states of the forest by dynamic programming."""
    above, parent, sequence, totals = memory
    first = problem.first_state
    for t in range(n_taken):
        i = sequence[t]
        total = row(totals, (first[i],), first[i + 1] - first[i])
        for k in range(problem.starts[i], problem.starts[i + 1]):
            if above[problem.neighbours[k]] == NOT_TAKEN:
                _add_couplings(problem, states, k, total.shape[0], total)
    for t in range(n_taken - 1, -1, -1):
        i = sequence[t]
        if parent[i] != NONE:
            j = np.int64(problem.neighbours[parent[i]])
            total = row(totals, (first[i],), first[i + 1] - first[i])
            _send_up(problem, parent[i], total, row(totals, (first[j],), first[j + 1] - first[j]))
    for t in range(n_taken):
        i = sequence[t]
        total = row(totals, (first[i],), first[i + 1] - first[i])
        if parent[i] != NONE:
            _add_couplings(problem, states, parent[i], total.shape[0], total)
        states[i] = _best(total)


@kernel(views=True)
def forest_move(problem, order, noise, labels, objective, memory, queue):
    """Move the units of a random forest to their most probable states given all others.

    Parameters
    ----------
    problem : StatesProblem
    order : int64 array of shape (n_units,)
        Units in the order in which the forest grows, the same for all rows.
    noise : float64 array of shape (n_rows, n_states)
        Added to the fields.
    labels : int64 array of shape (n_rows, n_units)
        States of the units, replaced.
    objective : float64 array of shape (n_rows,)
        Filled with the exponents of the states, without noise.
    memory : ForestMemory
    queue : int64 array of shape (2,)
        Next row, next worker.
    """
    worker = fetch_and_increment(row(queue, (1,), 1))
    n_units, n_states, n_taken = labels.shape[1], noise.shape[1], np.int64(0)
    above = row(memory.above, (worker, 0), n_units)
    parent = row(memory.parent, (worker, 0), n_units)
    sequence = row(memory.sequence, (worker, 0), n_units)
    totals = row(memory.totals, (worker, 0), n_states)
    index = next_task(queue)
    while index < labels.shape[0]:
        if n_taken == 0:
            _grow(problem, order, above, sequence)
            n_taken = _reach(problem, above, parent, sequence)
        shared = smaller(index, problem.field.shape[0] - 1)
        for a in range(n_states):
            totals[a] = problem.field[shared, a] + noise[index, a]
        states = row(labels, (index, 0), n_units)
        _maximise(problem, states, n_taken, (above, parent, sequence, totals))
        objective[index] = _objective(problem, index, states)
        index = next_task(queue)
