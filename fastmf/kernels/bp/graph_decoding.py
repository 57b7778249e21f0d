"""Assignments of the units of a graph from max-product beliefs, and moves of single units.

Units are decoded in breadth-first order, each given the units before it: with the messages of the
units decoded already replaced by their couplings, its state is the one of largest log-belief. On a
forest that is the backward pass of dynamic programming, and the assignment is the most probable
one. Then one unit after another moves to its best state given all other units until none gains.
"""

import numpy as np

from fastmf._jit.intrinsics import fetch_and_increment, row, smaller
from fastmf._jit.kernel import kernel
from fastmf._outcomes import GAIN_TOLERANCE, MAX_ROUNDS
from fastmf._threads.interrupts import next_task, stopped
from fastmf.kernels.bp.graph_arguments import SENT


@kernel(mode="inner")
def _add_couplings(problem, labels, k, n, total):
    """Add the exponents of the states of a unit with the neighbour of a slot."""
    edge, label = problem.edges[k], labels[problem.neighbours[k]]
    start = problem.first_value[edge]
    size = (problem.first_value[edge + 1] - start) // n
    first, stride = (start + label * n, 1) if problem.transposed[k] else (start + label, size)
    for a in range(n):
        total[a] += problem.tables[first + a * stride]


@kernel(mode="inner")
def _best(total):
    """State of the largest entry; the first of equal ones."""
    best = np.int64(0)
    for a in range(1, total.shape[0]):
        if total[a] > total[best]:
            best = np.int64(a)
    return best


@kernel(mode="inner")
def _replace_message(problem, message, labels, k, belief, total):
    """Put the couplings with a decoded neighbour in the place of its message."""
    probability = problem.probability[problem.edges[k]]
    for a in range(belief.shape[0]):
        # In sequential sweeps some messages are newer than beliefs.
        if belief[a] > -np.inf and message[a] > -np.inf:
            total[a] -= probability * message[a]
    _add_couplings(problem, labels, k, belief.shape[0], total)


@kernel(mode="inner")
def _decode(problem, state, place, labels):
    """Decode one unit after another; `place` is row and worker."""
    index, worker = place
    for i in range(labels.shape[0]):
        first = problem.first_state[i]
        n = problem.first_state[i + 1] - first
        belief = row(state.beliefs, (index, first), n)
        total = row(state.scratch, (worker, SENT, 0), n)
        for a in range(n):
            total[a] = belief[a]
        for k in range(problem.starts[i], problem.starts[i + 1]):
            if problem.neighbours[k] < i:
                back = problem.first_entry[problem.reverse[k]]
                message = row(state.messages, (index, back), n)
                _replace_message(problem, message, labels, k, belief, total)
        labels[i] = _best(total)


@kernel(mode="inner")
def _climb(problem, state, place, labels, queue):
    """Move single units while one gains; returns whether none does any more."""
    index, worker = place
    shared, n_units = smaller(index, problem.field.shape[0] - 1), labels.shape[0]
    n_tried = n_rejected = np.int64(0)
    while n_rejected < n_units and n_tried < MAX_ROUNDS * n_units:
        i = n_tried % n_units
        if i == 0 and stopped(queue):
            break
        first = problem.first_state[i]
        n = problem.first_state[i + 1] - first
        field = row(problem.field, (shared, first), n)
        total = row(state.scratch, (worker, SENT, 0), n)
        for a in range(n):
            total[a] = field[a]
        for k in range(problem.starts[i], problem.starts[i + 1]):
            _add_couplings(problem, labels, k, n, total)
        best, now = _best(total), labels[i]
        n_tried, n_rejected = n_tried + 1, n_rejected + 1
        if total[best] - total[now] > GAIN_TOLERANCE * (1 + abs(total[best])):
            labels[i], n_rejected = best, np.int64(0)
    return n_rejected >= n_units


@kernel(mode="inner")
def _objective(problem, index, labels):
    """Sum of the fields and couplings of an assignment."""
    shared, total = smaller(index, problem.field.shape[0] - 1), 0.0
    for i in range(labels.shape[0]):
        n = problem.first_state[i + 1] - problem.first_state[i]
        total += problem.field[shared, problem.first_state[i] + labels[i]]
        for k in range(problem.starts[i], problem.starts[i + 1]):
            j, edge = problem.neighbours[k], problem.edges[k]
            if j > i:
                m = problem.first_entry[k + 1] - problem.first_entry[k]
                start = problem.first_value[edge]
                a, b = labels[i], labels[j]
                total += problem.tables[start + (b * n + a if problem.transposed[k] else a * m + b)]
    return total


@kernel(views=True)
def decode_graph(problem, state, moves, labels, optimal, objective, queue):
    """Most probable assignments that the beliefs of max-product suggest."""
    worker = fetch_and_increment(row(queue, (1,), 1))
    index = next_task(queue)
    while index < labels.shape[0]:
        states = row(labels, (index, 0), labels.shape[1])
        _decode(problem, state, (index, worker), states)
        if moves:
            optimal[index] = _climb(problem, state, (index, worker), states, queue)
        objective[index] = _objective(problem, index, states)
        index = next_task(queue)
