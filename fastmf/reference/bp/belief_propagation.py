"""NumPy twin of `fastmf.kernels.bp.belief_propagation`, with the same message ratios.

Sum-product messages s (visible to hidden) and r (hidden to visible) are ratios m(1) / m(0), beliefs
P, Q = sigmoid(V), sigmoid(-V) of visible and p, q of hidden units:

    r = (s q + e^W p) / (s q + p),    V_i = b_i + sum_j log r_ij
    s = (r Q + e^W P) / (r Q + P),    H_j = c_j + sum_i log s_ij
    Bethe log-partition = sum_i softplus(V_i) + sum_j softplus(H_j) + sum_ij log(Q_i + P_i / r_ij)
"""

import numpy as np

from fastmf._outcomes import BLOCK_UNITS, MAX_PRODUCT, MIXED_PRODUCT, RUNNING, SUM_PRODUCT
from fastmf.reference.bp.convergence import assess_row, sweep_damping
from fastmf.special import sigmoid, sigmoid_pair, softplus


def _blocks(record):
    n_visible = record.visible.shape[1]
    return [slice(i, min(i + BLOCK_UNITS, n_visible)) for i in range(0, n_visible, BLOCK_UNITS)]


def _workspace(workspaces, index):
    return type(workspaces)(*(part[index] for part in workspaces))


def _sum_to_visible(e, s, hidden):
    """Compute sum-product messages from hidden to visible units."""
    p, q = sigmoid_pair(hidden.astype(e.dtype))
    return (s * q + e * p) / (s * q + p)


def _max_message(w, cavity):
    """Compute max(0, w + cavity) - max(0, cavity) without the loss of w for large cavities."""
    return np.maximum(w, -cavity) - np.maximum(w.dtype.type(0), -cavity)


def _change(old, new, damping):
    """Return the largest change of a belief or, if undamped, relative change of its log-odds."""
    change = abs(sigmoid(new) - sigmoid(old)).max()
    if damping == 0:
        change = max(change, (abs(new - old) / (1 + (abs(old) + abs(new)) / 2)).max())
    return change


def _message_change(changes, damping):
    """Return the largest change of messages, mapped to [0, 1); 0 if damped."""
    largest = float(abs(changes).max(initial=0))
    return largest / (1 + largest) if damping == 0 else 0.0


def _damped(e, new, old, damping):
    """Average messages as normalised messages of spins, s / (sqrt(e) + s); return ratios."""
    root, d, one = np.sqrt(e), e.dtype.type(damping), e.dtype.type(1)
    weights = (one - d) / (root + new), d / (root + old)
    return (weights[0] * new + weights[1] * old) / (weights[0] + weights[1])


def _sum_block(problem, units, messages, fields, hidden, damping):
    """Update a block: log-odds of visible units, sums of log-messages, changes of messages."""
    e, s = problem.exponentials[units], messages[units]
    before = s.copy()
    r = _sum_to_visible(e, s, hidden)
    new = fields + np.log(r).sum(1, dtype=float)
    p, q = (x.astype(e.dtype)[:, None] for x in sigmoid_pair(new))
    high, low = r * q + e * p, r * q + p
    s[:] = high / low if damping == 0 else _damped(e, high / low, s, damping)
    return new, np.log(s).sum(0, dtype=float), s / before - 1


def _max_block(problem, units, messages, fields, hidden, damping):
    w, log_s = problem.weights[units], messages[units]
    log_r = _max_message(w, hidden.astype(w.dtype) - log_s)
    new = fields + log_r.sum(1, dtype=float)
    outgoing = _max_message(w, new.astype(w.dtype)[:, None] - log_r)
    before = log_s.copy()
    log_s[:] = (1 - damping) * outgoing + damping * log_s
    return new, log_s.sum(0, dtype=float), log_s - before


def _mixed_block(problem, units, dtype, fields, hidden, old):
    e, (p, q) = problem.exponentials[units], sigmoid_pair(hidden.astype(dtype))
    is_one = old > 0
    logs = np.log(np.where(is_one[:, None], e * q + p, q + e * p)).sum(1, dtype=float)
    new = fields + np.where(is_one, problem.row_sums[units] - logs, logs)
    return new, (new > 0) @ problem.weights[units], np.zeros(1)


def _sweep_block(settings, problem, row, block, messages, record, workspace):
    units = _blocks(record)[block]
    fields = problem.visible_field[min(row, len(problem.visible_field) - 1), units]
    hidden, old = record.hidden[row], record.visible[row, units].copy()
    damping = sweep_damping(record, row)
    if settings.algorithm == SUM_PRODUCT:
        new, sums, changes = _sum_block(problem, units, messages, fields, hidden, damping)
    elif settings.algorithm == MAX_PRODUCT:
        new, sums, changes = _max_block(problem, units, messages, fields, hidden, damping)
        workspace.decoded_sums[block] = (new > 0) @ problem.weights[units]
    else:
        new, sums, changes = _mixed_block(problem, units, messages.dtype, fields, hidden, old)
    workspace.message_sums[block] = sums
    workspace.decoded_field[block] = fields[new > 0].sum()
    change = _change(old, new, damping)
    if change <= settings.tol:  # otherwise changes of messages do not matter
        change = max(change, _message_change(changes, damping))
    workspace.change[block] = change
    record.visible[row, units] = new


def _set_hidden_beliefs(log_odds, beliefs, damping):
    old = beliefs[2].astype(float)
    beliefs[:2], beliefs[2] = sigmoid_pair(log_odds), log_odds
    return _change(old, log_odds, damping)


def _finish_sweep(settings, problem, row, record, workspace):
    """Hidden beliefs and best assignment after a sweep; returns the largest change of a belief."""
    fields = problem.hidden_field[min(row, len(problem.hidden_field) - 1)]
    record.hidden[row] = fields + workspace.message_sums.sum(0)
    damping = sweep_damping(record, row)
    change = _set_hidden_beliefs(record.hidden[row], workspace.beliefs, damping)
    change = max(change, workspace.change.max())
    value = workspace.decoded_field.sum()
    if settings.algorithm == MAX_PRODUCT:
        value += np.maximum(0, fields + workspace.decoded_sums.sum(0)).sum()
    elif settings.algorithm == MIXED_PRODUCT:
        value += softplus(record.hidden[row]).sum()
    if settings.algorithm != SUM_PRODUCT and value >= record.objective[row]:
        record.objective[row], record.best[row] = value, record.visible[row] > 0
    return change


def _bethe_block(problem, row, units, messages, record):
    fields = problem.visible_field[min(row, len(problem.visible_field) - 1), units]
    r = _sum_to_visible(problem.exponentials[units], messages[units], record.hidden[row])
    log_odds = fields + np.log(r).sum(1, dtype=float)
    p, q = (x.astype(r.dtype)[:, None] for x in sigmoid_pair(log_odds))
    total = softplus(log_odds).sum() + np.log(q + p / r).sum(dtype=float)
    return total + (softplus(record.hidden[row]).sum() if units.start == 0 else 0)


def _start(settings, problem, messages):
    """Return neutral messages."""
    if settings.algorithm == SUM_PRODUCT:
        return problem.starts
    return messages if settings.algorithm == MIXED_PRODUCT else problem.weights / 2


def belief_propagation(settings, problem, messages, record, workspaces, queue):
    """Iterate rows to their fixed points."""
    workspace = _workspace(workspaces, 0)
    one_for_each_row = len(messages) == len(record.visible)
    for row in range(len(record.visible)):
        row_messages = messages[row if one_for_each_row else 0]
        if not one_for_each_row:
            row_messages[:] = _start(settings, problem, row_messages)
        _set_hidden_beliefs(record.hidden[row], workspace.beliefs, 0)
        while record.status[row] <= RUNNING:
            for block in range(len(workspace.change)):
                _sweep_block(settings, problem, row, block, row_messages, record, workspace)
            change = _finish_sweep(settings, problem, row, record, workspace)
            assess_row(settings, record, row, change, sweep_damping(record, row))
        if settings.bethe:
            record.bethe[row] = sum(
                _bethe_block(problem, row, units, row_messages, record) for units in _blocks(record)
            )


def exponentials(weights, factor, queue, roots, out):
    """Compute exp(factor * weights) and its square root, without the padding."""
    m = weights.shape[1]
    square_roots = np.exp(out.dtype.type(factor / 2) * weights)
    roots[:, :m] = square_roots[: len(roots)]
    out[:, :m] = square_roots**2


def pair_beliefs(problem, messages, beliefs, scales, queue, out):
    """Compute the probabilities that both units of a pair are 1: P e^W p / (s q + e^W p)."""
    for row, (p, q, scale) in enumerate(zip(*beliefs, scales, strict=True)):
        both = problem.exponentials * p
        out[min(row, len(out) - 1)] += scale[:, None] * both / (messages[row] * q + both)
