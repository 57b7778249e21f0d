"""Maximum pseudo-likelihood of a fully visible Boltzmann machine of {-1, +1} units.

With the local field eta_ij = sum_k J_jk x_ik + h_j of unit j in row i, of weight w_i, the
log-pseudo-likelihood (Eq. 2.1 of the paper) and its derivatives are

    P        = sum_i w_i sum_j (x_ij eta_ij - ln cosh eta_ij - ln 2)
             = -sum_ij w_i ln(1 + exp(-2 x_ij eta_ij))
    dP/dh_j  = sum_i w_i (x_ij - tanh eta_ij)
    dP/dJ_jk = sum_i w_i (2 x_ij x_ik - x_ik tanh eta_ij - x_ij tanh eta_ik)

BSLM maximises a quadratic minorant of one coordinate after the other (Eqs. 2.4, 2.7): with weights
that add up to one the curvature of -P is at most 1 for a field and 2 for a coupling, so that
h_j += dP/dh_j and J_jk += dP/dJ_jk / 2 never decrease P.

The paper is Nguyen & Wood, Neural Computation 28 (2016).
"""

from functools import cache
from typing import NamedTuple

import numpy as np

from fastmf._jit.argument_types import Float64, Int8, argument_types
from fastmf._jit.intrinsics import fetch_and_increment, larger, row, smaller
from fastmf._jit.kernel import REORDER, address_of, call, kernel
from fastmf._threads.workers import next_task, stopped
from fastmf.special import exp, log


class BSLMData(NamedTuple):
    """Distinct rows and their moments."""

    states: Float64[2]  # (n_units, n_rows): distinct rows of -1 and +1, transposed
    # int8 (n_units, n_rows): the same. Reading two spins per row and coupling from memory limits
    # the speed
    spins: Int8[2]
    weights: Float64[1]  # (n_rows,): adding up to one
    mean: Float64[1]  # (n_units,) and (n_units, n_units): weighted means of x_j and x_j x_k
    second: Float64[2]  # (n_units,) and (n_units, n_units)
    total: float  # weight of all rows, by which values are multiplied


class BSLMSettings(NamedTuple):
    """Penalties and stopping rule."""

    # Penalty l1 sum |J_jk| + l2 (sum J_jk^2 + sum h_j^2) / 2, over pairs, per unit of weight (this
    # and the next).
    l1: float
    l2: float
    tol: float  # stop after a sweep that raises the penalised log-pseudo-likelihood by no more
    max_iter: int
    odds_and_value: int  # addresses of the functions of these names (this and the next)
    sweep: int


class BSLMWorkspaces(NamedTuple):
    """Memory of each thread that calls `bslm`."""

    odds: Float64[3]  # (n_workers, n_units, n_rows): exp(2 eta_j)
    nll: Float64[2]  # (n_workers, n_rows): negative log-pseudo-likelihood of each row
    factors: Float64[2]  # (n_workers, n_rows): products over units
    value: Float64[1]  # (n_workers,): weighted mean log-pseudo-likelihood


def bslm_workspaces(n_workers, n_units, n_rows):
    """New `BSLMWorkspaces`."""
    shape = n_workers, n_rows
    odds = np.empty((n_workers, n_units, n_rows))
    return BSLMWorkspaces(odds, np.empty(shape), np.empty(shape), np.empty(n_workers))


# Rows of one task that a thread takes from the queue.
ROWS_AT_A_TIME = 64
# Units whose softplus(t) = max(t, 0) + log(1 + exp(-|t|)) are added up with one logarithm: the
# product of their factors 1 + exp(-|t|), each in [1, 2], does not overflow.
UNITS_PER_LOG = 100

# Larger odds exp(2 eta) are replaced by this bound, where tanh eta is 1 in double precision: the
# product of two of them is finite.
_MAX_ODDS = float(np.sqrt(np.finfo(np.float64).max / 4))


@kernel(fastmath=REORDER, views=True)
def residuals(products, field, states, weights, workspaces, queue, out, value):
    """Residuals weight * (x - tanh eta) of rows, and their log-pseudo-likelihoods."""
    n_rows, n_units = out.shape
    worker = fetch_and_increment(row(queue, (1,), 1))
    fields = row(workspaces, (worker, 0, 0), ROWS_AT_A_TIME * n_units)
    for i in range(ROWS_AT_A_TIME):
        for j in range(n_units):
            fields[i * n_units + j] = field[j]
    first = next_task(queue) * ROWS_AT_A_TIME
    while first < n_rows:
        n = smaller(ROWS_AT_A_TIME, n_rows - first)
        # As one long row and into other memory: a short loop, or one in place, does not vectorise.
        _scaled_residuals(products, states, weights, workspaces, worker, first, n)
        scaled, whole = (
            row(workspaces, (worker, 2, 0), n * n_units),
            row(out, (first, 0), n * n_units),
        )
        for j in range(whole.shape[0]):
            whole[j] = scaled[j]
        _values(weights, workspaces, worker, first, n, n_units, value)
        first = next_task(queue) * ROWS_AT_A_TIME


@kernel(mode="merged")
def _scaled_residuals(products, states, weights, workspaces, worker, first, n):
    """Fill scale * x * sigmoid(t), max(t, 0), 1 + exp(-|t|) of rows, with t = -2 x eta."""
    n_units, dtype = states.shape[1], workspaces.dtype
    size = n * n_units
    one, two, zero = dtype.type(1), dtype.type(2), dtype.type(0)
    fields, scales = row(workspaces, (worker, 0, 0), size), row(workspaces, (worker, 1, 0), size)
    for i in range(n):
        scale = two * weights[first + i]
        for j in range(n_units):
            scales[i * n_units + j] = scale
    inner, x = row(products, (first, 0), size), row(states, (first, 0), size)
    scaled, positive = row(workspaces, (worker, 2, 0), size), row(workspaces, (worker, 3, 0), size)
    factors = row(workspaces, (worker, 4, 0), size)
    for j in range(size):
        t = -two * x[j] * (inner[j] + fields[j])
        e = exp(-abs(t))
        large = one / (one + e)
        positive[j] = larger(t, zero)
        factors[j] = one + e
        scaled[j] = scales[j] * x[j] * (large if t > 0 else e * large)


@kernel(mode="merged")
def _values(weights, workspaces, worker, first, n, n_units, value):
    """Values of rows from the terms of their units, several with one logarithm."""
    one, zero = workspaces.dtype.type(1), workspaces.dtype.type(0)
    products = row(workspaces, (worker, 5, 0), n)
    for i in range(n):
        value[first + i] = 0
    for start in range(0, n_units, UNITS_PER_LOG):
        size = smaller(UNITS_PER_LOG, n_units - start)
        for i in range(n):
            terms = row(workspaces, (worker, 3, i * n_units + start), size)
            factors = row(workspaces, (worker, 4, i * n_units + start), size)
            total, product = zero, one
            for j in range(size):
                total += terms[j]
                product *= factors[j]
            value[first + i] -= total
            products[i] = product
        for i in range(n):
            value[first + i] -= log(products[i])
    for i in range(n):
        value[first + i] *= weights[first + i]


@kernel(mode="inline", fastmath=REORDER)
def _mean_pair_terms(weights, states_j, states_k, odds_j, odds_k):
    """Weighted mean of x_k (1 - tanh eta_j) + x_j (1 - tanh eta_k), with one division a row."""
    total = 0.0
    for i in range(weights.shape[0]):
        p, q = smaller(odds_j[i], _MAX_ODDS) + 1, smaller(odds_k[i], _MAX_ODDS) + 1
        total += weights[i] * (states_k[i] * q + states_j[i] * p) / (p * q)
    return 2 * total


@kernel(mode="inline")
def _change_coupling(change, states_j, states_k, odds_j, odds_k):
    """Odds after a change of J_jk: x is -1 or +1, so that two exponentials serve all rows."""
    up = exp(2 * change)
    down = 1 / up
    for i in range(odds_j.shape[0]):
        odds_j[i] *= up if states_k[i] > 0 else down
        odds_k[i] *= up if states_j[i] > 0 else down


@kernel(mode="inline", fastmath=REORDER)
def _change_coupling_and_average(
    change, weights, states_j, states_k, states_l, odds_j, odds_k, odds_l
):
    """`_change_coupling` of j and k, and then `_mean_pair_terms` of j and l, in one loop.

    Compiled apart, like these two: merged into the sweep the loop does not vectorise.
    """
    up = exp(2 * change)
    down = 1 / up
    total = 0.0
    for i in range(weights.shape[0]):
        new = odds_j[i] * (up if states_k[i] > 0 else down)
        odds_j[i] = new
        odds_k[i] *= up if states_j[i] > 0 else down
        p, q = smaller(new, _MAX_ODDS) + 1, smaller(odds_l[i], _MAX_ODDS) + 1
        total += weights[i] * (states_l[i] * q + states_j[i] * p) / (p * q)
    return 2 * total


@kernel(mode="by_address", views=True)
def _odds_and_value(data, couplings, field, workspaces, worker):
    """Odds of all units from the parameters, and the weighted mean log-pseudo-likelihood."""
    n_units, n_rows = data.states.shape
    nll = row(workspaces.nll, (worker, 0), n_rows)
    factors = row(workspaces.factors, (worker, 0), n_rows)
    for i in range(n_rows):
        nll[i], factors[i] = 0, 1
    # Four at a time, so that the sums pass through memory less often.
    whole = n_units - n_units % 4
    for j in range(n_units):
        odds, states = (
            row(workspaces.odds, (worker, j, 0), n_rows),
            row(data.states, (j, 0), n_rows),
        )
        for i in range(n_rows):
            odds[i] = field[j]
        for k in range(0, whole, 4):
            c_0, c_1 = couplings[j, k], couplings[j, k + 1]
            c_2, c_3 = couplings[j, k + 2], couplings[j, k + 3]
            x_0, x_1 = row(data.states, (k, 0), n_rows), row(data.states, (k + 1, 0), n_rows)
            x_2, x_3 = row(data.states, (k + 2, 0), n_rows), row(data.states, (k + 3, 0), n_rows)
            for i in range(n_rows):
                odds[i] += c_0 * x_0[i] + c_1 * x_1[i] + c_2 * x_2[i] + c_3 * x_3[i]
        for k in range(whole, n_units):
            coupling, x_k = couplings[j, k], row(data.states, (k, 0), n_rows)
            for i in range(n_rows):
                odds[i] += coupling * x_k[i]
        for i in range(n_rows):
            eta = odds[i]
            nll[i] += larger(-2 * states[i] * eta, 0.0)
            new = exp(2 * eta)
            odds[i] = new
            factors[i] *= 1 + smaller(new, 1 / new)
        if j % UNITS_PER_LOG == UNITS_PER_LOG - 1 or j == n_units - 1:
            for i in range(n_rows):
                nll[i] += log(factors[i])
                factors[i] = 1
    value = 0.0
    for i in range(n_rows):
        value -= data.weights[i] * nll[i]
    workspaces.value[worker] = value


@kernel(mode="merged")
def _penalty(settings, couplings, field):
    """l1 sum |J_jk| + l2 (sum J_jk^2 + sum h_j^2) / 2, over pairs."""
    absolute, squares = 0.0, 0.0
    for j in range(field.shape[0]):
        squares += field[j] * field[j]
        for k in range(j + 1, field.shape[0]):
            coupling = couplings[j, k]
            absolute += abs(coupling)
            squares += coupling * coupling
    return settings.l1 * absolute + settings.l2 / 2 * squares


@kernel(mode="merged")
def _maximiser(old, gradient, curvature, l1, l2):
    """Maximiser of the quadratic minorant of one coordinate, less its penalties."""
    target = old + (gradient - l2 * old) / (curvature + l2)
    threshold = l1 / (curvature + l2)
    return larger(target - threshold, 0.0) + smaller(target + threshold, 0.0)


@kernel(mode="merged")
def _sweep_fields(data, settings, field, workspaces, worker):
    n_rows = data.weights.shape[0]
    for j in range(field.shape[0]):
        odds, total = row(workspaces.odds, (worker, j, 0), n_rows), 0.0
        # Weighted mean of 1 - tanh eta_j = 2 / (odds + 1).
        for i in range(n_rows):
            total += data.weights[i] / (odds[i] + 1)
        old, gradient = field[j], data.mean[j] - 1 + 2 * total
        change = _maximiser(old, gradient, 1.0, 0.0, settings.l2) - old
        field[j] = old + change
        factor = exp(2 * change)
        for i in range(n_rows):
            odds[i] *= factor


@kernel(mode="by_address", fastmath=REORDER, views=True)
def _sweep(data, settings, couplings, field, workspaces, worker):
    """All fields, then all couplings in lexicographic order, each with the newest values."""
    _sweep_fields(data, settings, field, workspaces, worker)
    n_units, n_rows = data.spins.shape
    weights, mean = data.weights, data.mean
    for j in range(n_units - 1):
        x_j, odds_j = row(data.spins, (j, 0), n_rows), row(workspaces.odds, (worker, j, 0), n_rows)
        # The average of the next pair is taken in the loop over rows that changes this pair's odds.
        x_k = row(data.spins, (j + 1, 0), n_rows)
        odds_k = row(workspaces.odds, (worker, j + 1, 0), n_rows)
        average = _mean_pair_terms(weights, x_j, x_k, odds_j, odds_k)
        for k in range(j + 1, n_units):
            gradient = 2 * data.second[j, k] - mean[j] - mean[k] + average
            old = couplings[j, k]
            change = _maximiser(old, gradient, 2.0, settings.l1, settings.l2) - old
            couplings[j, k] = couplings[k, j] = old + change
            if k == n_units - 1:
                _change_coupling(change, x_j, x_k, odds_j, odds_k)
            else:
                x_l = row(data.spins, (k + 1, 0), n_rows)
                odds_l = row(workspaces.odds, (worker, k + 1, 0), n_rows)
                average = _change_coupling_and_average(
                    change, weights, x_j, x_k, x_l, odds_j, odds_k, odds_l
                )
                x_k, odds_k = x_l, odds_l


@kernel(views=True)
def bslm(data, settings, workspaces, queue, couplings, field, history, n_iter):
    """Coordinate-wise maximisation of the penalised log-pseudo-likelihood from several starts.

    Eqs. 2.4 and 2.7, in the paper's order: all fields, then all couplings, each to the maximum of a
    quadratic minorant, until a sweep raises the value by no more than `tol`.
    """
    worker = fetch_and_increment(row(queue, (1,), 1))
    start = next_task(queue)
    while start < couplings.shape[0]:
        J, h = couplings[start], row(field, (start, 0), field.shape[1])
        n_iter[start], before = -settings.max_iter, -np.inf
        for sweep in range(settings.max_iter + 1):
            if stopped(queue):
                return
            if sweep > 0:
                call(settings.sweep, (data, settings, J, h, workspaces, worker))
            call(settings.odds_and_value, (data, J, h, workspaces, worker))
            value = workspaces.value[worker] - _penalty(settings, J, h)
            value *= data.total
            history[start, sweep] = value
            if value - before <= settings.tol and sweep > 0:
                n_iter[start] = sweep
                break
            before = value
        start = next_task(queue)


@cache
def bslm_addresses():
    """Addresses of the functions that `bslm` calls, the last options of `BSLMSettings`."""
    state = Float64[2], Float64[1], BSLMWorkspaces, int

    def address(function, *arguments):
        return address_of(function, *argument_types(float, *arguments))

    value = address(_odds_and_value, BSLMData, *state)
    return value, address(_sweep, BSLMData, BSLMSettings, *state)
