"""NumPy twin of `fastmf.kernels.bp.groups`: whole messages, an edge's two values each.

A message to a group has a weight for each state, R; one to a hidden unit two values of sum 1. They
are multiplied by adding logarithms, and marginalised by sums over tables of a pair.
"""

import numpy as np

from fastmf._outcomes import MAX_PRODUCT, RUNNING, SUM_PRODUCT
from fastmf.reference.bp.belief_propagation import _message_change
from fastmf.reference.bp.convergence import assess_row, sweep_damping
from fastmf.special import sigmoid, softplus


def _log_sum(x, axis):
    top = x.max(axis, keepdims=True)
    return np.log(np.exp(x - top).sum(axis)) + np.squeeze(top, axis)


def _to_group(w, cavity, combine):
    """log R of shape (n_states, n_hidden), from the log-odds of hidden units without the group."""
    return combine(np.stack([np.zeros_like(w) + 0 * cavity, w + cavity]), 0) - combine(
        np.stack([0 * cavity, cavity]), 0
    )


def _to_hidden(w, rest, combine):
    """Log-odds of the messages, from the log-weights of states without the hidden unit."""
    return combine(w + rest, 0) - combine(rest, 0)


def _change(beliefs, old, new, damping):
    """Largest change of a belief; if undamped, also largest relative change of a logarithm."""
    change = abs(beliefs(new) - beliefs(old)).max()
    if damping == 0:
        change = max(change, (abs(new - old) / (1 + (abs(old) + abs(new)) / 2)).max())
    return change


def _damped(algorithm, new, old, damping):
    if algorithm == MAX_PRODUCT:
        return (1 - damping) * new + damping * old
    p = (1 - damping) * sigmoid(new) + damping * sigmoid(old)
    q = (1 - damping) * sigmoid(-new) + damping * sigmoid(-old)
    return np.log(p / q)


def _sweep(settings, problem, r, log_s, fields, record):
    """One sweep of all groups; returns log Q and the largest change of a belief."""
    hidden, change = record.hidden[r].copy(), 0.0
    damping = sweep_damping(record, r)
    outer = np.max if settings.algorithm == MAX_PRODUCT else _log_sum
    for i, (first, last) in enumerate(zip(problem.starts[:-1], problem.starts[1:], strict=True)):
        w, old = problem.weights[first:last], record.visible[r, first:last].copy()
        if settings.algorithm not in (SUM_PRODUCT, MAX_PRODUCT) and record.labels[r, i] >= 0:
            log_s[i] = w[record.labels[r, i]]
        received = _to_group(w, hidden - log_s[i], outer)
        new = fields[0][first:last] + received.sum(1)
        if settings.algorithm in (SUM_PRODUCT, MAX_PRODUCT):
            sent = _to_hidden(w, new[:, None] - received, outer)
            sent = _damped(settings.algorithm, sent, log_s[i], damping)
            moved = sent - log_s[i]
            if settings.algorithm == SUM_PRODUCT:
                moved = np.expm1(moved)
            change = max(change, _message_change(moved, damping))
            log_s[i] = sent
        record.visible[r, first:last], record.labels[r, i] = new, new.argmax()
        logs = old - _log_sum(old, 0), new - _log_sum(new, 0)
        change = max(change, _change(np.exp, *logs, damping))
    sums = log_s
    if settings.algorithm not in (SUM_PRODUCT, MAX_PRODUCT):
        sums = problem.weights[problem.starts[:-1] + record.labels[r]]
    new = fields[1] + sums.sum(0)
    return new, max(change, _change(sigmoid, hidden, new, damping))


def _keep_best(settings, problem, r, fields, record):
    states = problem.starts[:-1] + record.labels[r]
    sums = fields[1] + problem.weights[states].sum(0)
    positive = np.maximum(0, sums) if settings.algorithm == MAX_PRODUCT else softplus(sums)
    value = fields[0][states].sum() + positive.sum()
    if value >= record.objective[r]:
        record.objective[r], record.best[r] = value, record.labels[r]


def _bethe(problem, r, log_s, fields, record):
    hidden = record.hidden[r]
    value = softplus(hidden).sum()
    for i, (first, last) in enumerate(zip(problem.starts[:-1], problem.starts[1:], strict=True)):
        received = _to_group(problem.weights[first:last], hidden - log_s[i], _log_sum)
        log_weights = fields[0][first:last] + received.sum(1)
        total = _log_sum(log_weights, 0)
        value += total + _log_sum((log_weights - total)[:, None] - received, 0).sum()
    return value


def group_propagation(settings, problem, record, workspace, queue):
    """Iterate rows to their fixed points, from messages of odds 1, the middle of their range."""
    for r in range(len(record.hidden)):
        log_s = np.zeros((record.labels.shape[1], record.hidden.shape[1]))
        parts = problem.visible_field, problem.hidden_field
        fields = [field[min(r, len(field) - 1)] for field in parts]
        while record.status[r] <= RUNNING:
            record.hidden[r], change = _sweep(settings, problem, r, log_s, fields, record)
            if settings.algorithm != SUM_PRODUCT:
                _keep_best(settings, problem, r, fields, record)
            assess_row(settings, record, r, change, sweep_damping(record, r))
        if settings.algorithm == SUM_PRODUCT:
            record.bethe[r] = _bethe(problem, r, log_s, fields, record)
