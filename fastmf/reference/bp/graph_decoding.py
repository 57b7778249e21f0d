"""NumPy twin of `kernels.bp.graph_decoding`."""

import numpy as np

from fastmf._outcomes import GAIN_TOLERANCE, MAX_ROUNDS
from fastmf.reference.bp.graph_states import table_of


def _given(problem, labels, i, n):
    """Exponents of the states of a unit with each of its neighbours: pairs (slot, array)."""
    for k in range(problem.starts[i], problem.starts[i + 1]):
        yield k, table_of(problem, k, n)[:, labels[problem.neighbours[k]]]


def _decode(problem, beliefs, messages, labels):
    for i in range(len(labels)):
        total = beliefs[problem.first_state[i] : problem.first_state[i + 1]].copy()
        for k, exponents in _given(problem, labels, i, len(total)):
            if problem.neighbours[k] < i:
                back = problem.first_entry[problem.reverse[k]]
                message = messages[back : back + len(total)]
                message = problem.probability[problem.edges[k]] * message
                total -= np.where((total > -np.inf) & (message > -np.inf), message, 0)
                total += exponents
        labels[i] = total.argmax()


def _climb(problem, field, labels):
    """Move single units while one gains; returns whether none does any more."""
    n_units = len(labels)
    n_tried = n_rejected = 0
    while n_rejected < n_units and n_tried < MAX_ROUNDS * n_units:
        i = n_tried % n_units
        total = field[problem.first_state[i] : problem.first_state[i + 1]].copy()
        for _, exponents in _given(problem, labels, i, len(total)):
            total += exponents
        best, n_tried, n_rejected = total.argmax(), n_tried + 1, n_rejected + 1
        if total[best] > -np.inf:
            gain = total[best] - total[labels[i]]
            if gain > GAIN_TOLERANCE * (1 + abs(total[best])):
                labels[i], n_rejected = best, 0
    return n_rejected >= n_units


def decode_graph(problem, state, moves, labels, optimal, objective, queue):
    """Most probable assignments that the beliefs of max-product suggest."""
    for index, states in enumerate(labels):
        field = problem.field[min(index, len(problem.field) - 1)]
        _decode(problem, state.beliefs[index], state.messages[index], states)
        if moves:
            optimal[index] = _climb(problem, field, states)
        objective[index] = field[problem.first_state[:-1] + states].sum()
        for i, n in enumerate(np.diff(problem.first_state)):
            couplings = _given(problem, states, i, n)
            behind = (x[states[i]] for k, x in couplings if problem.neighbours[k] > i)
            objective[index] += sum(behind)
