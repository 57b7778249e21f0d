"""Belief propagation between groups of states and binary hidden units, in odds.

With E = exp(W), let S_ij be the odds of the message of group i to hidden unit j, Q_j = exp(u_j)
prod_i S_ij the odds of a hidden unit, O_ia the weights of states, and k_ij = Q_j / S_ij. A sweep

    R_iaj = (1 + E_iaj k_ij) / (1 + k_ij),   O_ia = exp(U_ia) prod_j R_iaj,
    S_ij = sum_a E_iaj w_a / sum_a w_a,      w_a = O_ia / (1 + E_iaj k_ij)

updates all groups, then Q. A message is a single number, whatever the number of states. With
p + q = 1 and p / q = Q, 1 + E k is (S q + E p) / (S q), which neither overflows nor cancels.
Logarithms are computed only of products of many factors.

    Bethe log-partition = sum_i log sum_a O_ia + sum_j log(1 + Q_j) + sum_ij log sum_a m_ia / R_iaj
"""

from functools import cache
from typing import NamedTuple

from fastmf._jit.argument_types import Float64, Int64, argument_types
from fastmf._jit.intrinsics import fetch_and_increment, larger, row, smaller
from fastmf._jit.kernel import REORDER, address_of, call, kernel
from fastmf._outcomes import RUNNING, WINDOW_SWEEPS
from fastmf._threads.workers import next_task, stopped
from fastmf.kernels.bp.convergence import assess_row, sweep_damping
from fastmf.kernels.linear.product import copy
from fastmf.special import exp, log, sigmoid_pair, softplus


class GroupProblem(NamedTuple):
    """Couplings and fields; hidden units are {0, 1} units."""

    exponentials: Float64[2]  # (n_states, n_hidden): exp(W)
    starts: Int64[1]  # (n_groups + 1,): first state of each group, and the number of states
    visible_field: Float64[2]  # (1 or n_rows, n_states)
    hidden_field: Float64[2]  # (1 or n_rows, n_hidden)


class GroupSettings(NamedTuple):
    """Options of the iteration, as in `fastmf.kernels.bp.messages.BPSettings`."""

    tol: float
    rounding_error: float
    max_iter: int
    adaptive: bool
    max_factors: int  # largest number of messages whose product does not overflow
    sweep: int  # address of the compiled sweep of a row: see `sweep_address`


class GroupRecord(NamedTuple):
    """Beliefs and convergence record of all rows."""

    visible: Float64[2]  # (n_rows, n_states): log O
    hidden: Float64[2]  # (n_rows, n_hidden): log Q
    bethe: Float64[1]  # as in `fastmf.kernels.bp.messages.BPRecord` (this and the next 8)
    status: Int64[1]
    n_iter: Int64[1]
    residual: Float64[1]
    damping: Float64[1]
    min_residual: Float64[1]
    n_stalled: Int64[1]
    limit: Float64[1]
    history: Float64[2]


class GroupWorkspace(NamedTuple):
    """Memory of the workers, along a first axis."""

    messages: Float64[3]  # (n_workers, n_groups, n_hidden): odds of the messages to hidden units
    # (n_workers, 9, n_hidden): beliefs p and q, four buffers, log Q, products of messages, and the
    # largest changes of the messages in a sweep
    hidden: Float64[3]
    states: Float64[3]  # (n_workers, 3, max_states)


@kernel(mode="inner", fastmath=REORDER)
def add_received(e, s, work, max_factors, log_weights):
    """Add log R of all hidden units to the logarithms of the weights of states."""
    p, q, sq, inverse = work[0], work[1], work[2], work[3]
    n = s.shape[0]
    for j in range(n):
        sq[j] = s[j] * q[j]
        inverse[j] = 1 / (sq[j] + p[j])
    for a in range(e.shape[0]):
        total = 0.0
        for first in range(0, n, max_factors):
            # Loops that begin at 0 have no negative index, so that they vectorise.
            n_here, product = smaller(max_factors, n - first), 1.0
            ratios, k = row(e, (a, first), n_here), row(work, (3, first), n_here)
            odds, p = row(work, (2, first), n_here), row(work, (0, first), n_here)
            for j in range(n_here):
                product *= (odds[j] + ratios[j] * p[j]) * k[j]
            total += log(product)
        log_weights[a] += total


@kernel(mode="merged")
def send_odds(e, weights, damping, work, s):
    """Update the odds of the messages of a group, whose states have these weights.

    `work` receives their relative changes, if these are the largest so far.
    """
    p, sq, high, low, changes = work[0], work[2], work[4], work[5], work[8]
    n = s.shape[0]
    for j in range(n):
        high[j], low[j] = 0.0, 0.0
    for a in range(e.shape[0]):
        ratios, o = e[a], weights[a]
        for j in range(n):
            w = o / (sq[j] + ratios[j] * p[j])
            low[j] += w
            high[j] += ratios[j] * w
    for j in range(n):
        # Normalised messages are averaged.
        new, old, before = (1 - damping) / (high[j] + low[j]), damping / (1 + s[j]), s[j]
        s[j] = (new * high[j] + old * s[j]) / (new * low[j] + old)
        changes[j] = larger(abs(s[j] / before - 1), changes[j])


@kernel(mode="inner", fastmath=REORDER)
def softmax(log_weights, out):
    """Normalise weights, given as logarithms; return the logarithm of their sum."""
    top, total = log_weights[0], 0.0
    for a in range(log_weights.shape[0]):
        top = larger(log_weights[a], top)
    for a in range(log_weights.shape[0]):
        out[a] = exp(log_weights[a] - top)
    for a in range(log_weights.shape[0]):
        total += out[a]
    for a in range(log_weights.shape[0]):
        out[a] /= total
    return top + log(total)


@kernel(mode="inner")
def belief_change(old, new, old_log, new_log, damping):
    """Return the change of a belief or, if undamped and larger, of its logarithm (relative)."""
    change = abs(new - old)
    if damping == 0:
        relative = abs(new_log - old_log) / (1 + (abs(old_log) + abs(new_log)) / 2)
        change = larger(relative, change)
    return change


@kernel(mode="merged")
def update_group(settings, problem, place, damping, arrays):
    """Update weights and messages of one group; return the largest change of a belief."""
    messages, visible, work, states = arrays
    i, field_row = place
    first, last = problem.starts[i], problem.starts[i + 1]
    e, new, s = problem.exponentials[first:last], visible[first:last], messages[i]
    old, before, after = states[0, : last - first], states[1], states[2]
    copy(new, old)
    old_total = softmax(old, before)
    copy(problem.visible_field[field_row, first:last], new)
    add_received(e, s, work, settings.max_factors, new)
    total, change = softmax(new, after), 0.0
    send_odds(e, after, damping, work, s)
    for a in range(last - first):
        logs = old[a] - old_total, new[a] - total
        change = larger(belief_change(before[a], after[a], logs[0], logs[1], damping), change)
    return change


@kernel(mode="merged")
def multiply(messages, last, product, total):
    """Multiply messages into products; after the last, add the logarithms to totals."""
    for j in range(messages.shape[0]):
        product[j] *= messages[j]
    if last:
        for j in range(messages.shape[0]):
            total[j] += log(product[j])
            product[j] = 1.0


@kernel(mode="merged")
def sum_messages(settings, messages, field, work):
    """Compute log Q from the messages of all groups, in the workspace."""
    total, product, n = work[6], work[7], field.shape[0]
    for j in range(n):
        total[j], product[j] = field[j], 1.0
    for i in range(messages.shape[0]):
        last = (i + 1) % settings.max_factors == 0 or i + 1 == messages.shape[0]
        multiply(messages[i], last, product, total)


@kernel(mode="inner")
def set_beliefs(hidden, work):
    """Set beliefs p and q of the hidden units."""
    for j in range(hidden.shape[0]):
        work[0, j], work[1, j] = sigmoid_pair(hidden[j])


@kernel(mode="by_address", fastmath=REORDER, views=True)
def _sweep_row(settings, problem, record, workspace, place):
    """Sweep a row once; `place` is the row and its worker."""
    r, w = place
    messages, work, states = workspace.messages[w], workspace.hidden[w], workspace.states[w]
    field_rows = (
        smaller(r, problem.visible_field.shape[0] - 1),
        smaller(r, problem.hidden_field.shape[0] - 1),
    )
    damping = sweep_damping(record, r)
    hidden = record.hidden[r]
    set_beliefs(hidden, work)
    arrays = messages, record.visible[r], work, states
    change, largest, message_changes = 0.0, 0.0, work[8]
    for j in range(hidden.shape[0]):
        message_changes[j] = 0.0
    for i in range(messages.shape[0]):
        place = i, field_rows[0]
        change = larger(update_group(settings, problem, place, damping, arrays), change)
    for j in range(hidden.shape[0]):
        largest = larger(message_changes[j], largest)
    if damping == 0:
        change = larger(largest / (1 + largest), change)
    sum_messages(settings, messages, problem.hidden_field[field_rows[1]], work)
    for j in range(hidden.shape[0]):
        new, p = work[6, j], sigmoid_pair(work[6, j])[0]
        change = larger(belief_change(work[0, j], p, hidden[j], new, damping), change)
        hidden[j] = new
    assess_row(settings, record, r, change, damping, WINDOW_SWEEPS)


@kernel(mode="merged")
def bethe(settings, problem, r, messages, record, work, states):
    """Compute the Bethe log-partition of a row from its messages."""
    hidden, field_row = record.hidden[r], smaller(r, problem.visible_field.shape[0] - 1)
    set_beliefs(hidden, work)
    value, mean = 0.0, states[0]
    for j in range(hidden.shape[0]):
        value += softplus(hidden[j])
    for i in range(messages.shape[0]):
        first, last = problem.starts[i], problem.starts[i + 1]
        e, weights = problem.exponentials[first:last], states[1, : last - first]
        copy(problem.visible_field[field_row, first:last], weights)
        add_received(e, messages[i], work, settings.max_factors, weights)
        value += softmax(weights, mean)
        p, sq, k, ratios = work[0], work[2], work[3], work[4]
        for j in range(hidden.shape[0]):
            ratios[j] = 0.0
        for a in range(last - first):
            exponentials, m = e[a], mean[a]
            for j in range(hidden.shape[0]):
                ratios[j] += m / (sq[j] + exponentials[j] * p[j])
        for j in range(hidden.shape[0]):
            value += log(ratios[j] / k[j])
    record.bethe[r] = value


@kernel(views=True, fastmath=REORDER)
def group_propagation(settings, problem, record, workspace, queue):
    """Iterate rows to their fixed points, from neutral messages of odds 1."""
    w = fetch_and_increment(queue[1:])
    if w >= workspace.messages.shape[0]:
        return
    messages, work, states = workspace.messages[w], workspace.hidden[w], workspace.states[w]
    r = next_task(queue)
    while r < record.hidden.shape[0]:
        for i in range(messages.shape[0]):
            for j in range(messages.shape[1]):
                messages[i, j] = 1.0
        while record.status[r] <= RUNNING and not stopped(queue):
            call(settings.sweep, (settings, problem, record, workspace, (r, w)))
        bethe(settings, problem, r, messages, record, work, states)
        r = next_task(queue)


@cache
def sweep_address():
    """Address of the compiled sweep of a row."""
    arguments = GroupSettings, GroupProblem, GroupRecord, GroupWorkspace, (int, int)
    return address_of(_sweep_row, *argument_types(float, *arguments))
