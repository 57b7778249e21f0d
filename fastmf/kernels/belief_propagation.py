"""Belief propagation between two layers of {0, 1} units with couplings W and fields b, c.

Messages and cavities in log-odds, softplus(x) = log(1 + e^x):

    message from hidden to visible      log r_ij = softplus(h_ij + W_ij) - softplus(h_ij)
    message from visible to hidden      log s_ij = softplus(v_ij + W_ij) - softplus(v_ij)
    beliefs                             V_i = b_i + sum_j log r_ij,  H_j = c_j + sum_i log s_ij
    cavities                            v_ij = V_i - log r_ij,  h_ij = H_j - log s_ij
    pair beliefs                        P(v_i = 1, h_j = 1) = P e^W p / (s q + e^W p)
    Bethe log-partition                 sum_i softplus(V_i) + sum_j softplus(H_j)
    (minus the Bethe free energy)           + sum_ij log(Q_i + P_i / r_ij)

with the beliefs P, Q = sigmoid(V_i), sigmoid(-V_i) and p, q = sigmoid(H_j), sigmoid(-H_j). That is
sum-product; max-product has max(0, x) in the place of softplus(x); mixed-product has as the message
to the hidden units W_ij where V_i > 0 and 0 elsewhere (Ping and Ihler 2017, Eqs. 8-18).

Sum-product is computed with the ratios s = m(1) / m(0) and r themselves,

    r = (s q + e^W p) / (s q + p),    s = (r Q + e^W P) / (r Q + P):

two divisions for each pair of units, and logarithms of products of messages only. The only array of
messages is s (log s for max-product). All ratios lie between 1 and e^W and nothing is subtracted,
so saturated beliefs are exact as long as e^(2 |W|) is in the range of the type. Couplings and
messages are padded with hidden units of no coupling whose belief is 0.

A row (one set of fields) is iterated by one thread from start to end; the sweeps of a single large
row are shared between threads block by block of visible units.
"""

import numpy as np
from numba.extending import register_jitable

from fastmf._numba import INNER, REORDER, fetch_and_increment, kernel
from fastmf._outcomes import CONFIRMING, CONVERGED, OUT_OF_ITERATIONS, RUNNING
from fastmf.kernels.bp_messages import (
    add,
    add_logs,
    add_pair_beliefs,
    flush_products,
    log_of_product,
    max_to_hidden,
    max_to_visible,
    mixed_to_one,
    mixed_to_zero,
    pair_ratios,
    probabilities,
    sum_to_hidden,
    sum_to_hidden_damped,
    sum_to_visible,
    total_of,
)
from fastmf.kernels.bp_types import (
    BLOCK_UNITS,
    DAMPING_WINDOW,
    MAX_DAMPING,
    MAX_PRODUCT,
    MIXED_PRODUCT,
    PAIR_BLOCK_UNITS,
    SUM_PRODUCT,
    TILE_UNITS,
    BPWorkspace,
)
from fastmf.special import exp, sigmoid_pair, softplus


@register_jitable(**INNER)
def _workspace(workspaces, index, n):
    """One workspace, with new buffers for `n` hidden units."""
    dtype = workspaces.beliefs.dtype
    return BPWorkspace(
        workspaces.beliefs[index],
        workspaces.message_sums[index],
        workspaces.decoded_sums[index],
        workspaces.change[index],
        workspaces.decoded_field[index],
        np.ones((TILE_UNITS, n), dtype),
        np.ones((4, TILE_UNITS)),
        np.ones(n, dtype),
        np.ones(n),
    )


@kernel(inner=True)
def _sweep_damping(record, row):
    """Damping of the next sweep of a row: 0 in a sweep that confirms convergence."""
    return 0.0 if record.status[row] == CONFIRMING else record.damping[row]


@kernel(inline=True)
def _receive(settings, problem, unit, is_one, messages, workspace, received):
    """Compute the messages to a visible unit; returns the sum of their logarithms."""
    p, q = workspace.beliefs[0], workspace.beliefs[1]
    if settings.algorithm == MAX_PRODUCT:
        max_to_visible(problem.weights[unit], messages[unit], workspace.beliefs[2], received)
        return total_of(received)
    e = problem.exponentials[unit]
    if settings.algorithm == SUM_PRODUCT:
        sum_to_visible(e, messages[unit], p, q, received)
    elif is_one:
        mixed_to_one(e, p, q, received)
    else:
        mixed_to_zero(e, p, q, received)
    log_product = log_of_product(received, settings.grouped, settings.max_factors)
    if settings.algorithm == MIXED_PRODUCT and is_one:
        return problem.row_sums[unit] - log_product
    return log_product


@kernel(inline=True)
def _send(settings, problem, unit, k, messages, damping, workspace):
    """Compute the messages of visible unit `unit`, the k-th of its tile, to the hidden units."""
    received, tile, product = workspace.received[k], workspace.tile, workspace.product
    real, block = product.dtype.type, unit // BLOCK_UNITS
    is_one = tile[0, k] > 0
    if settings.algorithm == SUM_PRODUCT:
        e, s, p, q = problem.exponentials[unit], messages[unit], real(tile[1, k]), real(tile[2, k])
        if damping == 0:
            sum_to_hidden(e, received, p, q, s, product)
        else:
            old, new = real(damping), real(1 - damping)
            sum_to_hidden_damped(e, received, p, q, old, new, s, product)
        n_done = unit % BLOCK_UNITS + 1
        if n_done % settings.flush_every == 0:
            flush_products(product, workspace.product64)
            if n_done % settings.log_every == 0:
                add_logs(workspace.product64, workspace.message_sums[block])
    elif settings.algorithm == MAX_PRODUCT:
        w, log_odds = problem.weights[unit], real(tile[0, k])
        old, new = real(damping), real(1 - damping)
        max_to_hidden(w, received, log_odds, old, new, messages[unit], product)
        if is_one:
            add(w, workspace.decoded_sums[block])
    elif is_one:
        add(problem.weights[unit], workspace.message_sums[block])


@kernel(inner=True)
def _sweep_block(settings, problem, row, block, messages, record, workspace):
    """One block of visible units: messages in, beliefs, messages out."""
    fields = problem.visible_field[min(row, problem.visible_field.shape[0] - 1)]
    visible, tile = record.visible[row], workspace.tile
    damping = _sweep_damping(record, row)
    change, decoded_field = 0.0, 0.0
    workspace.message_sums[block][:] = 0
    if settings.algorithm == MAX_PRODUCT:
        workspace.decoded_sums[block][:] = 0
    workspace.product[:] = 0 if settings.algorithm == MAX_PRODUCT else 1
    workspace.product64[:] = 1
    last = min((block + 1) * BLOCK_UNITS, visible.shape[0])
    for first in range(block * BLOCK_UNITS, last, TILE_UNITS):
        n = min(TILE_UNITS, last - first)
        for k in range(n):
            i = first + k
            tile[0, k] = fields[i] + _receive(
                settings, problem, i, visible[i] > 0, messages, workspace, workspace.received[k]
            )
        log_odds, old = tile[0, :n], visible[first : first + n]
        change = max(change, probabilities(log_odds, old, damping, tile[1], tile[2], tile[3]))
        for k in range(n):
            old[k] = log_odds[k]
            _send(settings, problem, first + k, k, messages, damping, workspace)
            decoded_field += fields[first + k] if log_odds[k] > 0 else 0.0
    if settings.algorithm == SUM_PRODUCT:
        flush_products(workspace.product, workspace.product64)
        add_logs(workspace.product64, workspace.message_sums[block])
    elif settings.algorithm == MAX_PRODUCT:
        add(workspace.product, workspace.message_sums[block])
    workspace.change[block], workspace.decoded_field[block] = change, decoded_field


@kernel(inner=True)
def _set_hidden_beliefs(log_odds, beliefs, damping, changes):
    """Fill p, q and log-odds of the hidden units; returns the largest change of a belief."""
    p, q, stored = beliefs[0], beliefs[1], beliefs[2]
    change = probabilities(log_odds, stored, damping, p, q, changes)
    for j in range(log_odds.shape[0]):
        stored[j] = log_odds[j]
    return change


@kernel(inner=True)
def _finish_sweep(settings, problem, row, record, workspace):
    """Hidden beliefs and best assignment after a sweep; returns the largest change of a belief."""
    fields = problem.hidden_field[min(row, problem.hidden_field.shape[0] - 1)]
    hidden = record.hidden[row]
    change, value = 0.0, 0.0
    for j in range(hidden.shape[0]):
        hidden[j] = fields[j]
    n_blocks = workspace.change.shape[0]
    for block in range(n_blocks):
        add(workspace.message_sums[block], hidden)
        change = max(change, workspace.change[block])
        value += workspace.decoded_field[block]
    buffer = workspace.message_sums[0]
    damping = _sweep_damping(record, row)
    change = max(change, _set_hidden_beliefs(hidden, workspace.beliefs, damping, buffer))
    if settings.algorithm == MAX_PRODUCT:
        for j in range(buffer.shape[0]):
            buffer[j] = fields[j]
        for block in range(n_blocks):
            add(workspace.decoded_sums[block], buffer)
        for j in range(buffer.shape[0]):
            value += max(0.0, buffer[j])
    elif settings.algorithm == MIXED_PRODUCT:
        for j in range(hidden.shape[0]):
            value += softplus(hidden[j])
    # The last of equal ones: beside the fields of clamped units the others are lost in rounding.
    if settings.algorithm != SUM_PRODUCT and value >= record.objective[row]:
        record.objective[row] = value
        for i in range(record.visible.shape[1]):
            record.best[row, i] = record.visible[row, i] > 0
    return change


@kernel(inner=True)
def _assess_row(settings, row, change, record):
    """Residual, status and damping of a row after a sweep with such a largest change."""
    damping = _sweep_damping(record, row)
    change /= 1 - damping
    if record.history.size:
        record.history[row, record.n_iter[row]] = change
    record.residual[row] = change
    record.n_iter[row] += 1
    # Undamped sweeps leave a fixed point that is stable only with damping d at most this fast.
    d = record.damping[row]
    limit = max(settings.tol * (1 - d) / (1 + d), settings.rounding_error)
    if change <= limit and damping == 0:
        record.status[row] = CONVERGED
    elif record.n_iter[row] == settings.max_iter:
        record.status[row] = OUT_OF_ITERATIONS
    elif change <= limit:
        record.status[row] = CONFIRMING
    else:
        record.status[row] = RUNNING
        if change < record.min_residual[row]:
            record.min_residual[row], record.n_stalled[row] = change, 0
        else:
            record.n_stalled[row] += 1
        if settings.adaptive and record.n_stalled[row] == DAMPING_WINDOW:
            record.damping[row] = min((1 + record.damping[row]) / 2, MAX_DAMPING)
            record.min_residual[row], record.n_stalled[row] = np.inf, 0


@kernel(inner=True)
def _bethe_block(settings, problem, row, block, messages, workspace):
    """Terms of a block of visible units, and of their pairs, in the Bethe log-partition."""
    fields = problem.visible_field[min(row, problem.visible_field.shape[0] - 1)]
    p, q = workspace.beliefs[0], workspace.beliefs[1]
    r = workspace.received[0]
    real = r.dtype.type
    total = 0.0
    for i in range(block * BLOCK_UNITS, min((block + 1) * BLOCK_UNITS, messages.shape[0])):
        sum_to_visible(problem.exponentials[i], messages[i], p, q, r)
        log_odds = fields[i] + log_of_product(r, settings.grouped, settings.max_factors)
        p_visible, q_visible = sigmoid_pair(log_odds)
        pair_ratios(r, real(p_visible), real(q_visible))
        total += softplus(log_odds)
        total += log_of_product(r, settings.grouped, settings.max_factors)
    return total


@kernel(inner=True)
def _bethe_hidden(row, record):
    total = 0.0
    for j in range(record.hidden.shape[1]):
        total += softplus(record.hidden[row, j])
    return total


@kernel
def belief_propagation(settings, problem, messages, record, workspaces, queue):
    """Iterate rows to their fixed points.

    Parameters
    ----------
    settings : BPSettings
    problem : BPProblem
    messages : array of shape (n_rows or n_workspaces, n_visible, n_padded)
        From visible to hidden units: ratios, or log-ratios for max-product; not read by
        mixed-product. If there is one entry for each row, rows start from these messages;
        otherwise there is one for each worker, and rows start from messages of 1.
    record : BPRecord
        Starts from the log-odds there, which must be those of the messages.
    workspaces : BPWorkspaces
        One for each worker.
    queue : int64 array of shape (2,)
        Next row, next workspace; shared by all threads that call this.
    """
    n_rows = record.visible.shape[0]
    worker = fetch_and_increment(queue[1:])
    workspace = _workspace(workspaces, worker, workspaces.beliefs.shape[2])
    one_for_each_row = messages.shape[0] == n_rows
    while True:
        row = fetch_and_increment(queue)
        if row >= n_rows:
            break
        row_messages = messages[row if one_for_each_row else worker]
        if not one_for_each_row:
            row_messages[:] = 1 if settings.algorithm == SUM_PRODUCT else 0
        _set_hidden_beliefs(record.hidden[row], workspace.beliefs, 0.0, workspace.message_sums[0])
        while record.status[row] <= RUNNING:
            for block in range(workspace.change.shape[0]):
                _sweep_block(settings, problem, row, block, row_messages, record, workspace)
            change = _finish_sweep(settings, problem, row, record, workspace)
            _assess_row(settings, row, change, record)
        if settings.algorithm == SUM_PRODUCT:
            total = _bethe_hidden(row, record)
            for block in range(workspace.change.shape[0]):
                total += _bethe_block(settings, problem, row, block, row_messages, workspace)
            record.bethe[row] = total


@kernel
def sweep_blocks(settings, problem, messages, record, workspaces, queue):
    """One sweep of a single row, shared block by block; `conclude_sweep` ends it.

    Parameters
    ----------
    settings, problem, messages, record, workspaces
        As for `belief_propagation`, with one row and one workspace. Once the row has ended, the
        terms of the Bethe log-partition are left in the place of `decoded_field`.
    queue : int64 array of shape (1,)
        Next block; shared by all threads that call this.
    """
    workspace = _workspace(workspaces, 0, workspaces.beliefs.shape[2])
    while True:
        block = fetch_and_increment(queue)
        if block >= workspace.change.shape[0]:
            break
        if record.status[0] <= RUNNING:
            _sweep_block(settings, problem, 0, block, messages[0], record, workspace)
        else:
            workspace.decoded_field[block] = _bethe_block(
                settings, problem, 0, block, messages[0], workspace
            )


@kernel
def conclude_sweep(settings, problem, record, workspaces):
    """End of a sweep of a single row: hidden beliefs, residual, damping; or the log-partition.

    Parameters
    ----------
    settings, problem, record, workspaces
        As for `sweep_blocks`.
    """
    if record.status[0] <= RUNNING:
        workspace = _workspace(workspaces, 0, 0)  # the buffers are not used
        _assess_row(settings, 0, _finish_sweep(settings, problem, 0, record, workspace), record)
    else:
        total = _bethe_hidden(0, record)
        for block in range(workspaces.decoded_field.shape[1]):
            total += workspaces.decoded_field[0, block]
        record.bethe[0] = total


@kernel
def exponentials(weights, factor, queue, out):
    """exp(factor * weights), and 1 for the padding.

    Parameters
    ----------
    weights : array of shape (n_visible, n_hidden)
    factor : float
    queue : int64 array of shape (1,)
        Next block; shared by all threads that call this.
    out : array of shape (n_visible, n_padded)
        Filled. Its type is that of the computation.
    """
    n_visible, n_hidden = weights.shape
    real = out.dtype.type
    while True:
        first = fetch_and_increment(queue) * BLOCK_UNITS
        if first >= n_visible:
            break
        for i in range(first, min(first + BLOCK_UNITS, n_visible)):
            for j in range(n_hidden):
                out[i, j] = exp(real(factor) * real(weights[i, j]))
            out[i, n_hidden:] = 1


@kernel(inner=True)
def _pair_beliefs_of_unit(problem, unit, messages, record, scales, beliefs, out):
    """The pair beliefs of one visible unit, in all rows; `beliefs` are p and q of all rows."""
    e, real = problem.exponentials[unit], out.dtype.type
    out[:, unit] = 0
    for row in range(record.visible.shape[0]):
        scale = real(scales[row] * sigmoid_pair(record.visible[row, unit])[0])
        total, p, q = out[min(row, out.shape[0] - 1), unit], beliefs[0, row], beliefs[1, row]
        add_pair_beliefs(e, messages[row, unit], p, q, scale, total)


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
        Next block of `PAIR_BLOCK_UNITS` visible units; shared by all threads that call this.
    out : array of shape (n_rows, n_visible, n_padded) or (1, n_visible, n_padded)
        Filled with each row times its scale, or with their sum.
    """
    n_rows, n_visible = record.visible.shape
    beliefs = np.empty((2, n_rows, out.shape[2]), out.dtype)
    for row in range(n_rows):
        log_odds = record.hidden[row]
        for j in range(log_odds.shape[0]):
            beliefs[0, row, j], beliefs[1, row, j] = sigmoid_pair(log_odds[j])
    while True:
        first = fetch_and_increment(queue) * PAIR_BLOCK_UNITS
        if first >= n_visible:
            break
        for i in range(first, min(first + PAIR_BLOCK_UNITS, n_visible)):
            _pair_beliefs_of_unit(problem, i, messages, record, scales, beliefs, out)
