"""Messages between the layers of a binary RBM, for a batch of rows that share the couplings.

The ratio of a message's two values is a rational function of the message in the opposite direction
and of the odds of the sender's belief, so that one matrix of ratios serves both directions, and
logarithms are needed per unit only.
"""

import math

import numpy as np

from fastmf._numba import REORDER, fetch_and_increment, kernel

SUM, MAX, MIXED = 0, 1, 2


# Reordering: the product of a row's ratios is taken several columns at a time.
@kernel(fastmath=REORDER, inner=True)
def _sweep_row(b_i, e, s, odds_hidden, algorithm, chunk, limit, back):
    """New messages from visible unit i, in place; returns the log-odds of its belief."""
    m = s.shape[0]
    log_odds, first = np.float64(b_i), 0
    while first < m:
        last = min(first + chunk, m)
        if algorithm == MAX:
            for j in range(first, last):
                back[j] = max(s[j], e[j] * odds_hidden[j]) / max(s[j], odds_hidden[j])
        else:
            for j in range(first, last):
                back[j] = (s[j] + e[j] * odds_hidden[j]) / (s[j] + odds_hidden[j])
        product = 1.0
        for j in range(first, last):
            product *= back[j]
        log_odds += math.log(product)
        first = last
    return log_odds


@kernel
def messages(
    exp_weights,
    visible_field,
    hidden_field,
    algorithm,
    n_iter,
    chunk,
    limit,
    n_groups,
    queue,
    visible,
    hidden,
    log_partition,
    residual,
    pairs,
):
    """So many iterations of belief propagation for each row, from messages that say nothing.

    Parameters
    ----------
    exp_weights : array of shape (n_visible, n_hidden)
        exp(W).
    visible_field, hidden_field : array of shape (n_rows, n_units)
    algorithm : {0, 1, 2}
        Sum-product, max-product, or mixed-product (maximum over the visible units).
    n_iter : int
        At least 1.
    chunk : int
        Number of ratios whose product does not leave the range of float64.
    limit : float
        Belief log-odds are cut off here within messages, so that nothing overflows.
    n_groups : int
        Rows r, r + n_groups, ... make a group, which one thread works on from first to last.
    queue : int64 array of shape (1,)
        Next group that nobody has taken; shared by all threads that call this.
    visible, hidden : array of shape (n_rows, n_units)
        Filled with the log-odds of the beliefs.
    log_partition : float64 array of shape (n_rows,)
        Filled with the Bethe log-partition (of use for sum-product).
    residual : array of shape (n_rows,)
        Filled with the largest change of a belief in the last iteration.
    pairs : float64 array of shape (n_groups, n_visible, n_hidden)
        To the array of each group its rows' pairwise beliefs of (1, 1) are added.

    Notes
    -----
    Ping & Ihler (2017), Eqs. 8-18 in odds.
    """
    n, m = exp_weights.shape
    n_rows = visible.shape[0]
    e = exp_weights
    s = np.empty_like(exp_weights)
    back = np.empty_like(exp_weights[0])
    odds_hidden = np.empty_like(exp_weights[0])
    column = np.empty(m, np.float64)
    tau_visible, tau_hidden = np.empty(n, np.float64), np.empty(m, np.float64)
    one = e.dtype.type(1)
    while True:
        group = fetch_and_increment(queue)
        if group >= n_groups:
            break
        for row in range(group, n_rows, n_groups):
            s[:] = one
            for j in range(m):
                hidden[row, j] = hidden_field[row, j]
                tau_hidden[j] = 2.0
            tau_visible[:] = 2.0
            for _ in range(n_iter):
                change = 0.0
                for j in range(m):
                    held = min(max(np.float64(hidden[row, j]), -limit), limit)
                    odds_hidden[j] = math.exp(held)
                    column[j] = 1.0
                    hidden[row, j] = hidden_field[row, j]
                for i in range(n):
                    e_i, s_i = e[i], s[i]
                    log_odds = _sweep_row(
                        visible_field[row, i], e_i, s_i, odds_hidden, algorithm, chunk, limit, back
                    )
                    visible[row, i] = log_odds
                    belief = 1 / (1 + math.exp(-min(max(log_odds, -limit), limit)))
                    change = max(change, abs(belief - tau_visible[i]))
                    tau_visible[i] = belief
                    odds = e.dtype.type(math.exp(min(max(log_odds, -limit), limit)))
                    if algorithm == SUM:
                        for j in range(m):
                            s_i[j] = (back[j] + e_i[j] * odds) / (back[j] + odds)
                            column[j] *= s_i[j]
                    elif algorithm == MAX:
                        for j in range(m):
                            s_i[j] = max(back[j], e_i[j] * odds) / max(back[j], odds)
                            column[j] *= s_i[j]
                    else:
                        on = log_odds > 0
                        for j in range(m):
                            s_i[j] = e_i[j] if on else one
                            column[j] *= s_i[j]
                    if (i + 1) % chunk == 0 or i == n - 1:
                        for j in range(m):
                            hidden[row, j] += math.log(column[j])
                            column[j] = 1.0
                for j in range(m):
                    held = min(max(np.float64(hidden[row, j]), -limit), limit)
                    belief = 1 / (1 + math.exp(-held))
                    change = max(change, abs(belief - tau_hidden[j]))
                    tau_hidden[j] = belief
                residual[row] = change
            if algorithm != SUM:
                continue

            # Half an iteration more: both directions are needed at once for the pairs.
            bethe = 0.0
            for j in range(m):
                held = min(max(np.float64(hidden[row, j]), -limit), limit)
                odds_hidden[j] = math.exp(held)
                bethe += max(hidden[row, j], 0.0) + math.log1p(math.exp(-abs(hidden[row, j])))
            for i in range(n):
                e_i, s_i, pair = e[i], s[i], pairs[group, i]
                log_odds = _sweep_row(
                    visible_field[row, i], e_i, s_i, odds_hidden, algorithm, chunk, limit, back
                )
                visible[row, i] = log_odds
                bethe += max(log_odds, 0.0) + math.log1p(math.exp(-abs(log_odds)))
                odds = math.exp(min(max(log_odds, -limit), limit))
                first = 0
                while first < m:
                    last = min(first + chunk, m)
                    product = 1.0
                    for j in range(first, last):
                        o = odds / np.float64(back[j])
                        q = np.float64(odds_hidden[j]) / np.float64(s_i[j])
                        both = np.float64(e_i[j]) * o * q
                        total = 1.0 + o + q + both
                        pair[j] += both / total
                        product *= total / ((1.0 + o) * (1.0 + q))
                    bethe -= math.log(product)
                    first = last
            log_partition[row] = bethe
