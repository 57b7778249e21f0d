"""Couplings between visible groups of states that hidden units mediate.

With the field I of a row on the hidden units that leaves out two groups,

    f(a, b) = mean over rows of sum_j log Z_j(I_j + W_aj + W_bj)

is what the states a and b of these groups contribute together.
"""

import numpy as np

from fastmf._numba import fetch_and_increment, kernel
from fastmf.priors._compiled import tilted_log_partition


@kernel
def effective_couplings(units, weights, starts, fields, states, queue, out):
    """Mean log-partitions of the hidden units for each pair of states of two groups.

    Parameters
    ----------
    units : Units
        Of the hidden units, with their log-partitions.
    weights : array of shape (n_states, n_hidden)
    starts : int64 array of shape (n_groups + 1,)
        First state of each group, and the number of states.
    fields : array of shape (n_rows, n_hidden)
        Of whole rows, states of all groups.
    states : int64 array of shape (n_rows, n_groups)
        Numbers of the states of these rows, counted over all groups.
    queue : int64 array of shape (1,)
        Next group not taken yet; shared by all threads that call this.
    out : float64 array of shape (n_states, n_states)
        Filled for groups i < j in the rows of i and the columns of j.
    """
    n_groups, n_hidden = states.shape[1], weights.shape[1]
    base, at_a, tilt, values = (
        np.empty(n_hidden, weights.dtype),
        np.empty(n_hidden, weights.dtype),
        np.empty(n_hidden, weights.dtype),
        np.empty(n_hidden, weights.dtype),
    )
    zero, first_unit = np.zeros(n_hidden, weights.dtype), np.int64(0)
    i = fetch_and_increment(queue)
    while i < n_groups:
        for j in range(i + 1, n_groups):
            block = out[starts[i] : starts[i + 1], starts[j] : starts[j + 1]]
            block[:] = 0
            for r in range(fields.shape[0]):
                w_i, w_j = weights[states[r, i]], weights[states[r, j]]
                for k in range(n_hidden):
                    base[k] = fields[r, k] - w_i[k] - w_j[k]
                for a in range(block.shape[0]):
                    w_a = weights[starts[i] + a]
                    for k in range(n_hidden):
                        at_a[k] = base[k] + w_a[k]
                    for b in range(block.shape[1]):
                        w_b = weights[starts[j] + b]
                        for k in range(n_hidden):
                            tilt[k] = at_a[k] + w_b[k]
                        tilted_log_partition(units, first_unit, tilt, zero, values)
                        total = 0.0
                        for k in range(n_hidden):
                            total += values[k]
                        block[a, b] += total / fields.shape[0]
        i = fetch_and_increment(queue)
