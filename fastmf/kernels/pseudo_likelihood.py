"""Maximum pseudo-likelihood of a fully visible Boltzmann machine of {-1, +1} units.

The paper is Nguyen & Wood, Neural Computation 28 (2016), "BSLM"; units are spins x, their local
field is eta_j = sum_k J_jk x_k + h_j, and the log-pseudo-likelihood of a row is the sum over j of
x_j eta_j - ln cosh eta_j - ln 2 = -softplus(-2 x_j eta_j) (Eq. 2.1).
"""

import math

import numpy as np

from fastmf._numba import REORDER, bits_to_float, fetch_and_increment, float_to_bits, kernel
from fastmf.special import constant, exp, log

# Rows that one task of a worker is about.
ROWS = 64
# A row's softplus(t) = max(t, 0) + log(1 + exp(-|t|)) are added up with one logarithm for so many
# units: the product of their factors, each in [1, 2], does not overflow.
FACTORS = 100

# Odds exp(2 eta) beyond this bound are certainty in double precision; its square is finite.
_CERTAIN = 1e150
# While no field can be stronger than this, none overflow: they are made anew only every few sweeps,
# before rounding shows.
_ORDINARY, REFRESH = 300.0, 10
_MANTISSA, _ONE, _LN2 = (1 << 52) - 1, 1023 << 52, math.log(2.0)


@kernel
def residuals(products, field, states, weights, queue, out, value):
    """What a row says against the model: weight * (x - tanh eta), and its log-pseudo-likelihood.

    Parameters
    ----------
    products : array of shape (n_rows, n_units)
        states @ couplings.
    field : array of shape (n_units,)
    states : array of shape (n_rows, n_units)
        Of -1 and +1.
    weights : array of shape (n_rows,)
    queue : int64 array of shape (1,)
        Next group of rows that nobody has taken; shared by all threads that call this.
    out : array of shape (n_rows, n_units)
        Filled; may be `products` itself.
    value : array of shape (n_rows,)
        Filled with weight * log-pseudo-likelihood.
    """
    n_rows, n_units = out.shape
    shape = (ROWS, n_units)
    fields, scales = np.empty(shape, out.dtype), np.empty(shape, out.dtype)
    above, factors = np.empty(shape, out.dtype), np.empty(shape, out.dtype)
    errors = np.empty(shape, out.dtype)
    surprise, product = np.empty(ROWS, out.dtype), np.empty(ROWS, out.dtype)
    for i in range(ROWS):
        for j in range(n_units):
            fields[i, j] = field[j]
    while True:
        first = fetch_and_increment(queue) * ROWS
        if first >= n_rows:
            break
        last = min(first + ROWS, n_rows)
        n = last - first
        for i in range(n):
            scales[i] = 2 * weights[first + i]
        # As one long row: a loop over a few units would hardly vectorise, nor in place.
        _errors(
            products[first:last].reshape(-1), fields[:n].reshape(-1),
            states[first:last].reshape(-1), scales[:n].reshape(-1), errors[:n].reshape(-1),
            above[:n].reshape(-1), factors[:n].reshape(-1),
        )  # fmt: skip
        for i in range(n):
            for j in range(n_units):
                out[first + i, j] = errors[i, j]
        surprise[:] = 0
        for start in range(0, n_units, FACTORS):
            end = min(n_units, start + FACTORS)
            for i in range(n):
                total, product[i] = _sum_and_product(above[i, start:end], factors[i, start:end])
                surprise[i] += total
            for i in range(n):
                surprise[i] += log(product[i])
        for i in range(n):
            value[first + i] = -weights[first + i] * surprise[i]


@kernel(inner=True)
def _errors(products, fields, states, scales, errors, above, factors):
    """scale x sigmoid(t), max(t, 0) and 1 + exp(-|t|) for t = -2 x eta."""
    one, minus_two = constant(1.0, products[0]), constant(-2.0, products[0])
    for j in range(errors.shape[0]):
        t = minus_two * states[j] * (products[j] + fields[j])
        e = exp(-abs(t))
        large = one / (one + e)
        above[j] = max(t, 0 * one)
        factors[j] = one + e
        errors[j] = scales[j] * states[j] * (large if t > 0 else e * large)


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
        Next table that nobody has taken; shared by all threads that call this.
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
        Next group of rows that nobody has taken; shared by all threads that call this.
    out : array of shape (n_rows, n_units (n_units + 1) / 2)
        Filled: fields, then couplings of units j < k in lexicographic order.
    """
    n_rows, n_units = states.shape
    while True:
        first = fetch_and_increment(queue) * ROWS
        if first >= n_rows:
            break
        for i in range(first, min(first + ROWS, n_rows)):
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
def _field_gradient(weights, odds_j):
    """Weighted mean of 1 - tanh eta_j."""
    total = 0.0
    for i in range(weights.shape[0]):
        total += weights[i] / (odds_j[i] + 1)
    return 2 * total


@kernel(inline=True, fastmath=REORDER)
def _pair_gradient(weights, states_j, states_k, odds_j, odds_k):
    """Weighted mean of x_k (1 - tanh eta_j) + x_j (1 - tanh eta_k), one division a row."""
    total = 0.0
    for i in range(weights.shape[0]):
        p, q = min(odds_j[i], _CERTAIN) + 1, min(odds_k[i], _CERTAIN) + 1
        total += weights[i] * (states_k[i] * q + states_j[i] * p) / (p * q)
    return 2 * total


@kernel(inline=True)
def _couple(change, states_j, states_k, odds_j, odds_k):
    """Add to a coupling: x is -1 or +1, so that two exponentials serve all rows."""
    up, down = exp(2 * change), exp(-2 * change)
    for i in range(odds_j.shape[0]):
        odds_j[i] *= up if states_k[i] > 0 else down
        odds_k[i] *= up if states_j[i] > 0 else down


@kernel(inline=True, fastmath=REORDER)
def _couple_and_go_on(change, weights, states_j, states_k, states_l, odds_j, odds_k, odds_l):
    """Add to the coupling of units j and k, and return the gradient by that of j and l."""
    up, down = exp(2 * change), exp(-2 * change)
    total = 0.0
    for i in range(weights.shape[0]):
        new = odds_j[i] * (up if states_k[i] > 0 else down)
        odds_j[i] = new
        odds_k[i] *= up if states_j[i] > 0 else down
        p, q = min(new, _CERTAIN) + 1, min(odds_l[i], _CERTAIN) + 1
        total += weights[i] * (states_l[i] * q + states_j[i] * p) / (p * q)
    return 2 * total


@kernel(inner=True)
def _refresh(states, weights, couplings, field, odds, surprise, factors):
    """Odds of all units from the parameters; returns the weighted mean log-pseudo-likelihood."""
    n_units, n_rows = states.shape
    surprise[:] = 0
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
            surprise[i] += max(-2 * states_j[i] * eta, 0.0)
            odds_j[i] = exp(2 * eta)
            factors[i] *= 1 + min(odds_j[i], 1 / odds_j[i])
        if j % FACTORS == FACTORS - 1 or j == n_units - 1:
            for i in range(n_rows):
                surprise[i] += log(factors[i])
            factors[:] = 1
    value = 0.0
    for i in range(n_rows):
        value -= weights[i] * surprise[i]
    return value


@kernel(inner=True)
def _ordinary(couplings, field):
    strongest = 0.0
    for j in range(len(field)):
        total = abs(field[j])
        for k in range(len(field)):
            total += abs(couplings[j, k])
        strongest = max(strongest, total)
    return strongest < _ORDINARY


@kernel(inline=True)
def _split(odds_j, mantissas, exponents):
    """Multiply by 1 + odds: 2^exponent times a mantissa below 2."""
    for i in range(odds_j.shape[0]):
        bits = float_to_bits(1 + odds_j[i])
        mantissas[i] *= bits_to_float((bits & _MANTISSA) | _ONE)
        exponents[i] += bits >> 52


@kernel(inner=True)
def _value(weights, mean, second, couplings, field, odds, mantissas, exponents):
    """The weighted mean log-pseudo-likelihood, of (x + 1) eta - log(1 + exp(2 eta))."""
    n_units, n_rows = odds.shape
    value = 0.0
    for j in range(n_units):
        value += field[j] * (mean[j] + 1)
        for k in range(n_units):
            value += couplings[j, k] * (second[j, k] + mean[k])
    mantissas[:] = 1
    exponents[:] = 0
    for j in range(n_units):
        _split(odds[j], mantissas, exponents)
        if j % FACTORS == FACTORS - 1 or j == n_units - 1:
            for i in range(n_rows):
                value -= weights[i] * log(mantissas[i])
            mantissas[:] = 1
    for i in range(n_rows):
        value -= weights[i] * _LN2 * (exponents[i] - 1023 * n_units)
    return value


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
def _sweep(states, weights, mean, second, step, l1, l2, couplings, field, odds):
    """All fields, then all couplings in lexicographic order, each with the newest values."""
    n_units = states.shape[0]
    for j in range(n_units):
        gradient = mean[j] - 1 + _field_gradient(weights, odds[j])
        change = _maximiser(field[j], gradient, 1 / step, 0.0, l2) - field[j]
        field[j] += change
        odds_j, factor = odds[j], exp(2 * change)
        for i in range(odds_j.shape[0]):
            odds_j[i] *= factor
    for j in range(n_units - 1):
        x_j, odds_j = states[j], odds[j]
        mistake = _pair_gradient(weights, x_j, states[j + 1], odds_j, odds[j + 1])
        for k in range(j + 1, n_units):
            gradient = 2 * second[j, k] - mean[j] - mean[k] + mistake
            old, x_k, odds_k = couplings[j, k], states[k], odds[k]
            change = _maximiser(old, gradient, 2 / step, l1, l2) - old
            couplings[j, k] = couplings[k, j] = old + change
            if k == n_units - 1:
                _couple(change, x_j, x_k, odds_j, odds_k)
            else:
                x_l, odds_l = states[k + 1], odds[k + 1]
                mistake = _couple_and_go_on(change, weights, x_j, x_k, x_l, odds_j, odds_k, odds_l)


@kernel
def bslm(
    states, weights, mean, second, step, l1, l2, scale, tol, max_iter, queue, couplings, field,
    history, n_iter,
):  # fmt: skip
    """Coordinate-wise maximisation of the penalised log-pseudo-likelihood from several starts.

    Eqs. 2.4 and 2.7, in the paper's order: every coordinate goes to the maximum of a quadratic
    minorant (for `step` 1; any step below 2 climbs), until a sweep gains no more than `tol`.

    Parameters
    ----------
    states : array of shape (n_units, n_rows)
        Distinct rows of -1 and +1, transposed.
    weights : array of shape (n_rows,)
        Adding up to one.
    mean, second : array of shape (n_units,) and (n_units, n_units)
        Weighted means of x_j and x_j x_k.
    step : float
    l1, l2 : float
        Penalty l1 sum |J_jk| + l2 (sum J_jk^2 + sum h_j^2) / 2, over pairs, per unit of weight.
    scale : float
        Total weight of all rows, by which values are multiplied.
    tol : float
    max_iter : int
    queue : int64 array of shape (1,)
        Next start that nobody has taken; shared by all threads that call this.
    couplings, field : array of shape (n_starts, n_units, n_units) and (n_starts, n_units)
        Starts; overwritten by results.
    history : array of shape (n_starts, max_iter + 1)
        Penalised log-pseudo-likelihood at the start and after each sweep.
    n_iter : int64 array of shape (n_starts,)
        Filled with the number of sweeps, negative if the last still gained more than `tol`.
    """
    n_units, n_rows = states.shape
    # Bytes in place of numbers: from memory come the spins of two units for each coupling.
    odds, spins = np.empty((n_units, n_rows)), states.astype(np.int8)
    surprise, factors, exponents = np.empty(n_rows), np.empty(n_rows), np.empty(n_rows, np.int64)
    while True:
        start = fetch_and_increment(queue)
        if start >= len(couplings):
            break
        couplings_s, field_s, history_s = couplings[start], field[start], history[start]
        n_iter[start] = -max_iter
        for sweep in range(max_iter + 1):
            if sweep % REFRESH and _ordinary(couplings_s, field_s):
                value = _value(
                    weights, mean, second, couplings_s, field_s, odds, factors, exponents
                )
            else:
                value = _refresh(states, weights, couplings_s, field_s, odds, surprise, factors)
            for j in range(n_units):
                value -= l2 / 2 * field_s[j] ** 2
                for k in range(j + 1, n_units):
                    coupling = couplings_s[j, k]
                    value -= l1 * abs(coupling) + l2 / 2 * coupling**2
            history_s[sweep] = scale * value
            if sweep > 0 and history_s[sweep] - history_s[sweep - 1] <= tol:
                n_iter[start] = sweep
                break
            if sweep < max_iter:
                _sweep(spins, weights, mean, second, step, l1, l2, couplings_s, field_s, odds)
