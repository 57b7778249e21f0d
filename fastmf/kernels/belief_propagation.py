"""Belief propagation between two layers of binary units, in odds form.

Units are {0, 1}. The one stored message is that of visible unit i to hidden unit j: the ratio
s = m(1) / m(0), for max-product its logarithm. The belief of a hidden unit is kept as the pair of
probabilities p, q = sigmoid(log-odds), sigmoid(-log-odds). The message of hidden unit j to visible
unit i is then the ratio

    r = (s q + e^W p) / (s q + p),    log-odds_i = field_i + sum_j log(r),

and, with the new belief P, Q of the visible unit, the message back is
(r Q + e^W P) / (r Q + P): two divisions for each pair of units, and logarithms of products only.
All messages lie between 1 and e^W and nothing is subtracted, so that saturated beliefs are harmless
while e^(2 |W|) is a number of the type. Couplings and messages are padded with hidden
units of no coupling that are certainly 0.

A row (one set of fields) is owned by one thread from start to end; the sweeps of a single large row
are shared block by block of visible units.
"""

import numpy as np
from numba.extending import register_jitable

from fastmf._numba import INNER, REORDER, fetch_and_increment, kernel
from fastmf._outcomes import CONFIRMING, CONVERGED, OUT_OF_ITERATIONS, RUNNING
from fastmf.kernels.bp_messages import (
    add,
    clipped,
    clipped_back,
    from_off,
    from_on,
    gather,
    incoming,
    log_of_product,
    outgoing,
    outgoing_damped,
    pair_ratios,
    probabilities,
    take_logs,
    total_of,
)
from fastmf.kernels.bp_types import (
    BLOCK,
    MAX,
    MIXED,
    MOST_DAMPING,
    PAIR_BLOCK,
    SUM,
    TILE,
    WINDOW,
    Work,
)
from fastmf.special import exp, sigmoid_pair, softplus


@kernel(inner=True)
def _damping_now(record, row):
    """Damping of the next sweep of a row: a damped one converges in an undamped sweep only."""
    return 0.0 if record.status[row] == CONFIRMING else record.damping[row]


@kernel(inline=True)
def _receive(settings, problem, unit, decoded, messages, beliefs, received):
    """Messages to a visible unit, and what they add to its log-odds."""
    p, q, odds = beliefs[0], beliefs[1], beliefs[2]
    if settings.algorithm == MAX:
        clipped(problem.weights[unit], messages[unit], odds, received)
        return total_of(received)
    e = problem.exponentials[unit]
    if settings.algorithm == SUM:
        incoming(e, messages[unit], p, q, received)
    elif decoded:
        from_on(e, p, q, received)
    else:
        from_off(e, p, q, received)
    log_product = log_of_product(received, settings.fold, settings.chunk)
    if settings.algorithm == MIXED and decoded:
        return problem.row_sums[unit] - log_product
    return log_product


@kernel(inner=True)
def _sweep_block(settings, problem, row, block, messages, damping, record, partial, seat, work):
    """One block of visible units: messages in, beliefs, messages out."""
    fields = problem.visible_field[min(row, problem.visible_field.shape[0] - 1)]
    visible, beliefs = record.visible[row], partial.beliefs[seat]
    logs, wide, product = partial.logs[seat, block], work.wide, work.product
    log_odds, yes, no, changes = work.visible[0], work.visible[1], work.visible[2], work.visible[3]
    real = product.dtype.type
    old_share, new_share = real(damping), real(1 - damping)
    logs[:] = 0
    change, value = 0.0, 0.0
    if settings.algorithm == MAX:
        partial.fields[seat, block][:] = 0
        product[:] = 0
    else:
        product[:], wide[:] = 1, 1
    since_flush = since_refresh = 0
    last = min((block + 1) * BLOCK, visible.shape[0])
    for first in range(block * BLOCK, last, TILE):
        units = min(TILE, last - first)
        for k in range(units):
            i = first + k
            log_odds[k] = fields[i] + _receive(
                settings, problem, i, visible[i] > 0, messages, beliefs, work.received[k]
            )
        old = visible[first : first + units]
        change = max(change, probabilities(log_odds[:units], old, damping, yes, no, changes))
        for k in range(units):
            i, r = first + k, work.received[k]
            old[k] = new = log_odds[k]
            if settings.algorithm == SUM:
                e, s, on, off = problem.exponentials[i], messages[i], real(yes[k]), real(no[k])
                if damping == 0:
                    outgoing(e, r, on, off, s, product)
                else:
                    outgoing_damped(e, r, on, off, old_share, new_share, s, product)
                since_flush += 1
                since_refresh += 1
                if since_flush == settings.flush:
                    gather(product, wide)
                    since_flush = 0
                    if since_refresh + settings.flush > settings.refresh:
                        take_logs(wide, logs)
                        since_refresh = 0
            elif settings.algorithm == MAX:
                w = problem.weights[i]
                clipped_back(w, r, real(new), old_share, new_share, messages[i], product)
                if new > 0:
                    add(w, partial.fields[seat, block])
            elif new > 0:
                add(problem.weights[i], logs)
            value += fields[i] if new > 0 else 0.0
    if settings.algorithm == SUM:
        gather(product, wide)
        take_logs(wide, logs)
    elif settings.algorithm == MAX:
        add(product, logs)
    partial.change[seat, block], partial.value[seat, block] = change, value


@register_jitable(**INNER)
def _work(beliefs):
    n, kind = beliefs.shape[2], beliefs.dtype
    return Work(np.ones((TILE, n), kind), np.ones((4, TILE)), np.ones(n, kind), np.ones(n))


@kernel(inner=True)
def _set_beliefs(log_odds, beliefs, damping, changes):
    """The three forms of the hidden beliefs, from their log-odds; largest change of one."""
    p, q, odds = beliefs[0], beliefs[1], beliefs[2]
    change = probabilities(log_odds, odds, damping, p, q, changes)
    for j in range(log_odds.shape[0]):
        odds[j] = log_odds[j]
    return change


@kernel(inner=True)
def _conclude(settings, problem, row, record, partial, seat):
    fields = problem.hidden_field[min(row, problem.hidden_field.shape[0] - 1)]
    hidden = record.hidden[row]
    change, value = 0.0, 0.0
    for j in range(hidden.shape[0]):
        hidden[j] = fields[j]
    n_blocks = partial.change.shape[1]
    for block in range(n_blocks):
        add(partial.logs[seat, block], hidden)
        change = max(change, partial.change[seat, block])
        value += partial.value[seat, block]
    damping = _damping_now(record, row)
    of_hidden = _set_beliefs(hidden, partial.beliefs[seat], damping, partial.logs[seat, 0])
    change = max(change, of_hidden)
    if settings.algorithm == MAX:
        total = partial.logs[seat, 0]
        for j in range(total.shape[0]):
            total[j] = fields[j]
        for block in range(n_blocks):
            add(partial.fields[seat, block], total)
        for j in range(total.shape[0]):
            value += max(0.0, total[j])
    elif settings.algorithm == MIXED:
        for j in range(hidden.shape[0]):
            value += softplus(hidden[j])
    # Of equal ones the last: beside units held by huge fields all others weigh nothing.
    if settings.algorithm != SUM and value >= record.objective[row]:
        record.objective[row] = value
        for i in range(record.visible.shape[1]):
            record.best[row, i] = record.visible[row, i] > 0

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


@kernel(inner=True)
def _bethe_block(settings, problem, row, block, messages, partial, seat, work):
    """Contribution of a block of visible units, and their pairs, to the Bethe log-partition."""
    fields = problem.visible_field[min(row, problem.visible_field.shape[0] - 1)]
    p, q = partial.beliefs[seat, 0], partial.beliefs[seat, 1]
    r = work.received[0]
    real = r.dtype.type
    total = 0.0
    for i in range(block * BLOCK, min((block + 1) * BLOCK, messages.shape[0])):
        incoming(problem.exponentials[i], messages[i], p, q, r)
        log_odds = fields[i] + log_of_product(r, settings.fold, settings.chunk)
        yes, no = sigmoid_pair(log_odds)
        pair_ratios(r, real(yes), real(no))
        total += softplus(log_odds)
        total += log_of_product(r, settings.fold, settings.chunk)
    return total


@kernel(inner=True)
def _bethe_hidden(row, record):
    total = 0.0
    for j in range(record.hidden.shape[1]):
        total += softplus(record.hidden[row, j])
    return total


@kernel
def belief_propagation(settings, problem, messages, record, partial, queue):
    """Iterate rows to their fixed points.

    Parameters
    ----------
    settings : Settings
    problem : Problem
    messages : array of shape (n_seats, n_visible, n_padded)
        From visible to hidden units: ratios, or log-ratios for max-product; not read by
        mixed-product. With as many seats as rows each row has its own, and starts from what is
        there; otherwise each worker has one, and rows start from no message.
    record : Record
        Starts from the log-odds there, which must belong to the messages.
    partial : Partial
        A seat for each worker.
    queue : int64 array of shape (2,)
        Next row that nobody has taken, next seat; shared by all threads that call this.
    """
    n_rows = record.visible.shape[0]
    seat = fetch_and_increment(queue[1:])
    work = _work(partial.beliefs)
    own = messages.shape[0] == n_rows
    while True:
        row = fetch_and_increment(queue)
        if row >= n_rows:
            break
        of_row = messages[row if own else seat]
        if not own:
            of_row[:] = 1 if settings.algorithm == SUM else 0
        _set_beliefs(record.hidden[row], partial.beliefs[seat], 0.0, partial.logs[seat, 0])
        while record.status[row] <= RUNNING:
            damping = _damping_now(record, row)
            for block in range(partial.change.shape[1]):
                _sweep_block(
                    settings, problem, row, block, of_row, damping, record, partial, seat, work,
                )  # fmt: skip
            _conclude(settings, problem, row, record, partial, seat)
        if settings.algorithm == SUM:
            total = _bethe_hidden(row, record)
            for block in range(partial.change.shape[1]):
                total += _bethe_block(settings, problem, row, block, of_row, partial, seat, work)
            record.bethe[row] = total


@kernel
def sweep_blocks(settings, problem, messages, record, partial, queue):
    """One sweep of a single row, shared block by block; `conclude_sweep` ends it.

    Parameters
    ----------
    settings, problem, messages, record, partial
        As for `belief_propagation`, with one row and one seat.
    queue : int64 array of shape (1,)
        Next block that nobody has taken; shared by all threads that call this.
    """
    work = _work(partial.beliefs)
    while True:
        block = fetch_and_increment(queue)
        if block >= partial.change.shape[1]:
            break
        if record.status[0] <= RUNNING:
            _sweep_block(
                settings, problem, 0, block, messages[0], _damping_now(record, 0), record, partial,
                0, work,
            )  # fmt: skip
        else:
            partial.value[0, block] = _bethe_block(
                settings, problem, 0, block, messages[0], partial, 0, work
            )


@kernel
def conclude_sweep(settings, problem, record, partial):
    """End of a sweep of a single row: hidden beliefs, residual, damping; or the log-partition.

    Parameters
    ----------
    settings, problem, record, partial
        As for `sweep_blocks`.
    """
    if record.status[0] <= RUNNING:
        _conclude(settings, problem, 0, record, partial, 0)
    else:
        total = _bethe_hidden(0, record)
        for block in range(partial.value.shape[1]):
            total += partial.value[0, block]
        record.bethe[0] = total


@kernel
def exponentials(weights, factor, queue, out):
    """exp(factor * weights), and 1 for the padding.

    Parameters
    ----------
    weights : array of shape (n_visible, n_hidden)
    factor : float
    queue : int64 array of shape (1,)
        Next block that nobody has taken; shared by all threads that call this.
    out : array of shape (n_visible, n_padded)
        Filled, in the type of which is computed.
    """
    n_visible, n_hidden = weights.shape
    real = out.dtype.type
    while True:
        first = fetch_and_increment(queue) * BLOCK
        if first >= n_visible:
            break
        for i in range(first, min(first + BLOCK, n_visible)):
            for j in range(n_hidden):
                out[i, j] = exp(real(factor) * real(weights[i, j]))
            out[i, n_hidden:] = 1


@kernel(fastmath=REORDER)
def pair_beliefs(problem, messages, record, scales, queue, out):
    """Probabilities that both units of a pair are 1: P e^W p / (s q + e^W p).

    Parameters
    ----------
    problem, record
        As for `belief_propagation`, after it.
    messages : array of shape (n_rows, n_visible, n_padded)
    scales : float64 array of shape (n_rows,)
    queue : int64 array of shape (1,)
        Next block that nobody has taken; shared by all threads that call this.
    out : array of shape (n_rows, n_visible, n_padded) or (1, n_visible, n_padded)
        Filled with each row times its scale, or with their sum.
    """
    n_rows, n_visible = record.visible.shape
    real = out.dtype.type
    p = np.empty((2, n_rows, out.shape[2]), out.dtype)
    for row in range(n_rows):
        yes, no, log_odds = p[0, row], p[1, row], record.hidden[row]
        for j in range(log_odds.shape[0]):
            yes[j], no[j] = sigmoid_pair(log_odds[j])
    while True:
        first = fetch_and_increment(queue) * PAIR_BLOCK
        if first >= n_visible:
            break
        for i in range(first, min(first + PAIR_BLOCK, n_visible)):
            e = problem.exponentials[i]
            out[:, i] = 0
            for row in range(n_rows):
                scale = real(scales[row] * sigmoid_pair(record.visible[row, i])[0])
                s, yes, no = messages[row, i], p[0, row], p[1, row]
                into = out[min(row, out.shape[0] - 1), i]
                for j in range(e.shape[0]):
                    both = e[j] * yes[j]
                    into[j] += scale * both / (s[j] * no[j] + both)
