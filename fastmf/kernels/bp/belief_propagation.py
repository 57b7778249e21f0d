"""Belief propagation between two layers of {0, 1} units with couplings W and fields b, c.

Messages and cavities in log-odds, softplus(x) = log(1 + e^x):

    message from hidden to visible      log r_ij = softplus(h_ij + W_ij) - softplus(h_ij)
    message from visible to hidden      log s_ij = softplus(v_ij + W_ij) - softplus(v_ij)
    beliefs                             V_i = b_i + sum_j log r_ij,  H_j = c_j + sum_i log s_ij
    cavities                            v_ij = V_i - log r_ij,  h_ij = H_j - log s_ij
    pair beliefs                        P(v_i = 1, h_j = 1) = P e^W p / (s q + e^W p)
    Bethe log-partition                 sum_i softplus(V_i) + sum_j softplus(H_j)
    (minus the Bethe free energy)           + sum_ij log(Q_i + P_i / r_ij)

with the beliefs P, Q = sigmoid(V_i), sigmoid(-V_i) and p, q = sigmoid(H_j), sigmoid(-H_j). These
are the equations of sum-product. Max-product has max(0, x) in place of softplus(x). Mixed-product
has the log-message W_ij to hidden units if V_i > 0 and else 0 (Ping and Ihler 2017, Eqs. 8-18).

Sum-product is computed with the ratios s = m(1) / m(0) and r themselves,

    r = (s q + e^W p) / (s q + p),    s = (r Q + e^W P) / (r Q + P),

by two divisions for each pair of units; logarithms are taken of products of messages only. The only
array of messages is s (log s for max-product). All ratios lie between 1 and e^W and nothing is
subtracted, so that saturated beliefs are exact while e^(2 |W|) is in the range of the type.
Couplings and messages are padded with hidden units of zero coupling whose belief is 0.

A row (one set of fields) is iterated by one thread from start to end, a block of visible units at a
time. Functions of an algorithm are compiled when it is first used; long functions called from
several places are compiled once. The functions of blocks take

    arrays    messages, log-odds of visible units, log-odds of hidden units
    place     row, entry of `messages`, worker, block
"""

from functools import cache

import numpy as np

from fastmf._jit.argument_types import Float64, Real, argument_types
from fastmf._jit.intrinsics import fetch_and_increment, larger, row, smaller
from fastmf._jit.kernel import REORDER, address_of, call, kernel
from fastmf._outcomes import (
    BLOCK_UNITS,
    MAX_PRODUCT,
    MIXED_PRODUCT,
    RUNNING,
    SUM_PRODUCT,
    WINDOW_SWEEPS,
)
from fastmf._threads.workers import next_task, stopped
from fastmf.kernels.bp.convergence import assess_row, sweep_damping
from fastmf.kernels.bp.messages import (
    CHANGES,
    LOG_ODDS,
    LOGS,
    TILE_UNITS,
    BPProblem,
    BPRecord,
    BPSettings,
    BPWorkspaces,
    P,
    Q,
    add,
    add_logs,
    add_max_changes,
    add_pair_beliefs,
    add_sum_changes,
    flush_products,
    log_products,
    max_to_hidden,
    max_to_visible,
    pair_logs,
    set_to_halves,
    sum_to_hidden,
    sum_to_hidden_damped,
)
from fastmf.kernels.linear.product import copy
from fastmf.special import exp, sigmoid_pair, softplus


@kernel(mode="by_address", views=True)
def _set_beliefs(log_odds, old, p, q, changes, damping):
    """Set the probabilities of 1 and 0, and `changes[0]` to the largest change of a belief.

    The old log-odds are replaced. In undamped sweeps their relative change counts too, as the
    probability of a saturated belief hardly changes.
    """
    # Two loops and no branch, so that the exponentials vectorise.
    undamped = 1.0 if damping == 0 else 0.0
    for k in range(log_odds.shape[0]):
        new, before = log_odds[k], np.float64(old[k])
        p_new, q_new = sigmoid_pair(new)
        relative = undamped * abs(new - before) / (1 + (abs(before) + abs(new)) / 2)
        changes[k] = larger(abs(p_new - sigmoid_pair(before)[0]), relative)
        p[k], q[k], old[k] = p_new, q_new, new
    largest = 0.0
    for k in range(log_odds.shape[0]):
        largest = larger(largest, changes[k])
    changes[0] = largest


@kernel(mode="by_address", views=True)
def _add_softplus(log_odds, total):
    """Add softplus of log-odds to a total, an array of one number."""
    for k in range(log_odds.shape[0]):
        total[0] += softplus(log_odds[k])


@kernel(mode="merged")
def _set_visible_beliefs(settings, visible, workspaces, w, damping):
    """Set the beliefs of a tile of visible units from log-odds, and return the largest change."""
    tile, n = workspaces.tile, visible.shape[0]
    log_odds, changes = row(tile, (w, LOG_ODDS, 0), n), row(tile, (w, CHANGES, 0), n)
    p, q = row(tile, (w, P, 0), n), row(tile, (w, Q, 0), n)
    call(settings.visible_beliefs, (log_odds, visible, p, q, changes, damping))
    return changes[0]


@kernel(mode="merged")
def _set_logs(settings, problem, messages, workspaces, place, tile, normalisers):
    """Set the logarithms of products for a tile (first unit, number of units): see `pair_logs`."""
    entry, w = place
    first, n_units = tile
    n = messages.shape[2]
    e = row(problem.exponentials, (first, 0), n_units * n)
    s = row(messages, (entry, first, 0), n_units * n)
    hidden = row(workspaces.beliefs, (w, 0, 0), 3 * n)
    values = row(workspaces.tile, (w, 0, 0), 5 * TILE_UNITS)
    call(settings.pair_logs, (e, s, hidden, values, settings.max_factors, normalisers))


@kernel(mode="merged")
def _set_log_odds(settings, problem, arrays, workspaces, place, tile):
    """Set the sum-product log-odds of a tile (first unit, number of units) of visible units."""
    index, entry, w, _ = place
    first, n_units = tile
    _set_logs(settings, problem, arrays[0], workspaces, (entry, w), tile, False)
    shared = smaller(index, problem.visible_field.shape[0] - 1)
    fields = row(problem.visible_field, (shared, first), n_units)
    log_odds = row(workspaces.tile, (w, LOG_ODDS, 0), n_units)
    logs = row(workspaces.tile, (w, LOGS, 0), n_units)
    for k in range(n_units):
        log_odds[k] = fields[k] + logs[k]


@kernel(mode="merged")
def _largest_change(change, message_changes, tol):
    """Return the largest change of a belief or message; a message change x counts as x / (1 + x).

    Changes of messages are computed only if no belief has changed by more than the tolerance.
    """
    if change > tol:
        return change
    largest = 0.0
    for j in range(message_changes.shape[0]):
        largest = larger(message_changes[j], largest)
    return larger(largest / (1 + largest), change)


@kernel(mode="by_address", fastmath=REORDER, views=True)
def _sum_block(settings, problem, arrays, workspaces, place, damping):
    """Update one block of visible units in sum-product: messages in, beliefs, messages out."""
    messages = arrays[0]
    index, entry, w, block = place
    n, n_visible, real = messages.shape[2], messages.shape[1], messages.dtype.type
    sums = row(workspaces.message_sums, (w, block, 0), n)
    product64 = row(workspaces.product64, (w, 0), n)
    product = row(workspaces.product, (w, 0), n)
    changes = row(workspaces.message_changes, (w, 0), n)
    hidden = row(workspaces.beliefs, (w, 0, 0), n), row(workspaces.beliefs, (w, 1, 0), n)
    for j in range(n):
        sums[j], product64[j], product[j], changes[j] = 0, 1, 1, 0
    change, decoded_field, tile = 0.0, 0.0, workspaces.tile
    old_fraction, new_fraction = real(damping), real(1 - damping)
    flush_in, log_in = settings.flush_every, settings.log_every
    is_first = workspaces.change[w, block] < 0
    shared = smaller(index, problem.visible_field.shape[0] - 1)
    fields = row(problem.visible_field, (shared, 0), n_visible)
    start = block * BLOCK_UNITS
    last = smaller(start + BLOCK_UNITS, n_visible)
    for first in range(start, last, TILE_UNITS):
        n_units = smaller(TILE_UNITS, last - first)
        if is_first:
            middle = row(problem.starts, (first, 0), n_units * n)
            copy(middle, row(messages, (entry, first, 0), n_units * n))
        _set_log_odds(settings, problem, arrays, workspaces, place, (first, n_units))
        visible = row(arrays[1], (index, first), n_units)
        largest = _set_visible_beliefs(settings, visible, workspaces, w, damping)
        change = larger(change, largest)
        for k in range(n_units):
            decoded_field += fields[first + k] if visible[k] > 0 else 0.0
            if damping == 0 and change <= settings.tol:
                e = row(problem.exponentials, (first + k, 0), n)
                s = row(messages, (entry, first + k, 0), n)
                beliefs = real(tile[w, P, k]), real(tile[w, Q, k])
                add_sum_changes(e, hidden, beliefs, s, changes)
        for k in range(n_units):
            e = row(problem.exponentials, (first + k, 0), n)
            s = row(messages, (entry, first + k, 0), n)
            beliefs = real(tile[w, P, k]), real(tile[w, Q, k])
            if damping == 0:
                sum_to_hidden(e, hidden, beliefs, s, product)
            else:
                sum_to_hidden_damped(e, hidden, beliefs, old_fraction, new_fraction, s, product)
            flush_in, log_in = flush_in - 1, log_in - 1
            if first + k + 1 == last or flush_in == 0:
                flush_products(product, product64)
                flush_in = settings.flush_every
            if first + k + 1 == last or log_in == 0:
                add_logs(product64, sums)
                log_in = settings.log_every
    workspaces.change[w, block] = _largest_change(change, changes, settings.tol)
    workspaces.decoded_field[w, block] = decoded_field


@kernel(mode="by_address", fastmath=REORDER, views=True)
def _bethe_block(settings, problem, arrays, workspaces, place, damping):
    """Sum the terms of a block of visible units, and of their pairs, in the Bethe log-partition.

    The first block includes the terms of the hidden units.
    """
    index, entry, w, block = place
    messages, tile = arrays[0], workspaces.tile
    at, n = (entry, w), messages.shape[2]
    total = row(workspaces.decoded_field, (w, block), 1)
    total[0] = 0
    if block == 0:
        call(settings.add_softplus, (row(arrays[2], (index, 0), n), total))
    start = block * BLOCK_UNITS
    last = smaller(start + BLOCK_UNITS, messages.shape[1])
    for first in range(start, last, TILE_UNITS):
        n_units = smaller(TILE_UNITS, last - first)
        _set_log_odds(settings, problem, arrays, workspaces, place, (first, n_units))
        log_odds = row(tile, (w, LOG_ODDS, 0), n_units)
        call(settings.add_softplus, (log_odds, total))
        old = row(workspaces.product64, (w, 0), n_units)
        _set_visible_beliefs(settings, old, workspaces, w, damping)
        _set_logs(settings, problem, messages, workspaces, at, (first, n_units), True)
        for k in range(n_units):
            total[0] += tile[w, LOGS, k]


@kernel(mode="by_address", fastmath=REORDER, views=True)
def _max_block(settings, problem, arrays, workspaces, place, damping):
    """Update one block of visible units in max-product."""
    messages = arrays[0]
    index, entry, w, block = place
    n, n_visible, real = messages.shape[2], messages.shape[1], messages.dtype.type
    sums = row(workspaces.message_sums, (w, block, 0), n)
    decoded = row(workspaces.decoded_sums, (w, block, 0), n)
    product = row(workspaces.product, (w, 0), n)
    changes = row(workspaces.message_changes, (w, 0), n)
    for j in range(n):
        sums[j], decoded[j], product[j], changes[j] = 0, 0, 0, 0
    change, decoded_field, tile = 0.0, 0.0, workspaces.tile
    old_fraction, new_fraction = real(damping), real(1 - damping)
    is_first = workspaces.change[w, block] < 0
    shared = smaller(index, problem.visible_field.shape[0] - 1)
    fields = row(problem.visible_field, (shared, 0), n_visible)
    hidden = row(workspaces.beliefs, (w, 2, 0), n)
    start = block * BLOCK_UNITS
    last = smaller(start + BLOCK_UNITS, n_visible)
    for first in range(start, last, TILE_UNITS):
        n_units = smaller(TILE_UNITS, last - first)
        for k in range(n_units):
            weights = row(problem.weights, (first + k, 0), n)
            s = row(messages, (entry, first + k, 0), n)
            if is_first:
                set_to_halves(weights, s)
            total = max_to_visible(weights, s, hidden, row(workspaces.received, (w, k, 0), n))
            tile[w, LOG_ODDS, k] = fields[first + k] + total
        visible = row(arrays[1], (index, first), n_units)
        largest = _set_visible_beliefs(settings, visible, workspaces, w, damping)
        change = larger(change, largest)
        for k in range(n_units):
            weights = row(problem.weights, (first + k, 0), n)
            s = row(messages, (entry, first + k, 0), n)
            r, log_odds = row(workspaces.received, (w, k, 0), n), real(visible[k])
            if damping == 0 and change <= settings.tol:
                add_max_changes(weights, r, log_odds, s, changes)
            max_to_hidden(weights, r, log_odds, old_fraction, new_fraction, s, product)
            if visible[k] > 0:
                decoded_field += fields[first + k]
                add(weights, decoded)
    add(product, sums)
    workspaces.change[w, block] = _largest_change(change, changes, settings.tol)
    workspaces.decoded_field[w, block] = decoded_field


@kernel(mode="by_address", fastmath=REORDER, views=True)
def _mixed_block(settings, problem, arrays, workspaces, place, damping):
    """Update one block of visible units in mixed-product."""
    index, _, w, block = place
    n, n_visible = workspaces.beliefs.shape[2], arrays[1].shape[1]
    sums = row(workspaces.message_sums, (w, block, 0), n)
    products = row(workspaces.product, (w, 0), n)
    for j in range(n):
        sums[j] = 0
    change, decoded_field, tile = 0.0, 0.0, workspaces.tile
    hidden = row(workspaces.beliefs, (w, 0, 0), 3 * n)
    values = row(tile, (w, 0, 0), 5 * TILE_UNITS)
    shared = smaller(index, problem.visible_field.shape[0] - 1)
    fields = row(problem.visible_field, (shared, 0), n_visible)
    start = block * BLOCK_UNITS
    last = smaller(start + BLOCK_UNITS, n_visible)
    for first in range(start, last, TILE_UNITS):
        n_units = smaller(TILE_UNITS, last - first)
        visible = row(arrays[1], (index, first), n_units)
        e = row(problem.exponentials, (first, 0), n_units * n)
        call(settings.log_products, (settings, e, hidden, visible, values))
        for k in range(n_units):
            logs = tile[w, LOGS, k]
            if visible[k] > 0:
                logs = problem.row_sums[first + k] - logs
            tile[w, LOG_ODDS, k] = fields[first + k] + logs
        largest = _set_visible_beliefs(settings, visible, workspaces, w, damping)
        change = larger(change, largest)
        for j in range(n):
            products[j] = 0
        for k in range(n_units):
            if visible[k] > 0:
                decoded_field += fields[first + k]
                add(row(problem.weights, (first + k, 0), n), products)
        add(products, sums)
    workspaces.change[w, block], workspaces.decoded_field[w, block] = change, decoded_field


@kernel(mode="by_address", views=True)
def _objective(settings, problem, record, workspaces, index, w):
    """Evaluate the assignment decoded in a max- or mixed-product sweep; store it if it is best."""
    n = record.hidden.shape[1]
    shared = smaller(index, problem.hidden_field.shape[0] - 1)
    fields = row(problem.hidden_field, (shared, 0), n)
    n_blocks, value = workspaces.change.shape[1], row(workspaces.tile, (w, CHANGES, 0), 1)
    value[0] = 0
    for block in range(n_blocks):
        value[0] += workspaces.decoded_field[w, block]
    if settings.algorithm == MAX_PRODUCT:
        total = row(workspaces.product64, (w, 0), n)
        for j in range(n):
            total[j] = fields[j]
        for block in range(n_blocks):
            add(row(workspaces.decoded_sums, (w, block, 0), n), total)
        for j in range(n):
            value[0] += larger(0.0, total[j])
    else:
        call(settings.add_softplus, (row(record.hidden, (index, 0), n), value))
    # The last of equal values is stored: differences are lost in rounding if clamped units have
    # large fields.
    if value[0] >= record.objective[index]:
        record.objective[index] = value[0]
        for i in range(record.visible.shape[1]):
            record.best[index, i] = record.visible[index, i] > 0


@kernel(mode="by_address", views=True)
def _finish(settings, problem, record, workspaces, place, damping):
    """Set the beliefs of the hidden units of a row, and its status and damping after a sweep.

    `place` is (row, workspace, after), where `after` is 0 before the first sweep, and then 1.
    """
    index, w, after = place
    n, n_blocks = record.hidden.shape[1], workspaces.change.shape[1]
    hidden = row(record.hidden, (index, 0), n)
    if after:
        shared = smaller(index, problem.hidden_field.shape[0] - 1)
        fields = row(problem.hidden_field, (shared, 0), n)
        copy(fields, hidden)
        for block in range(n_blocks):
            add(row(workspaces.message_sums, (w, block, 0), n), hidden)
    p, q = row(workspaces.beliefs, (w, 0, 0), n), row(workspaces.beliefs, (w, 1, 0), n)
    old, changes = row(workspaces.beliefs, (w, 2, 0), n), row(workspaces.product64, (w, 0), n)
    call(settings.hidden_beliefs, (hidden, old, p, q, changes, damping))
    if after:
        change = changes[0]
        for block in range(n_blocks):
            change = larger(change, workspaces.change[w, block])
        if settings.algorithm != SUM_PRODUCT:
            call(settings.objective, (settings, problem, record, workspaces, index, w))
        assess_row(settings, record, index, change, damping, WINDOW_SWEEPS)


@cache
def addresses(algorithm, dtype):
    """Return the addresses of the functions that an algorithm calls, by field of `BPSettings`."""
    of_row = BPSettings, BPProblem, BPRecord, BPWorkspaces
    messages = Real[3], Float64[2], Float64[2]
    of_tile = BPSettings, BPProblem, messages, BPWorkspaces, (int,) * 4
    line, wide, functions = Real[1], Float64[1], {}

    def include(name, function, *arguments):
        functions[name] = address_of(function, *argument_types(dtype, *arguments))

    include("visible_beliefs", _set_beliefs, *(wide,) * 5, float)
    include("hidden_beliefs", _set_beliefs, wide, *(line,) * 3, wide, float)
    include("finish", _finish, *of_row, (int,) * 3, float)
    if algorithm == MIXED_PRODUCT:
        include("log_products", log_products, BPSettings, line, line, wide, wide)
    if algorithm != MAX_PRODUCT:
        include("add_softplus", _add_softplus, wide, wide)
    if algorithm == SUM_PRODUCT:
        include("pair_logs", pair_logs, *(line,) * 3, wide, int, bool)
        include("bethe", _bethe_block, *of_tile, float)
    else:
        include("objective", _objective, *of_row, int, int)
    blocks = {SUM_PRODUCT: _sum_block, MAX_PRODUCT: _max_block, MIXED_PRODUCT: _mixed_block}
    include("block", blocks[algorithm], *of_tile, float)
    return functions


@kernel(mode="merged")
def _log_partition(record, workspaces, index, w):
    """Set the Bethe log-partition of a row, the sum of the terms of the blocks."""
    total = 0.0
    for block in range(workspaces.decoded_field.shape[1]):
        total += workspaces.decoded_field[w, block]
    record.bethe[index] = total


@kernel(mode="merged")
def _iterate(settings, problem, messages, record, workspaces, place, queue):
    """Iterate a row until it ends; `place` is (row, workspace)."""
    index, w = place
    arrays, n_blocks = (messages, record.visible, record.hidden), workspaces.change.shape[1]
    entry = index
    if messages.shape[0] != record.visible.shape[0]:
        entry = w
        for block in range(n_blocks):
            workspaces.change[w, block] = -1
    damping, after = 0.0, np.int64(0)
    while not stopped(queue):
        call(settings.finish, (settings, problem, record, workspaces, (index, w, after), damping))
        # Once the row has ended, blocks sum their terms of the Bethe log-partition.
        function = settings.block if record.status[index] <= RUNNING else settings.bethe
        damping, after = sweep_damping(record, index), np.int64(1)
        for block in range(n_blocks if function != 0 else 0):
            at = index, entry, w, block
            call(function, (settings, problem, arrays, workspaces, at, damping))
        if record.status[index] > RUNNING:
            break
    if settings.bethe != 0:
        _log_partition(record, workspaces, index, w)


@kernel(views=True)
def belief_propagation(settings, problem, messages, record, workspaces, queue):
    """Iterate rows to their fixed points."""
    w = fetch_and_increment(row(queue, (1,), 1))
    index = next_task(queue)
    while index < record.visible.shape[0]:
        _iterate(settings, problem, messages, record, workspaces, (index, w), queue)
        index = next_task(queue)


@kernel(views=True)
def exponentials(weights, factor, queue, roots, out):
    """Compute exp(factor * weights) and its square root, and leave the padding as it is."""
    n_visible, n = weights.shape
    scale = out.dtype.type(factor / 2)
    i = next_task(queue)
    while i < n_visible:
        source, target = row(weights, (i, 0), n), row(out, (i, 0), n)
        for j in range(n):
            target[j] = exp(scale * source[j])
        if roots.shape[0] > 0:
            copy(target, row(roots, (i, 0), n))
        for j in range(n):
            target[j] *= target[j]
        i = next_task(queue)


@kernel(fastmath=REORDER, views=True)
def pair_beliefs(problem, messages, beliefs, scales, queue, out):
    """Compute probabilities that both units of a pair are 1: P e^W p / (s q + e^W p)."""
    n_rows, n_visible, n = messages.shape
    first = next_task(queue) * TILE_UNITS
    while first < n_visible:
        # The exponentials of a block stay in the cache; messages are read in their order.
        for r in range(n_rows):
            p, q = row(beliefs, (0, r, 0), n), row(beliefs, (1, r, 0), n)
            for i in range(first, smaller(first + TILE_UNITS, n_visible)):
                e = row(problem.exponentials, (i, 0), n)
                total = row(out, (smaller(r, out.shape[0] - 1), i, 0), n)
                add_pair_beliefs(e, row(messages, (r, i, 0), n), p, q, scales[r, i], total)
        first = next_task(queue) * TILE_UNITS
