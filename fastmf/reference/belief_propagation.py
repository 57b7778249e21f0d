"""NumPy twin of `fastmf.kernels.belief_propagation`, in the same odds."""

import numpy as np

from fastmf._outcomes import CONFIRMING, CONVERGED, OUT_OF_ITERATIONS, RUNNING
from fastmf.special import sigmoid, sigmoid_pair, softplus

BLOCK = 256
WINDOW = 16
MOST_DAMPING = 0.97

SUM, MAX, MIXED = 0, 1, 2


def _blocks(record):
    n_visible = record.visible.shape[1]
    return [slice(i, min(i + BLOCK, n_visible)) for i in range(0, n_visible, BLOCK)]


def _incoming(e, s, hidden):
    """Messages from hidden to visible units."""
    p, q = sigmoid_pair(hidden.astype(e.dtype))
    return (s * q + e * p) / (s * q + p)


def _clipped(w, log_odds):
    """max(0, w + log_odds) - max(0, log_odds), without losing w where log_odds is large."""
    return np.maximum(w, -log_odds) - np.maximum(w.dtype.type(0), -log_odds)


def _damping_now(record, row):
    return 0.0 if record.status[row] == CONFIRMING else record.damping[row]


def _change(old, new, damping):
    """Largest change of a belief from its log-odds; undamped, theirs too."""
    change = abs(sigmoid(new) - sigmoid(old)).max()
    if damping == 0:
        change = max(change, (((new - old) / (1 + abs(old) + abs(new))) ** 2).max())
    return change


def _sweep_block(settings, problem, row, block, units, messages, record, partial, seat):
    fields = problem.visible_field[min(row, len(problem.visible_field) - 1), units]
    hidden, old = record.hidden[row], record.visible[row, units].copy()
    damping = _damping_now(record, row)
    if settings.algorithm == SUM:
        e, s = problem.exponentials[units], messages[units]
        r = _incoming(e, s, hidden)
        new = fields + np.log(r).sum(1, dtype=float)
        p, q = (x.astype(e.dtype)[:, None] for x in sigmoid_pair(new))
        yes, no = r * q + e * p, r * q + p
        if damping == 0:
            s[:] = yes / no
        else:
            total, one = yes + no, e.dtype.type(1)
            keep, take = e.dtype.type(damping), e.dtype.type(1 - damping)
            yes = take * yes / total + keep * s / (one + s)
            s[:] = yes / (take * no / total + keep / (one + s))
        partial.logs[seat, block] = np.log(s).sum(0, dtype=float)
    elif settings.algorithm == MAX:
        w, message = problem.weights[units], messages[units]
        incoming = _clipped(w, hidden.astype(w.dtype) - message)
        new = fields + incoming.sum(1, dtype=float)
        outgoing = _clipped(w, new.astype(w.dtype)[:, None] - incoming)
        message[:] = (1 - damping) * outgoing + damping * message
        partial.logs[seat, block] = message.sum(0, dtype=float)
        partial.fields[seat, block] = (new > 0) @ w
    else:
        e, (p, q) = problem.exponentials[units], sigmoid_pair(hidden.astype(messages.dtype))
        on = (old > 0)[:, None]
        logs = np.log(np.where(on, e * q + p, q + e * p)).sum(1, dtype=float)
        new = fields + np.where(old > 0, problem.row_sums[units] - logs, logs)
        partial.logs[seat, block] = (new > 0) @ problem.weights[units]
    partial.value[seat, block] = fields[new > 0].sum()
    partial.change[seat, block] = _change(old, new, damping)
    record.visible[row, units] = new


def _set_beliefs(log_odds, beliefs, damping):
    old = beliefs[2].astype(float)
    beliefs[:2], beliefs[2] = sigmoid_pair(log_odds), log_odds
    return _change(old, log_odds, damping)


def _conclude(settings, problem, row, record, partial, seat):
    fields = problem.hidden_field[min(row, len(problem.hidden_field) - 1)]
    record.hidden[row] = fields + partial.logs[seat].sum(0)
    damping = _damping_now(record, row)
    change = _set_beliefs(record.hidden[row], partial.beliefs[seat], damping)
    change = max(change, partial.change[seat].max())
    value = partial.value[seat].sum()
    if settings.algorithm == MAX:
        value += np.maximum(0, fields + partial.fields[seat].sum(0)).sum()
    elif settings.algorithm == MIXED:
        value += softplus(record.hidden[row]).sum()
    if settings.algorithm != SUM and value >= record.objective[row]:
        record.objective[row], record.best[row] = value, record.visible[row] > 0

    change /= 1 - damping
    if record.history.size:
        record.history[row, record.n_iter[row]] = change
    record.residual[row] = change
    record.n_iter[row] += 1
    # Undamped sweeps can move away from a fixed point that damping d holds, at most this fast.
    held = record.damping[row]
    limit = max(settings.tol * (1 - held) / (1 + held), settings.rounding)
    if change <= limit and damping == 0:
        record.status[row] = CONVERGED
    elif record.n_iter[row] == settings.max_iter:
        record.status[row] = OUT_OF_ITERATIONS
    elif change <= limit:
        record.status[row] = CONFIRMING
    else:
        record.status[row] = RUNNING
        if change < record.smallest[row]:
            record.smallest[row], record.since[row] = change, 0
        else:
            record.since[row] += 1
        if settings.adaptive and record.since[row] == WINDOW:
            record.damping[row] = min((1 + record.damping[row]) / 2, MOST_DAMPING)
            record.smallest[row], record.since[row] = np.inf, 0


def _bethe_block(problem, row, units, messages, record):
    fields = problem.visible_field[min(row, len(problem.visible_field) - 1), units]
    r = _incoming(problem.exponentials[units], messages[units], record.hidden[row])
    log_odds = fields + np.log(r).sum(1, dtype=float)
    p, q = (x.astype(r.dtype)[:, None] for x in sigmoid_pair(log_odds))
    return softplus(log_odds).sum() + np.log(q + p / r).sum(dtype=float)


def belief_propagation(settings, problem, messages, record, partial, queue):
    """Iterate rows to their fixed points."""
    own = len(messages) == len(record.visible)
    for row in range(len(record.visible)):
        of_row = messages[row if own else 0]
        if not own:
            of_row[:] = 1 if settings.algorithm == SUM else 0
        _set_beliefs(record.hidden[row], partial.beliefs[0], 0)
        while record.status[row] <= RUNNING:
            for block, units in enumerate(_blocks(record)):
                _sweep_block(settings, problem, row, block, units, of_row, record, partial, 0)
            _conclude(settings, problem, row, record, partial, 0)
        if settings.algorithm == SUM:
            record.bethe[row] = softplus(record.hidden[row]).sum() + sum(
                _bethe_block(problem, row, units, of_row, record) for units in _blocks(record)
            )


def sweep_blocks(settings, problem, messages, record, partial, queue):
    """One sweep of a single row, shared block by block; `conclude_sweep` ends it."""
    for block, units in enumerate(_blocks(record)):
        if record.status[0] <= RUNNING:
            _sweep_block(settings, problem, 0, block, units, messages[0], record, partial, 0)
        else:
            value = _bethe_block(problem, 0, units, messages[0], record)
            partial.value[0, block] = value


def conclude_sweep(settings, problem, record, partial):
    """End of a sweep of a single row: hidden beliefs, residual, damping; or the log-partition."""
    if record.status[0] <= RUNNING:
        _conclude(settings, problem, 0, record, partial, 0)
    else:
        record.bethe[0] = softplus(record.hidden[0]).sum() + partial.value[0].sum()


def exponentials(weights, factor, queue, out):
    """exp(factor * weights), and 1 for the padding."""
    m = weights.shape[1]
    np.exp(weights.astype(out.dtype) * out.dtype.type(factor), out=out[:, :m])
    out[:, m:] = 1


def pair_beliefs(problem, messages, record, scales, queue, out):
    """Probabilities that both units of a pair are 1: P e^W p / (s q + e^W p)."""
    out[:] = 0
    for row, scale in enumerate(scales):
        p, q = sigmoid_pair(record.hidden[row].astype(out.dtype))
        both = problem.exponentials * p
        yes = sigmoid(record.visible[row].astype(out.dtype))[:, None]
        probability = yes * both / (messages[row] * q + both)
        out[min(row, len(out) - 1)] += out.dtype.type(scale) * probability
