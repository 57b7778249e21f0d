"""One-flip local search between two layers of {0, 1} units with couplings W and fields b, c.

The objective of visible units v, with H_j = c_j + sum_i v_i W_ij, is

    marginal MAP    sum_i b_i v_i + sum_j softplus(H_j)    (hidden units summed out)
    joint MAP       sum_i b_i v_i + sum_j max(0, H_j)      (hidden units maximised)

Its change when v_i is flipped costs no exponential: with p, q = sigmoid(H_j), sigmoid(-H_j),
summing out hidden unit j adds log(q + e^W p) when v_i becomes 1, and log(e^W q + p) - W when it
becomes 0.
"""

import numpy as np

from fastmf._numba import REORDER, fetch_and_increment, kernel
from fastmf.kernels.bp_messages import (
    add,
    log_of_product,
    max_message,
    mixed_to_one,
    mixed_to_zero,
)
from fastmf.kernels.bp_types import HiddenState
from fastmf.special import sigmoid_pair, softplus

# A gain below this fraction of the terms it is the difference of may be rounding, and would recur.
GAIN_TOLERANCE = 1e-11
# Rounds over all visible units: rounding errors of couplings of many orders of magnitude may exceed
# the tolerance.
MAX_ROUNDS = 1000


@kernel(fastmath=REORDER, inline=True)
def _add_scaled(log_odds, sign, w):
    for j in range(log_odds.shape[0]):
        log_odds[j] += sign * w[j]


@kernel(fastmath=REORDER, inline=True)
def _probabilities(log_odds, p, q):
    for j in range(log_odds.shape[0]):
        p[j], q[j] = sigmoid_pair(log_odds[j])


@kernel(fastmath=REORDER, inline=True)
def _max_gain(log_odds, sign, w):
    """Change of the sum of max(0, H) when sign * w is added to H."""
    total = 0.0
    for j in range(log_odds.shape[0]):
        total += max_message(sign * w[j], -log_odds[j])
    return total


@kernel(fastmath=REORDER, inline=True)
def _hidden_objective(joint, log_odds):
    total = 0.0
    for j in range(log_odds.shape[0]):
        total += max(0.0, log_odds[j]) if joint else softplus(log_odds[j])
    return total


@kernel(inline=True)
def _set_log_odds(weights, hidden_field, visible, log_odds):
    """Log-odds of the hidden units given the visible ones."""
    for j in range(log_odds.shape[0]):
        log_odds[j] = hidden_field[j]
    for i in range(visible.shape[0]):
        if visible[i]:
            add(weights[i], log_odds)


@kernel(inline=True)
def _gain(joint, problem, unit, is_one, field, max_factors, hidden):
    """Change of the objective when visible unit `unit`, of such a field, is flipped."""
    sign = -1.0 if is_one else 1.0
    if joint:
        return sign * field + _max_gain(hidden.log_odds, sign, problem.weights[unit])
    e = problem.exponentials[unit]
    if is_one:
        mixed_to_one(e, hidden.p, hidden.q, hidden.factors)
        log_product = log_of_product(hidden.factors, False, max_factors)
        return log_product - problem.row_sums[unit] - field
    mixed_to_zero(e, hidden.p, hidden.q, hidden.factors)
    return log_of_product(hidden.factors, False, max_factors) + field


@kernel(inner=True)
def _climb_row(joint, problem, fields, scale, max_factors, visible, hidden):
    """Flip units of one row; returns whether no single flip helps."""
    n_visible = visible.shape[0]
    _probabilities(hidden.log_odds, hidden.p, hidden.q)
    n_tried = n_rejected = 0
    while n_rejected < n_visible and n_tried < MAX_ROUNDS * n_visible:
        i = n_tried % n_visible
        gain = _gain(joint, problem, i, visible[i], fields[i], max_factors, hidden)
        if gain > GAIN_TOLERANCE * (scale[i] + abs(fields[i])):
            _add_scaled(hidden.log_odds, -1.0 if visible[i] else 1.0, problem.weights[i])
            if not joint:
                _probabilities(hidden.log_odds, hidden.p, hidden.q)
            visible[i] = not visible[i]
            n_rejected = 0
        else:
            n_rejected += 1
        n_tried += 1
    return n_rejected >= n_visible


@kernel
def climb(joint, problem, max_factors, visible, objective, optimal, queue):
    """Flip visible units, one after another, while that raises the objective.

    Sequential mixed-product (or max-product, if `joint`): a row ends where no single flip helps.

    Parameters
    ----------
    joint : bool
        Whether hidden units are maximised (joint MAP) or summed out (marginal MAP).
    problem : BPProblem
        All in float64, with n_padded = n_hidden; `exponentials` is not read if `joint`.
    max_factors : int
        Number of factors between 1 and exp(weight) whose product is a number in float64.
    visible : bool array of shape (n_rows, n_visible)
        Assignments to start from; filled with those at which the rows end.
    objective : float64 array of shape (n_rows,)
        Filled with log-probabilities plus log Z.
    optimal : bool array of shape (n_rows,)
        Filled with whether no single flip helps; False after `MAX_ROUNDS` rounds.
    queue : int64 array of shape (1,)
        Next row; shared by all threads that call this.
    """
    n_visible, n_hidden = problem.weights.shape
    hidden = HiddenState(
        np.empty(n_hidden), np.empty(n_hidden), np.empty(n_hidden), np.ones(n_hidden)
    )
    scale = np.ones(n_visible)
    for i in range(n_visible):
        for j in range(n_hidden):
            scale[i] += abs(problem.weights[i, j])
    while True:
        row = fetch_and_increment(queue)
        if row >= visible.shape[0]:
            break
        fields = problem.visible_field[min(row, problem.visible_field.shape[0] - 1)]
        hidden_field = problem.hidden_field[min(row, problem.hidden_field.shape[0] - 1)]
        v = visible[row]
        _set_log_odds(problem.weights, hidden_field, v, hidden.log_odds)
        optimal[row] = _climb_row(joint, problem, fields, scale, max_factors, v, hidden)
        # Anew, without the rounding errors of all flips.
        _set_log_odds(problem.weights, hidden_field, v, hidden.log_odds)
        total = 0.0
        for i in range(n_visible):
            total += fields[i] if v[i] else 0.0
        objective[row] = total + _hidden_objective(joint, hidden.log_odds)
