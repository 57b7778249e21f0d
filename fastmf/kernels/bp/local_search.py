"""Single flips of {0, 1} units between two layers with couplings W and fields b, c.

At a temperature T, a flip is accepted with probability min(1, exp(gain / T)) (simulated annealing,
Kirkpatrick et al. 1983); after the last temperature only if it raises the objective (local search).

The objective of visible units v, with H_j = c_j + sum_i v_i W_ij, is

    marginal MAP    sum_i b_i v_i + sum_j softplus(H_j)    (hidden units summed out)
    joint MAP       sum_i b_i v_i + sum_j max(0, H_j)      (hidden units maximised)

Its change when v_i is flipped costs no exponential: with p, q = sigmoid(H_j), sigmoid(-H_j),
summing out hidden unit j adds log(q + e^W p) when v_i becomes 1, and log(e^W q + p) - W when it
becomes 0.
"""

from typing import NamedTuple

import numpy as np

from fastmf._jit.argument_types import Float64
from fastmf._jit.intrinsics import fetch_and_increment, larger, row, smaller
from fastmf._jit.kernel import REORDER, kernel
from fastmf._outcomes import GAIN_TOLERANCE, LOG_STRIDE, MAX_ROUNDS
from fastmf._threads.workers import next_task, stopped
from fastmf.kernels.bp.messages import LOG_ODDS, max_message
from fastmf.special import log, sigmoid_pair, softplus

# Rows of a workspace after the log-odds of hidden units: their probabilities of 0 and of 1.
ZERO, ONE = range(1, 3)


class ClimbSettings(NamedTuple):
    """Arguments that are the same for all rows."""

    joint: bool  # whether hidden units are maximised (joint MAP) or summed out (marginal MAP)
    # Largest number of factors between 1 and exp(weight) whose product does not overflow.
    max_factors: int
    scale: Float64[1]  # (n_visible,): 1 plus the sum of the absolute weights of each unit
    # (n_annealed,): temperature of each round over all units before the local search
    temperatures: Float64[1]
    # float64 array: logarithms of uniform random numbers, read cyclically from a different place
    # for each row; not read without temperatures
    logs: Float64[1]


@kernel(mode="merged")
def _set_log_odds(weights, hidden_field, visible, log_odds):
    """Set the log-odds of the hidden units given the visible units."""
    for j in range(log_odds.shape[0]):
        log_odds[j] = hidden_field[j]
    for i in range(visible.shape[0]):
        if visible[i]:
            w = row(weights, (i, 0), log_odds.shape[0])
            for j in range(log_odds.shape[0]):
                log_odds[j] += w[j]


@kernel(mode="merged")
def _max_gain(log_odds, sign, w):
    """Compute the change of the sum of max(0, H) when sign * w is added to H."""
    total = 0.0
    for j in range(log_odds.shape[0]):
        total += max_message(sign * w[j], -log_odds[j], 0.0)
    return total


@kernel(mode="merged")
def _log_product(e, first, second, max_factors):
    """Compute the logarithm of the product of first + e second."""
    n = e.shape[0]
    total, start = 0.0, np.int64(0)
    while start < n:
        size, product = smaller(max_factors, n - start), 1.0
        f, s = row(first, (start,), size), row(second, (start,), size)
        factors = row(e, (start,), size)
        for j in range(size):
            product *= f[j] + factors[j] * s[j]
        total += log(product)
        start += size
    return total


@kernel(mode="merged")
def _gain(joint, problem, unit, is_one, field, max_factors, workspaces, w):
    """Compute the change of the objective when visible unit `unit`, with this field, is flipped."""
    n = problem.weights.shape[1]
    if joint:
        sign, weights = -1.0 if is_one else 1.0, row(problem.weights, (unit, 0), n)
        return sign * field + _max_gain(row(workspaces, (w, LOG_ODDS, 0), n), sign, weights)
    e, one = row(problem.exponentials, (unit, 0), n), np.int64(is_one)
    first, second = row(workspaces, (w, ZERO + one, 0), n), row(workspaces, (w, ONE - one, 0), n)
    gain = _log_product(e, first, second, max_factors)
    return gain - problem.row_sums[unit] - field if is_one else gain + field


@kernel(mode="merged")
def _climb_row(settings, problem, fields, visible, workspaces, place, queue):
    """Flip units of one row; return whether no single flip raises the objective."""
    joint, max_factors, scale, temperatures, logs = settings
    (n_visible, n), (w, index) = problem.weights.shape, place
    log_odds = row(workspaces, (w, LOG_ODDS, 0), n)
    p, q = row(workspaces, (w, ONE, 0), n), row(workspaces, (w, ZERO, 0), n)
    n_annealed = temperatures.shape[0] * n_visible
    n_tried = n_rejected = np.int64(0)
    changed = True
    while n_rejected < n_visible and n_tried < n_annealed + MAX_ROUNDS * n_visible:
        if changed and not joint:
            for j in range(n):
                p[j], q[j] = sigmoid_pair(log_odds[j])
        i = n_tried % n_visible
        if i == 0 and stopped(queue):
            break
        is_one = visible[i]
        gain = _gain(joint, problem, i, is_one, fields[i], max_factors, workspaces, w)
        least = GAIN_TOLERANCE * (scale[i] + abs(fields[i]))
        if n_tried < n_annealed:
            u = logs[(n_tried + index * LOG_STRIDE) % logs.shape[0]]
            least, n_rejected = temperatures[n_tried // n_visible] * u, np.int64(-1)
        changed = gain > least
        n_tried, n_rejected = n_tried + 1, n_rejected + 1
        if changed:
            n_rejected, sign = np.int64(0), -1.0 if is_one else 1.0
            weights = row(problem.weights, (i, 0), n)
            for j in range(n):
                log_odds[j] += sign * weights[j]
            visible[i] = not is_one
    return n_rejected >= n_visible


@kernel(mode="merged")
def _hidden_objective(joint, log_odds):
    total = 0.0
    for j in range(log_odds.shape[0]):
        total += larger(0.0, log_odds[j]) if joint else softplus(log_odds[j])
    return total


@kernel(fastmath=REORDER, views=True)
def climb(settings, problem, workspaces, visible, objective, optimal, queue):
    """Flip visible units, one after another, first annealed, then while a flip gains.

    Without temperatures this is sequential mixed-product (max-product if `joint`): a row ends when
    no single flip raises the objective.
    """
    n_visible, n_hidden = problem.weights.shape
    w = fetch_and_increment(row(queue, (1,), 1))
    log_odds = row(workspaces, (w, LOG_ODDS, 0), n_hidden)
    index = next_task(queue)
    while index < visible.shape[0]:
        shared = smaller(index, problem.visible_field.shape[0] - 1)
        fields = row(problem.visible_field, (shared, 0), n_visible)
        shared = smaller(index, problem.hidden_field.shape[0] - 1)
        hidden_field = row(problem.hidden_field, (shared, 0), n_hidden)
        v = row(visible, (index, 0), n_visible)
        for ended in (False, True):
            # At the end recompute them, without the rounding errors of all flips.
            _set_log_odds(problem.weights, hidden_field, v, log_odds)
            if not ended:
                place = w, index
                optimal[index] = _climb_row(settings, problem, fields, v, workspaces, place, queue)
        total = 0.0
        for i in range(n_visible):
            total += fields[i] if v[i] else 0.0
        objective[index] = total + _hidden_objective(settings.joint, log_odds)
        index = next_task(queue)
