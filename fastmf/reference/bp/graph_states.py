"""NumPy twin of `kernels.bp.graph_states`."""

import numpy as np

from fastmf._outcomes import LOG_EPSILON
from fastmf.reference.bp import graph_binary
from fastmf.reference.bp.graph_binary import receives


def log_sum(x, axis=None):
    """log sum exp(x); -inf where all are."""
    with np.errstate(divide="ignore"):
        return np.logaddexp.reduce(x, axis=axis)


def _states(problem, i):
    return slice(problem.first_state[i], problem.first_state[i + 1])


def _message(problem, k):
    return slice(problem.first_entry[k], problem.first_entry[k + 1])


def _field(problem, index, i):
    return problem.field[min(index, len(problem.field) - 1), _states(problem, i)]


def table_of(problem, k, n):
    """Table of a slot: rows are the n states of the sender."""
    edge = problem.edges[k]
    table = problem.tables[problem.first_value[edge] : problem.first_value[edge + 1]]
    return table.reshape(-1, n).T if problem.transposed[k] else table.reshape(n, -1)


def _change(new, old):
    unchanged = (new == old) | ((new < old) & (old < LOG_EPSILON))
    both = np.isfinite(new) & np.isfinite(old)
    with np.errstate(invalid="ignore"):
        change = np.where(both, abs(new - old) / (1 + abs(new)), 1.0)
    return np.where(unchanged, 0.0, change).max(initial=0)


def _cavity(belief, message):
    possible = belief > -np.inf
    return np.where(possible, belief - np.where(possible, message, 0), -np.inf)


def _belief(problem, state, index, i):
    """Logarithms of the belief of a unit, and their change."""
    total = _field(problem, index, i).copy()
    for k in range(problem.starts[i], problem.starts[i + 1]):
        received = state.messages[index, _message(problem, problem.reverse[k])]
        total += problem.probability[problem.edges[k]] * received
    before = state.beliefs[index, _states(problem, i)].copy()
    state.beliefs[index, _states(problem, i)] = total
    if total.max() == -np.inf:
        return total, np.inf
    return total, _change(total - total.max(), before - before.max())


def _send(problem, state, place, step):
    """Beliefs of the units of a row, one after another, and the messages that they send."""
    (index, _), n_units = place, len(problem.starts) - 1
    damping, largest = state.damping[index], 0.0
    for i in np.arange(n_units)[::step]:
        belief, change = _belief(problem, state, index, i)
        largest = max(largest, change)
        if largest == np.inf:
            break
        for k in range(problem.starts[i], problem.starts[i + 1]):
            if not receives(state, problem.neighbours[k] - i, step):
                continue
            cavity = _cavity(belief, state.messages[index, _message(problem, problem.reverse[k])])
            terms = cavity[:, None] + table_of(problem, k, len(belief))
            sent = terms.max(0) if problem.maximum else log_sum(terms, axis=0)
            if sent.max() == -np.inf:
                sent, largest = np.zeros_like(sent), np.inf
            sent = sent - sent.max()
            old = state.messages[index, _message(problem, k)].copy()
            if damping:
                mixed = np.isfinite(sent) & np.isfinite(old)
                sent[mixed] = (1 - damping) * sent[mixed] + damping * old[mixed]
                sent -= sent.max()
            state.messages[index, _message(problem, k)] = sent
            largest = max(largest, _change(sent, old))
    state.residual[index] = largest


def graph_sweep(send, problem, state, rows, step, queue):
    """One sweep of some rows, unit after unit, forwards or backwards, by the address of `_send`."""
    sender = graph_binary.send if hasattr(problem, "odds") else _send
    for index in rows:
        sender(problem, state, (index, 0), step)
