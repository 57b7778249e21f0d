"""One-flip local search between two layers of {0, 1} units.

The log-odds of one visible unit given all others cost no exponential: with p, q the probabilities
of a hidden unit, summing it out changes by log(q + e^W p) when the visible unit is turned on, and
by log(e^W q + p) - W when it is turned off.
"""

import numpy as np

from fastmf._numba import REORDER, fetch_and_increment, kernel
from fastmf.kernels.bp_messages import add, from_off, from_on, log_of_product, rise
from fastmf.special import sigmoid_pair, softplus

# A gain below this fraction of the terms it is the difference of could be rounding, and repeat.
RESOLUTION = 1e-11
# Rounds over all visible units; of couplings of many orders of magnitude rounding could be more.
MAX_ROUNDS = 1000


@kernel(fastmath=REORDER, inline=True)
def _move(field, sign, w):
    for j in range(field.shape[0]):
        field[j] += sign * w[j]


@kernel(fastmath=REORDER, inline=True)
def _probabilities(field, p, q):
    for j in range(field.shape[0]):
        p[j], q[j] = sigmoid_pair(field[j])


@kernel(fastmath=REORDER, inline=True)
def _rise(field, sign, w):
    """Change of the sum of the positive parts, which is what the best hidden units contribute."""
    total = 0.0
    for j in range(field.shape[0]):
        total += rise(sign * w[j], -field[j])
    return total


@kernel(fastmath=REORDER, inline=True)
def _contribution(joint, field):
    total = 0.0
    for j in range(field.shape[0]):
        total += max(0.0, field[j]) if joint else softplus(field[j])
    return total


@kernel(inline=True)
def _gain(joint, i, on, weights, exponentials, row_sum, bias, chunk, field, work):
    """By how much the objective rises when visible unit i is flipped."""
    sign = -1.0 if on else 1.0
    if joint:
        return sign * bias + _rise(field, sign, weights[i])
    p, q, factors = work[0], work[1], work[2]
    if on:
        from_on(exponentials[i], p, q, factors)
        return log_of_product(factors, False, chunk) - row_sum - bias
    from_off(exponentials[i], p, q, factors)
    return log_of_product(factors, False, chunk) + bias


@kernel
def climb(
    joint, weights, exponentials, row_sums, visible_field, hidden_field, chunk, visible, objective,
    optimal, queue,
):  # fmt: skip
    """Flip visible units, one after another, while that raises the objective.

    Sequential mixed-product (or its joint form): a row ends where no single flip helps.

    Parameters
    ----------
    joint : bool
        Whether hidden units are maximised (joint MAP) or summed out (marginal MAP).
    weights : float64 array of shape (n_visible, n_hidden)
    exponentials : float64 array of shape (n_visible, n_hidden)
        exp(weights); not read if `joint`, and may have no rows.
    row_sums : float64 array of shape (n_visible,)
        Sums of the rows of `weights`.
    visible_field, hidden_field : float64 array of shape (1 or n_rows, n_units)
    chunk : int
        So many factors of a row's product fit in a float64.
    visible : bool array of shape (n_rows, n_visible)
        Where to start, and where that ended.
    objective : float64 array of shape (n_rows,)
        Filled with log-probabilities but for log Z.
    optimal : bool array of shape (n_rows,)
        Filled with whether no single flip helps; False after `MAX_ROUNDS` rounds.
    queue : int64 array of shape (1,)
        Next row that nobody has taken; shared by all threads that call this.
    """
    n_visible, n_hidden = weights.shape
    field, work = np.empty(n_hidden), np.ones((3, n_hidden))
    scale = np.ones(n_visible)
    for i in range(n_visible):
        for j in range(n_hidden):
            scale[i] += abs(weights[i, j])
    while True:
        row = fetch_and_increment(queue)
        if row >= visible.shape[0]:
            break
        b = visible_field[min(row, visible_field.shape[0] - 1)]
        c = hidden_field[min(row, hidden_field.shape[0] - 1)]
        v = visible[row]
        for j in range(n_hidden):
            field[j] = c[j]
        for i in range(n_visible):
            if v[i]:
                add(weights[i], field)
        _probabilities(field, work[0], work[1])
        visits = unchanged = 0
        while unchanged < n_visible and visits < MAX_ROUNDS * n_visible:
            i = visits % n_visible
            gain = _gain(
                joint, i, v[i], weights, exponentials, row_sums[i], b[i], chunk, field, work
            )
            if gain > RESOLUTION * (scale[i] + abs(b[i])):
                _move(field, -1.0 if v[i] else 1.0, weights[i])
                if not joint:
                    _probabilities(field, work[0], work[1])
                v[i] = not v[i]
                unchanged = 0
            else:
                unchanged += 1
            visits += 1
        optimal[row] = unchanged >= n_visible
        # Fields that were moved often carry the rounding of all moves.
        for j in range(n_hidden):
            field[j] = c[j]
        total = 0.0
        for i in range(n_visible):
            if v[i]:
                add(weights[i], field)
                total += b[i]
        objective[row] = total + _contribution(joint, field)
