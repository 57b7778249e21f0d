"""Moves of the units of random forests in a graph with cycles to their most probable states.

Units are taken in a random order unless they close a cycle among the units taken. Given all other
units, the most probable states of these are found by dynamic programming from the leaves of each
tree to its root and back; then of a forest of the units that are left, and so on. Noise in the
fields makes them a sample (Papandreou and Yuille 2011).
"""

from typing import NamedTuple

import numpy as np

from fastmf._jit.argument_types import Float64, Int64
from fastmf._jit.intrinsics import fetch_and_increment, row, smaller
from fastmf._jit.kernel import kernel
from fastmf._outcomes import MAX_FORESTS
from fastmf._threads.interrupts import next_task, stopped
from fastmf.kernels.bp.graph_decoding import _add_couplings, _best, _objective

# Entries of `above` and `parent` without a unit or slot, and of units that are still to be reached.
NONE, UNSEEN = range(-1, -3, -1)


class ForestMemory(NamedTuple):
    """Working memory of `forest_move`, for each worker."""

    # (n_workers, n_units): the next unit on the way to the representative of the tree; -1 for units
    # that are not taken
    above: Int64[2]
    parent: Int64[2]  # (n_workers, n_units): slot from each unit to its parent, -1 for roots
    sequence: Int64[2]  # (n_workers, n_units): units of the forest, parents before children
    # (n_workers, n_units): units that are still to be moved, in the order in which forests grow
    waiting: Int64[2]
    # (n_workers, n_states): largest exponents of the subtree below each unit, for each of its
    # states
    totals: Float64[2]


@kernel(mode="inner")
def _root(above, i):
    """The representative of the tree of a unit; ways are halved."""
    while above[i] != i:
        above[i] = above[above[i]]
        i = above[i]
    return i


@kernel(mode="inner")
def _closes_cycle(problem, i, above, mark):
    """Whether two neighbours of a unit are in one tree."""
    for k in range(problem.starts[i], problem.starts[i + 1]):
        j = np.int64(problem.neighbours[k])
        if above[j] != NONE:
            top = _root(above, j)
            if mark[top] == i:
                return True
            mark[top] = i
    return False


@kernel(mode="inner")
def _grow(problem, left, n_left, above, mark):
    """Take units in an order unless they close a cycle; returns the number of units left."""
    for i in range(above.shape[0]):
        above[i], mark[i] = NONE, NONE
    n_rejected = np.int64(0)
    for t in range(n_left):
        i = left[t]
        if _closes_cycle(problem, i, above, mark):
            left[n_rejected] = i
            n_rejected += 1
            continue
        above[i] = i
        for k in range(problem.starts[i], problem.starts[i + 1]):
            j = np.int64(problem.neighbours[k])
            if above[j] != NONE:
                above[_root(above, j)] = i
    return n_rejected


@kernel(mode="inner")
def _reach_children(problem, i, tree, n_reached):
    """Put the neighbours of a unit that are still to be reached at the end of the order."""
    above, parent, sequence = tree
    for k in range(problem.starts[i], problem.starts[i + 1]):
        j = np.int64(problem.neighbours[k])
        if above[j] != NONE and parent[j] == UNSEEN:
            parent[j], sequence[n_reached] = problem.reverse[k], j
            n_reached += 1
    return n_reached


@kernel(mode="inner")
def _reach(problem, above, parent, sequence):
    """Put parents before children, tree after tree; returns the number of units."""
    for i in range(above.shape[0]):
        parent[i] = UNSEEN
    n_reached = head = np.int64(0)
    for first in range(above.shape[0]):
        if above[first] != NONE and parent[first] == UNSEEN:
            parent[first], sequence[n_reached] = NONE, first
            n_reached += 1
        while head < n_reached:
            tree = above, parent, sequence
            n_reached = _reach_children(problem, sequence[head], tree, n_reached)
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
def _maximise(problem, states, fields, n_taken, memory):
    """Most probable states of the forest by dynamic programming."""
    (field, noise), (above, parent, sequence, totals) = fields, memory
    first = problem.first_state
    for t in range(n_taken):
        i = sequence[t]
        total = row(totals, (first[i],), first[i + 1] - first[i])
        for a in range(total.shape[0]):
            total[a] = field[first[i] + a] + noise[first[i] + a]
        for k in range(problem.starts[i], problem.starts[i + 1]):
            if above[problem.neighbours[k]] == NONE:
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
    """Move the units of random forests, one after another, to their most probable states."""
    worker = fetch_and_increment(row(queue, (1,), 1))
    n_units, n_states = labels.shape[1], noise.shape[1]
    above = row(memory.above, (worker, 0), n_units)
    parent = row(memory.parent, (worker, 0), n_units)
    sequence = row(memory.sequence, (worker, 0), n_units)
    waiting = row(memory.waiting, (worker, 0), n_units)
    totals = row(memory.totals, (worker, 0), n_states)
    index = next_task(queue)
    while index < labels.shape[0]:
        for i in range(n_units):
            waiting[i] = order[i]
        shared = smaller(index, problem.field.shape[0] - 1)
        fields = row(problem.field, (shared, 0), n_states), row(noise, (index, 0), n_states)
        states = row(labels, (index, 0), n_units)
        n_left, n_forests = np.int64(n_units), 0
        while n_left > 0 and n_forests < MAX_FORESTS and not stopped(queue):
            n_left = _grow(problem, waiting, n_left, above, sequence)
            n_taken = _reach(problem, above, parent, sequence)
            _maximise(problem, states, fields, n_taken, (above, parent, sequence, totals))
            n_forests += 1
        objective[index] = _objective(problem, index, states)
        index = next_task(queue)
