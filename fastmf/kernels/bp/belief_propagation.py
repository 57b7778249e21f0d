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

A row (one set of fields) is iterated by one thread from start to end.
"""

import numpy as np

from fastmf._jit.intrinsics import fetch_and_increment, row, smaller
from fastmf._jit.kernel import REORDER, call, kernel
from fastmf._outcomes import RUNNING
from fastmf._threads.interrupts import next_task, stopped
from fastmf.kernels.bp.arguments import TILE_UNITS
from fastmf.kernels.bp.convergence import sweep_damping
from fastmf.kernels.bp.messages import add_pair_beliefs
from fastmf.special import exp


@kernel(mode="merged")
def _log_partition(record, workspaces, index, w):
    """Set the Bethe log-partition of a row, the sum of the terms of the blocks."""
    total = 0.0
    for block in range(workspaces.decoded_field.shape[1]):
        total += workspaces.decoded_field[w, block]
    record.bethe[index] = total


@kernel(mode="merged")
def _iterate(settings, problem, messages, record, workspaces, place, queue):
    """Iterate a row to its end, with a workspace; `place` is both."""
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
        # Once the row has ended, the blocks' terms of the Bethe log-partition.
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
    """exp(factor * weights) and its square root, but for the padding."""
    n_visible, n = weights.shape
    scale = out.dtype.type(factor / 2)
    i = next_task(queue)
    while i < n_visible:
        source, root, target = row(weights, (i, 0), n), row(roots, (i, 0), n), row(out, (i, 0), n)
        for j in range(n):
            root[j] = exp(scale * source[j])
            target[j] = root[j] * root[j]
        i = next_task(queue)


@kernel(fastmath=REORDER, views=True)
def pair_beliefs(problem, messages, beliefs, scales, queue, out):
    """Probabilities that both units of a pair are 1: P e^W p / (s q + e^W p)."""
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
