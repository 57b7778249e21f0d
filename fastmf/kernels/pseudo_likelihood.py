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

import math
from typing import NamedTuple

import numpy as np

from fastmf._numba import REORDER, bits_to_float, fetch_and_increment, float_to_bits, kernel
from fastmf.special import constant, exp, log

# Rows of one task that a thread takes from the queue.
TASK_ROWS = 64
# Units whose softplus(t) = max(t, 0) + log(1 + exp(-|t|)) are added up with one logarithm: the
# product of their factors 1 + exp(-|t|), each in [1, 2], does not overflow.
UNITS_PER_LOG = 100

# Larger odds exp(2 eta) are replaced by this bound, where tanh eta is 1 in double precision: the
# product of two of them is finite.
_MAX_ODDS = 1e150
# While no local field can exceed _MAX_FIELD no odds overflow: they are recomputed from the
# parameters only every REFRESH_SWEEPS sweeps, before rounding errors add up.
_MAX_FIELD, REFRESH_SWEEPS = 300.0, 10
_MANTISSA_BITS, _EXPONENT_OF_ONE, _LN2 = (1 << 52) - 1, 1023 << 52, math.log(2.0)


class BSLMData(NamedTuple):
    """Distinct rows and their moments.

    Parameters
    ----------
    states : array of shape (n_units, n_rows)
        Distinct rows of -1 and +1, transposed.
    weights : array of shape (n_rows,)
        Adding up to one.
    mean, second : array of shape (n_units,) and (n_units, n_units)
        Weighted means of x_j and x_j x_k.
    total : float
        Weight of all rows, by which values are multiplied.
    """

    states: np.ndarray
    weights: np.ndarray
    mean: np.ndarray
    second: np.ndarray
    total: float


class BSLMSettings(NamedTuple):
    """Step, penalties and stopping rule.

    Parameters
    ----------
    step : float
        Multiple of the step to the maximum of the minorant, in (0, 2).
    l1, l2 : float
        Penalty l1 sum |J_jk| + l2 (sum J_jk^2 + sum h_j^2) / 2, over pairs, per unit of weight.
    tol : float
        Stop after a sweep that raises the penalised log-pseudo-likelihood by no more.
    max_iter : int
    """

    step: float
    l1: float
    l2: float
    tol: float
    max_iter: int


class BSLMWorkspace(NamedTuple):
    """Arrays of one thread of `bslm`.

    Parameters
    ----------
    odds : array of shape (n_units, n_rows)
        exp(2 eta_j).
    nll : array of shape (n_rows,)
        Negative log-pseudo-likelihood of each row.
    factors : array of shape (n_rows,)
        Products over units.
    exponents : int64 array of shape (n_rows,)
        Their powers of two.
    """

    odds: np.ndarray
    nll: np.ndarray
    factors: np.ndarray
    exponents: np.ndarray


@kernel
def residuals(products, field, states, weights, queue, out, value):
    """Residuals weight * (x - tanh eta) of rows, and their log-pseudo-likelihoods.

    Parameters
    ----------
    products : array of shape (n_rows, n_units)
        states @ couplings.
    field : array of shape (n_units,)
    states : array of shape (n_rows, n_units)
        Of -1 and +1.
    weights : array of shape (n_rows,)
    queue : int64 array of shape (1,)
        Next group of rows to be computed; shared by all threads that call this.
    out : array of shape (n_rows, n_units)
        Filled with the residuals; may be `products` itself.
    value : array of shape (n_rows,)
        Filled with weight * log-pseudo-likelihood.
    """
    n_rows, n_units = out.shape
    shape = (TASK_ROWS, n_units)
    fields, scales = np.empty(shape, out.dtype), np.empty(shape, out.dtype)
    positive, factors = np.empty(shape, out.dtype), np.empty(shape, out.dtype)
    scaled = np.empty(shape, out.dtype)
    # Negative log-pseudo-likelihood of each row.
    nll, product = np.empty(TASK_ROWS, out.dtype), np.empty(TASK_ROWS, out.dtype)
    for i in range(TASK_ROWS):
        for j in range(n_units):
            fields[i, j] = field[j]
    while True:
        first = fetch_and_increment(queue) * TASK_ROWS
        if first >= n_rows:
            break
        last = min(first + TASK_ROWS, n_rows)
        n = last - first
        for i in range(n):
            scales[i] = 2 * weights[first + i]
        # As one long row and into other memory: a short loop, or one in place, does not vectorise.
        _scaled_residuals(
            products[first:last].reshape(-1), fields[:n].reshape(-1),
            states[first:last].reshape(-1), scales[:n].reshape(-1), scaled[:n].reshape(-1),
            positive[:n].reshape(-1), factors[:n].reshape(-1),
        )  # fmt: skip
        for i in range(n):
            for j in range(n_units):
                out[first + i, j] = scaled[i, j]
        nll[:] = 0
        for start in range(0, n_units, UNITS_PER_LOG):
            end = min(n_units, start + UNITS_PER_LOG)
            for i in range(n):
                total, product[i] = _sum_and_product(positive[i, start:end], factors[i, start:end])
                nll[i] += total
            for i in range(n):
                nll[i] += log(product[i])
        for i in range(n):
            value[first + i] = -weights[first + i] * nll[i]


@kernel(inner=True)
def _scaled_residuals(products, fields, states, scales, out, positive, factors):
    """out = scale * x * sigmoid(t), positive = max(t, 0), factors = 1 + exp(-|t|), t = -2 x eta."""
    one, minus_two = constant(1.0, products[0]), constant(-2.0, products[0])
    for j in range(out.shape[0]):
        t = minus_two * states[j] * (products[j] + fields[j])
        e = exp(-abs(t))
        large = one / (one + e)
        positive[j] = max(t, 0 * one)
        factors[j] = one + e
        out[j] = scales[j] * states[j] * (large if t > 0 else e * large)


@kernel(inner=True, fastmath=REORDER)
def _sum_and_product(terms, factors):
    total, product = constant(0.0, terms[0]), constant(1.0, terms[0])
    for j in range(terms.shape[0]):
        total += terms[j]
        product *= factors[j]
    return total, product


@kernel
def pair_tables(codes, n_codes, first, second, values, queue, sums):
    """Sums of values over the rows where two groups of units are in given states.

    Sums over rows of values times x_j x_k follow from such tables for all pairs of units in the two
    groups at once: with four units in each, a sixteenth of the work ("method of four Russians").

    Parameters
    ----------
    codes : uint8 array of shape (n_groups, n_rows)
        State of every group of units as a number.
    n_codes : int
        How many states a group has.
    first, second : int64 array of shape (n_tables,)
        The two groups of every table.
    values : array of shape (n_rows, n_columns)
    queue : int64 array of shape (1,)
        Next table to be computed; shared by all threads that call this.
    sums : array of shape (n_tables, n_codes^2, n_columns)
        Filled; the state of the second group alternates fastest.
    """
    while True:
        t = fetch_and_increment(queue)
        if t >= sums.shape[0]:
            break
        table, codes_1, codes_2 = sums[t], codes[first[t]], codes[second[t]]
        table[:] = 0
        for i in range(values.shape[0]):
            _add(table[codes_1[i] * n_codes + codes_2[i]], values[i])


@kernel(inner=True)
def _add(total, values):
    for c in range(total.shape[0]):
        total[c] += values[c]


@kernel
def scores(states, residuals, queue, out):
    """Derivatives of rows' log-pseudo-likelihoods by the fields and by the couplings.

    Parameters
    ----------
    states : array of shape (n_rows, n_units)
        Of -1 and +1.
    residuals : array of shape (n_rows, n_units)
        x - tanh eta, times whatever the scores are to be multiplied by.
    queue : int64 array of shape (1,)
        Next group of rows to be computed; shared by all threads that call this.
    out : array of shape (n_rows, n_units (n_units + 1) / 2)
        Filled: fields, then couplings of units j < k in lexicographic order.
    """
    n_rows, n_units = states.shape
    while True:
        first = fetch_and_increment(queue) * TASK_ROWS
        if first >= n_rows:
            break
        for i in range(first, min(first + TASK_ROWS, n_rows)):
            x, r, out_i = states[i], residuals[i], out[i]
            out_i[:n_units] = r
            place = n_units
            for j in range(n_units - 1):
                n_left = n_units - 1 - j
                _pair_scores(x[j], r[j], x[j + 1 :], r[j + 1 :], out_i[place : place + n_left])
                place += n_left


@kernel(inner=True)
def _pair_scores(x_j, r_j, x, r, out):
    for k in range(out.shape[0]):
        out[k] = x_j * r[k] + r_j * x[k]


@kernel(inner=True, fastmath=REORDER)
def _mean_one_minus_tanh(weights, odds_j):
    """Weighted mean of 1 - tanh eta_j = 2 / (odds + 1)."""
    total = 0.0
    for i in range(weights.shape[0]):
        total += weights[i] / (odds_j[i] + 1)
    return 2 * total


@kernel(inline=True, fastmath=REORDER)
def _mean_pair_terms(weights, states_j, states_k, odds_j, odds_k):
    """Weighted mean of x_k (1 - tanh eta_j) + x_j (1 - tanh eta_k), with one division a row."""
    total = 0.0
    for i in range(weights.shape[0]):
        p, q = min(odds_j[i], _MAX_ODDS) + 1, min(odds_k[i], _MAX_ODDS) + 1
        total += weights[i] * (states_k[i] * q + states_j[i] * p) / (p * q)
    return 2 * total


@kernel(inline=True)
def _change_coupling(change, states_j, states_k, odds_j, odds_k):
    """Odds after a change of J_jk: x is -1 or +1, so that two exponentials serve all rows."""
    up, down = exp(2 * change), exp(-2 * change)
    for i in range(odds_j.shape[0]):
        odds_j[i] *= up if states_k[i] > 0 else down
        odds_k[i] *= up if states_j[i] > 0 else down


@kernel(inline=True, fastmath=REORDER)
def _change_coupling_and_average(
    change, weights, states_j, states_k, states_l, odds_j, odds_k, odds_l
):
    """`_change_coupling` of j and k, and then `_mean_pair_terms` of j and l, in one loop."""
    up, down = exp(2 * change), exp(-2 * change)
    total = 0.0
    for i in range(weights.shape[0]):
        new = odds_j[i] * (up if states_k[i] > 0 else down)
        odds_j[i] = new
        odds_k[i] *= up if states_j[i] > 0 else down
        p, q = min(new, _MAX_ODDS) + 1, min(odds_l[i], _MAX_ODDS) + 1
        total += weights[i] * (states_l[i] * q + states_j[i] * p) / (p * q)
    return 2 * total


@kernel(inner=True)
def _odds_and_value(states, weights, couplings, field, odds, nll, factors):
    """Odds of all units from the parameters; returns the weighted mean log-pseudo-likelihood."""
    n_units, n_rows = states.shape
    nll[:] = 0
    factors[:] = 1
    for j in range(n_units):
        odds_j, states_j, couplings_j = odds[j], states[j], couplings[j]
        odds_j[:] = field[j]
        # Four at a time, so that the sums pass through memory less often.
        whole = n_units - n_units % 4
        for k in range(0, whole, 4):
            c_0, c_1 = couplings_j[k], couplings_j[k + 1]
            c_2, c_3 = couplings_j[k + 2], couplings_j[k + 3]
            x_0, x_1, x_2, x_3 = states[k], states[k + 1], states[k + 2], states[k + 3]
            for i in range(n_rows):
                odds_j[i] += c_0 * x_0[i] + c_1 * x_1[i] + c_2 * x_2[i] + c_3 * x_3[i]
        for k in range(whole, n_units):
            coupling, states_k = couplings_j[k], states[k]
            for i in range(n_rows):
                odds_j[i] += coupling * states_k[i]
        for i in range(n_rows):
            eta = odds_j[i]
            nll[i] += max(-2 * states_j[i] * eta, 0.0)
            odds_j[i] = exp(2 * eta)
            factors[i] *= 1 + min(odds_j[i], 1 / odds_j[i])
        if j % UNITS_PER_LOG == UNITS_PER_LOG - 1 or j == n_units - 1:
            for i in range(n_rows):
                nll[i] += log(factors[i])
            factors[:] = 1
    value = 0.0
    for i in range(n_rows):
        value -= weights[i] * nll[i]
    return value


@kernel(inner=True)
def _fields_are_bounded(couplings, field):
    """Whether |h_j| + sum_k |J_jk|, the largest local field, is below `_MAX_FIELD` everywhere."""
    largest = 0.0
    for j in range(len(field)):
        total = abs(field[j])
        for k in range(len(field)):
            total += abs(couplings[j, k])
        largest = max(largest, total)
    return largest < _MAX_FIELD


@kernel(inline=True)
def _multiply(odds_j, mantissas, exponents):
    """Multiply by 1 + odds: 2^exponent times a mantissa below 2."""
    for i in range(odds_j.shape[0]):
        bits = float_to_bits(1 + odds_j[i])
        mantissas[i] *= bits_to_float((bits & _MANTISSA_BITS) | _EXPONENT_OF_ONE)
        exponents[i] += bits >> 52


@kernel(inner=True)
def _value_from_odds(data, couplings, field, odds, mantissas, exponents):
    """The weighted mean log-pseudo-likelihood, of (x + 1) eta - log(1 + exp(2 eta))."""
    n_units, n_rows = odds.shape
    weights, mean, second = data.weights, data.mean, data.second
    value = 0.0
    for j in range(n_units):
        value += field[j] * (mean[j] + 1)
        for k in range(n_units):
            value += couplings[j, k] * (second[j, k] + mean[k])
    mantissas[:] = 1
    exponents[:] = 0
    for j in range(n_units):
        _multiply(odds[j], mantissas, exponents)
        if j % UNITS_PER_LOG == UNITS_PER_LOG - 1 or j == n_units - 1:
            for i in range(n_rows):
                value -= weights[i] * log(mantissas[i])
            mantissas[:] = 1
    for i in range(n_rows):
        value -= weights[i] * _LN2 * (exponents[i] - 1023 * n_units)
    return value


@kernel(inner=True)
def _penalty(settings, couplings, field):
    """l1 sum |J_jk| + l2 (sum J_jk^2 + sum h_j^2) / 2, over pairs."""
    absolute, squares = 0.0, 0.0
    for j in range(len(field)):
        squares += field[j] ** 2
        for k in range(j + 1, len(field)):
            absolute += abs(couplings[j, k])
            squares += couplings[j, k] ** 2
    return settings.l1 * absolute + settings.l2 / 2 * squares


@kernel(inner=True)
def _maximiser(old, gradient, curvature, l1, l2):
    """Maximiser of the quadratic minorant of one coordinate, less its penalties."""
    target = old + (gradient - l2 * old) / (curvature + l2)
    threshold = l1 / (curvature + l2)
    if target > threshold:
        return target - threshold
    if target < -threshold:
        return target + threshold
    return 0.0


@kernel(inner=True)
def _sweep_fields(data, settings, field, odds):
    for j in range(len(field)):
        gradient = data.mean[j] - 1 + _mean_one_minus_tanh(data.weights, odds[j])
        change = _maximiser(field[j], gradient, 1 / settings.step, 0.0, settings.l2) - field[j]
        field[j] += change
        odds_j, factor = odds[j], exp(2 * change)
        for i in range(odds_j.shape[0]):
            odds_j[i] *= factor


@kernel(inner=True)
def _sweep_couplings(data, settings, spins, couplings, odds):
    """All couplings in lexicographic order, each with the newest values."""
    n_units = spins.shape[0]
    weights, mean = data.weights, data.mean
    for j in range(n_units - 1):
        x_j, odds_j = spins[j], odds[j]
        # The average of the next pair is taken in the loop over rows that changes this pair's odds.
        average = _mean_pair_terms(weights, x_j, spins[j + 1], odds_j, odds[j + 1])
        for k in range(j + 1, n_units):
            gradient = 2 * data.second[j, k] - mean[j] - mean[k] + average
            old, x_k, odds_k = couplings[j, k], spins[k], odds[k]
            change = _maximiser(old, gradient, 2 / settings.step, settings.l1, settings.l2) - old
            couplings[j, k] = couplings[k, j] = old + change
            if k == n_units - 1:
                _change_coupling(change, x_j, x_k, odds_j, odds_k)
            else:
                average = _change_coupling_and_average(
                    change, weights, x_j, x_k, spins[k + 1], odds_j, odds_k, odds[k + 1]
                )


@kernel(inner=True)
def _value(data, couplings, field, workspace, renew):
    """The weighted mean log-pseudo-likelihood; with `renew` odds are recomputed."""
    odds, factors = workspace.odds, workspace.factors
    if renew:
        return _odds_and_value(
            data.states, data.weights, couplings, field, odds, workspace.nll, factors
        )
    return _value_from_odds(data, couplings, field, odds, factors, workspace.exponents)


@kernel(inner=True)
def _ascend(data, settings, spins, couplings, field, history, workspace):
    """Sweeps from one start; their number, negative if the last gained more than `tol`."""
    for sweep in range(settings.max_iter + 1):
        renew = sweep % REFRESH_SWEEPS == 0 or not _fields_are_bounded(couplings, field)
        value = _value(data, couplings, field, workspace, renew)
        history[sweep] = data.total * (value - _penalty(settings, couplings, field))
        if sweep > 0 and history[sweep] - history[sweep - 1] <= settings.tol:
            return sweep
        if sweep < settings.max_iter:
            _sweep_fields(data, settings, field, workspace.odds)
            _sweep_couplings(data, settings, spins, couplings, workspace.odds)
    return -settings.max_iter


@kernel
def bslm(data, settings, queue, couplings, field, history, n_iter):
    """Coordinate-wise maximisation of the penalised log-pseudo-likelihood from several starts.

    Eqs. 2.4 and 2.7, in the paper's order: all fields, then all couplings, each to the maximum of a
    quadratic minorant (for `step` 1; with any step below 2 the value does not decrease), until a
    sweep raises the value by no more than `tol`.

    Parameters
    ----------
    data : BSLMData
    settings : BSLMSettings
    queue : int64 array of shape (1,)
        Next start to be computed; shared by all threads that call this.
    couplings, field : array of shape (n_starts, n_units, n_units) and (n_starts, n_units)
        Starts; overwritten by results.
    history : array of shape (n_starts, max_iter + 1)
        Penalised log-pseudo-likelihood at the start and after each sweep.
    n_iter : int64 array of shape (n_starts,)
        Filled with the number of sweeps, negative if the last still gained more than `tol`.
    """
    n_units, n_rows = data.states.shape
    # One byte per spin: reading two spins per row and coupling from memory limits the speed.
    odds, spins = np.empty((n_units, n_rows)), data.states.astype(np.int8)
    workspace = BSLMWorkspace(odds, np.empty(n_rows), np.empty(n_rows), np.empty(n_rows, np.int64))
    while True:
        start = fetch_and_increment(queue)
        if start >= len(couplings):
            break
        n_iter[start] = _ascend(
            data, settings, spins, couplings[start], field[start], history[start], workspace
        )
