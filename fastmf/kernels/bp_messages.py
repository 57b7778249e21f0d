"""Messages of belief propagation between one visible unit and all hidden units.

Notation as in `fastmf.kernels.belief_propagation`: e = exp(W), s and r the messages to and from the
hidden units as ratios m(1) / m(0), (p, q) and (P, Q) the beliefs of the hidden and visible units;
for max-product W, log s and log r, and cavity log-odds.
"""

import numpy as np

from fastmf._numba import REORDER, kernel
from fastmf.special import constant, log, sigmoid_pair


@kernel(inline=True)
def probabilities(log_odds, old, damping, p, q, changes):
    """Fill the probabilities of 1 and 0; returns the largest change of a belief."""
    # Two loops and no branch, so that the exponentials vectorise.
    undamped = 1.0 if damping == 0 else 0.0
    for k in range(log_odds.shape[0]):
        p[k], q[k] = sigmoid_pair(log_odds[k])
        changes[k] = _change(np.float64(old[k]), log_odds[k], undamped)
    largest = 0.0
    for k in range(log_odds.shape[0]):
        largest = max(largest, changes[k])
    return largest


@kernel(inline=True)
def _change(old, new, undamped):
    """Change of a belief; in undamped sweeps also the squared relative change of its log-odds.

    The probability alone would not show changes of a saturated belief. Squared because the Bethe
    free energy is stationary in the messages: errors of the log-odds enter it at second order.
    """
    change = abs(sigmoid_pair(new)[0] - sigmoid_pair(old)[0])
    relative = undamped * (new - old) / (1 + abs(old) + abs(new))
    return max(change, relative * relative)


@kernel(inline=True)
def log_of_product(factors, grouped, max_factors):
    """Logarithm of a product; `grouped` multiplies four factors before they are widened."""
    n = factors.shape[0] // 4 if grouped else factors.shape[0]
    chunk = max_factors // 4 if grouped else max_factors
    total, start = 0.0, 0
    while start < n:
        stop = min(start + chunk, n)
        first = factors[start:stop]
        if grouped:
            second, third = factors[n + start : n + stop], factors[2 * n + start : 2 * n + stop]
            fourth = factors[3 * n + start : 3 * n + stop]
            total += log(_product_of_four(first, second, third, fourth))
        else:
            total += log(_product(first))
        start = stop
    return total


@kernel(fastmath=REORDER, inline=True)
def _product(factors):
    product = 1.0
    for j in range(factors.shape[0]):
        product *= factors[j]
    return product


@kernel(fastmath=REORDER, inline=True)
def _product_of_four(a, b, c, d):
    product = 1.0
    for j in range(a.shape[0]):
        product *= (a[j] * b[j]) * (c[j] * d[j])
    return product


@kernel(fastmath=REORDER, inline=True)
def total_of(values):
    """Sum in float64."""
    total = 0.0
    for j in range(values.shape[0]):
        total += values[j]
    return total


@kernel(fastmath=REORDER, inline=True)
def sum_to_visible(e, s, p, q, r):
    """Sum-product messages from the hidden units: r = (s q + e p) / (s q + p)."""
    for j in range(r.shape[0]):
        t = s[j] * q[j]
        r[j] = (t + e[j] * p[j]) / (t + p[j])


@kernel(fastmath=REORDER, inline=True)
def sum_to_hidden(e, r, p, q, s, product):
    """Sum-product messages to the hidden units, s = (r Q + e P) / (r Q + P), and their product."""
    for j in range(r.shape[0]):
        t = r[j] * q
        new = (t + e[j] * p) / (t + p)
        s[j] = new
        product[j] *= new


@kernel(fastmath=REORDER, inline=True)
def sum_to_hidden_damped(e, r, p, q, damping, new_fraction, s, product):
    """The same, with the normalised messages s / (1 + s) averaged with the old ones."""
    # All denominators are multiplied out: one division.
    one = s.dtype.type(1)
    for j in range(r.shape[0]):
        t = r[j] * q
        m1, m0 = t + e[j] * p, t + p
        scale, old = new_fraction * (one + s[j]), damping * (m1 + m0)
        new = (m1 * scale + old * s[j]) / (m0 * scale + old)
        s[j] = new
        product[j] *= new


@kernel(fastmath=REORDER, inline=True)
def pair_ratios(r, p, q):
    """Normalisers of the pair beliefs relative to those of the unit beliefs: Q + P / r."""
    for j in range(r.shape[0]):
        r[j] = q + p / r[j]


@kernel(fastmath=REORDER, inline=True)
def flush_products(product, product64):
    """Multiply products into those in float64, and reset them to 1."""
    for j in range(product.shape[0]):
        product64[j] *= product[j]
        product[j] = 1


@kernel(fastmath=REORDER, inline=True)
def add_logs(product64, total):
    """Add the logarithms of products to a total, and reset them to 1."""
    for j in range(product64.shape[0]):
        total[j] += log(product64[j])
        product64[j] = 1


@kernel(fastmath=REORDER, inline=True)
def add(row, total):
    """Add a row to a total."""
    for j in range(row.shape[0]):
        total[j] += row[j]


@kernel(fastmath=REORDER, inline=True)
def max_message(w, minus_cavity):
    """Max-product log-message max(0, w + cavity) - max(0, cavity).

    Written with -cavity, because w would be lost in rounding where the cavity log-odds are large.
    """
    return max(w, minus_cavity) - max(constant(0.0, w), minus_cavity)


@kernel(fastmath=REORDER, inline=True)
def max_to_visible(w, log_s, log_odds, log_r):
    """Max-product log-messages from the hidden units of such log-odds."""
    for j in range(w.shape[0]):
        log_r[j] = max_message(w[j], log_s[j] - log_odds[j])


@kernel(fastmath=REORDER, inline=True)
def max_to_hidden(w, log_r, log_odds, damping, new_fraction, log_s, total):
    """Max-product log-messages to the hidden units, damped, and their sum over visible units."""
    for j in range(w.shape[0]):
        new = new_fraction * max_message(w[j], log_r[j] - log_odds) + damping * log_s[j]
        log_s[j] = new
        total[j] += new


@kernel(fastmath=REORDER, inline=True)
def mixed_to_zero(e, p, q, r):
    """Mixed-product messages to a visible unit that is decoded as 0: r = q + e p."""
    for j in range(r.shape[0]):
        r[j] = q[j] + e[j] * p[j]


@kernel(fastmath=REORDER, inline=True)
def mixed_to_one(e, p, q, r):
    """Mixed-product messages to a visible unit that is decoded as 1, as e / r = e q + p."""
    for j in range(r.shape[0]):
        r[j] = e[j] * q[j] + p[j]


@kernel(fastmath=REORDER, inline=True)
def add_pair_beliefs(e, s, p, q, scale, total):
    """Add scale * P(h = 1 | v = 1) of the pairs of one visible unit to a total."""
    for j in range(e.shape[0]):
        both = e[j] * p[j]
        total[j] += scale * both / (s[j] * q[j] + both)
