"""NumPy twin of `kernels.bp.graph_binary`."""

import numpy as np

from fastmf._outcomes import ALL, FOLLOWING


def _row(array, index):
    return array[min(index, len(array) - 1)]


def receives(state, distance, step):
    """Whether a unit sends a message to the neighbours at these distances behind it."""
    if state.receivers == FOLLOWING:
        return (distance > 0) == (step > 0)
    return np.full(np.shape(distance), state.receivers == ALL)


def send(problem, state, place, step):
    """Beliefs of the units of a row, one after another, and the messages that they send."""
    (index, _), n_units = place, len(problem.starts) - 1
    damping, largest = state.damping[index], 0.0
    for i in np.arange(n_units)[::step]:
        slots = np.arange(problem.starts[i], problem.starts[i + 1])
        received = state.messages[index, problem.reverse[slots]]
        odds, before = _row(problem.odds, index)[i] * received.prod(), state.beliefs[index, i]
        state.beliefs[index, i] = odds
        p, q = odds / (1 + odds), 1 / (1 + odds)
        slots = slots[receives(state, problem.neighbours[slots] - i, step)]
        back = state.messages[index, problem.reverse[slots]]
        e, sent = problem.exponentials[slots], state.messages[index, slots]
        new = (e * p + q * back) / (e * q * back + p)
        mixed = (1 - damping) * new / (1 + new) + damping * sent / (1 + sent)
        new = mixed / (1 - mixed) if damping else new
        change = abs(new - sent) / np.minimum(new, sent)
        state.messages[index, slots] = new
        largest = max(largest, abs(odds - before) / min(odds, before), change.max(initial=0))
    state.residual[index] = largest


def binary_terms(problem, state, terms, pairs, queue):
    """Terms of the Bethe log-partition, and pair beliefs."""
    units = np.repeat(np.arange(terms.shape[1]), np.diff(problem.starts))
    k = np.flatnonzero(problem.neighbours > units)
    i, j, e = units[k], problem.neighbours[k], problem.exponentials[k]
    for index, odds in enumerate(state.beliefs):
        p, q = odds / (1 + odds), 1 / (1 + odds)
        terms[index] = np.log1p(odds)
        back, sent = state.messages[index, problem.reverse[k]], state.messages[index, k]
        message = (e * p[i] + q[i] * back) / (e * q[i] * back + p[i])
        ratio = (q[i] + p[i] / (e * back)) * (q[j] + p[j] * message / sent)
        np.add.at(terms[index], i, np.log(e) / 2 + np.log(ratio))
        if len(pairs):
            both, none = e * p[i] * p[j], e * q[i] * back * q[j] * sent
            one = p[i] * q[j] * sent + q[i] * back * p[j]
            pairs[index, problem.edges[k]] = both / (both + none + one)
