"""NumPy twin of `fastmf.kernels.bp.groups`, with messages of all states.

A message to a group has a weight R for each state; a message to a hidden unit has two values of sum
1. They are multiplied by adding logarithms, and marginalised by sums over tables of a pair.
"""

import numpy as np

from fastmf._outcomes import RUNNING
from fastmf.reference.bp.belief_propagation import _message_change
from fastmf.reference.bp.convergence import assess_row, sweep_damping
from fastmf.special import sigmoid, softplus


def _log_sum(x, axis):
    top = x.max(axis, keepdims=True)
    return np.log(np.exp(x - top).sum(axis)) + np.squeeze(top, axis)


def _to_group(w, cavity):
    """Return log R, (n_states, n_hidden), from log-odds of hidden units without the group."""
    return softplus(w + cavity) - softplus(cavity)


def _change(beliefs, old, new, damping):
    """Return the largest change of a belief or, if undamped, relative change of a logarithm."""
    change = abs(beliefs(new) - beliefs(old)).max()
    if damping == 0:
        change = max(change, (abs(new - old) / (1 + (abs(old) + abs(new)) / 2)).max())
    return change


def _damped(new, old, damping):
    p = (1 - damping) * sigmoid(new) + damping * sigmoid(old)
    q = (1 - damping) * sigmoid(-new) + damping * sigmoid(-old)
    return np.log(p / q)


def _sweep(problem, weights, r, log_s, fields, record):
    """Sweep all groups once; return log-odds of hidden units, and the largest change."""
    hidden, change = record.hidden[r].copy(), 0.0
    damping = sweep_damping(record, r)
    for i, (first, last) in enumerate(zip(problem.starts[:-1], problem.starts[1:], strict=True)):
        w, old = weights[first:last], record.visible[r, first:last].copy()
        received = _to_group(w, hidden - log_s[i])
        new = fields[0][first:last] + received.sum(1)
        without = new[:, None] - received
        sent = _log_sum(w + without, 0) - _log_sum(without, 0)
        sent = _damped(sent, log_s[i], damping)
        change = max(change, _message_change(np.expm1(sent - log_s[i]), damping))
        log_s[i], record.visible[r, first:last] = sent, new
        logs = old - _log_sum(old, 0), new - _log_sum(new, 0)
        change = max(change, _change(np.exp, *logs, damping))
    new = fields[1] + log_s.sum(0)
    return new, max(change, _change(sigmoid, hidden, new, damping))


def _bethe(problem, weights, log_s, fields, hidden):
    value = softplus(hidden).sum()
    for i, (first, last) in enumerate(zip(problem.starts[:-1], problem.starts[1:], strict=True)):
        received = _to_group(weights[first:last], hidden - log_s[i])
        log_weights = fields[0][first:last] + received.sum(1)
        total = _log_sum(log_weights, 0)
        value += total + _log_sum((log_weights - total)[:, None] - received, 0).sum()
    return value


def group_propagation(settings, problem, record, workspace, queue):
    """Iterate rows to their fixed points, from neutral messages of odds 1."""
    weights = np.log(problem.exponentials)
    for r in range(len(record.hidden)):
        log_s = np.zeros((len(problem.starts) - 1, record.hidden.shape[1]))
        parts = problem.visible_field, problem.hidden_field
        fields = [field[min(r, len(field) - 1)] for field in parts]
        while record.status[r] <= RUNNING:
            record.hidden[r], change = _sweep(problem, weights, r, log_s, fields, record)
            assess_row(settings, record, r, change, sweep_damping(record, r))
        record.bethe[r] = _bethe(problem, weights, log_s, fields, record.hidden[r])
