"""Couplings between visible groups of states that hidden units mediate.

With the field I of a row on the hidden units that leaves out two groups,

    f(a, b) = sum over rows and j of log Z_j(I_j + W_aj + W_bj)

is the joint contribution of the states a and b of these groups.
"""

import numpy as np

from fastmf._jit.intrinsics import fetch_and_increment, row
from fastmf._jit.kernel import kernel
from fastmf._threads.workers import next_task, stopped
from fastmf.priors._compiled import tilted_log_partition


@kernel(mode="merged")
def _add_row(units, base, w_i, w_j, scratch, block):
    """Add the log-partitions of one row for all states of two groups."""
    at_a, tilt, zero, values = scratch[0], scratch[1], scratch[2], scratch[3]
    n_hidden, first_unit = base.shape[0], np.int64(0)
    for a in range(block.shape[0]):
        w_a = w_i[a]
        for k in range(n_hidden):
            at_a[k] = base[k] + w_a[k]
        for b in range(block.shape[1]):
            w_b = w_j[b]
            for k in range(n_hidden):
                tilt[k] = at_a[k] + w_b[k]
            tilted_log_partition(units, first_unit, tilt, zero, values)
            total = 0.0
            for k in range(n_hidden):
                total += values[k]
            block[a, b] += total


@kernel(views=True)
def effective_couplings(units, weights, starts, fields, states, work, out):
    """Add log-partitions of the hidden units to `out`, for each pair of states of two groups."""
    n_groups, n_rows, n_hidden = states.shape[1], fields.shape[0], weights.shape[1]
    memory, queue = work
    worker = fetch_and_increment(row(queue, (1,), 1))
    if worker >= memory.shape[0]:
        return
    scratch, base, i = memory[worker, 1:], memory[worker, 0], next_task(queue)
    while i < n_groups:
        of_i = slice(starts[i], starts[i + 1])
        for pair in range((n_groups - i - 1) * n_rows):
            if stopped(queue):
                return
            j, r = i + 1 + pair // n_rows, pair % n_rows
            of_j = slice(starts[j], starts[j + 1])
            own_i, own_j = weights[states[r, i]], weights[states[r, j]]
            for k in range(n_hidden):
                base[k] = fields[r, k] - own_i[k] - own_j[k]
            _add_row(units, base, weights[of_i], weights[of_j], scratch, out[of_i, of_j])
        i = next_task(queue)
