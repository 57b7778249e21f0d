"""NumPy twin of `kernels.bp.graph_moves`."""

import numpy as np

from fastmf._outcomes import MAX_FORESTS
from fastmf.reference.bp.graph_states import table_of


def induced_forest(problem, order):
    """Whether each unit is in the forest that grows in the given order."""
    n_units = len(problem.starts) - 1
    above, taken = list(range(n_units)), np.zeros(n_units, bool)

    def root(i):
        while above[i] != i:
            i = above[i]
        return i

    for i in order:
        neighbours = problem.neighbours[problem.starts[i] : problem.starts[i + 1]]
        roots = [root(j) for j in neighbours if taken[j]]
        if len(set(roots)) == len(roots):
            taken[i] = True
            for r in roots:
                above[r] = i
    return taken


def _rooted(problem, taken):
    """Units of the forest, parents before children, and the slot from each to its parent."""
    parent, sequence, seen = np.full(len(taken), -1), [], ~taken
    for first in np.flatnonzero(taken):
        tree = [] if seen[first] else [first]
        seen[first] = True
        for i in tree:
            slots = range(problem.starts[i], problem.starts[i + 1])
            for k in [k for k in slots if not seen[problem.neighbours[k]]]:
                j = problem.neighbours[k]
                seen[j], parent[j] = True, problem.reverse[k]
                tree.append(j)
        sequence += tree
    return sequence, parent


def _exponent(problem, field, states):
    total = field[problem.first_state[:-1] + states].sum()
    for i, n in enumerate(np.diff(problem.first_state)):
        for k in range(problem.starts[i], problem.starts[i + 1]):
            j = problem.neighbours[k]
            total += table_of(problem, k, n)[states[i], states[j]] if j > i else 0.0
    return total


def _maximise(problem, field, states, taken):
    """Move the units that are taken to their most probable states given all others."""
    sequence, parent = _rooted(problem, taken)
    sizes, starts = np.diff(problem.first_state), problem.starts
    totals = np.split(field, problem.first_state[1:-1])
    for i in sequence:
        for k in range(starts[i], starts[i + 1]):
            j = problem.neighbours[k]
            if not taken[j]:
                totals[i] = totals[i] + table_of(problem, k, sizes[i])[:, states[j]]
    for i in sequence[::-1]:
        if parent[i] >= 0:
            given, above = totals[i][:, None], problem.neighbours[parent[i]]
            totals[above] = totals[above] + (given + table_of(problem, parent[i], sizes[i])).max(0)
    for i in sequence:
        total = totals[i]
        if parent[i] >= 0:
            above = states[problem.neighbours[parent[i]]]
            total = total + table_of(problem, parent[i], sizes[i])[:, above]
        states[i] = total.argmax()


def forest_move(problem, order, noise, labels, objective, memory, queue):
    """Move the units of random forests, one after another, to their most probable states."""
    for index, states in enumerate(labels):
        field, waiting = problem.field[min(index, len(problem.field) - 1)], order
        for _ in range(MAX_FORESTS):
            taken = induced_forest(problem, waiting)
            _maximise(problem, field + noise[index], states, taken)
            waiting = [i for i in waiting if not taken[i]]
            if not waiting:
                break
        objective[index] = _exponent(problem, field, states)
