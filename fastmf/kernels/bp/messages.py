"""Messages of belief propagation between one visible unit and all hidden units.

Notation as in `fastmf.kernels.bp.belief_propagation`: e = exp(W), s and r the messages to and from
the hidden units as ratios m(1) / m(0), (p, q) and (P, Q) the beliefs of the hidden and visible
units; for max-product W, log s and log r, and cavity log-odds. All are made part of the blocks of a
sweep, which may reorder their sums and products, but for `max_message`.
"""

import math

from fastmf._jit.intrinsics import larger
from fastmf._jit.kernel import kernel
from fastmf.special import log_of_normal


@kernel(mode="merged")
def sum_to_hidden(e, hidden, visible, s, product):
    """Replace sum-product messages to the hidden units, and multiply the new ones into a product.

    `hidden` are vectors p, q and `visible` P, Q. The messages to the visible unit,
    r = (s q + e p) / (s q + p), are computed again from the old ones, without a division.
    """
    (p, q), (high, low) = hidden, visible
    for j in range(s.shape[0]):
        t = s[j] * q[j]
        above, below = (t + e[j] * p[j]) * low, (t + p[j]) * high
        new = (above + e[j] * below) / (above + below)
        s[j] = new
        product[j] *= new


@kernel(mode="merged")
def add_sum_changes(e, hidden, visible, s, largest):
    """Update the largest relative changes by the sweep of `sum_to_hidden` to come."""
    (p, q), (high, low), one = hidden, visible, s.dtype.type(1)
    for j in range(s.shape[0]):
        t = s[j] * q[j]
        above, below = (t + e[j] * p[j]) * low, (t + p[j]) * high
        ratio = (above + e[j] * below) / ((above + below) * s[j])
        largest[j] = larger(abs(ratio - one), largest[j])


@kernel(mode="merged")
def sum_to_hidden_damped(e, hidden, visible, damping, new_fraction, s, product):
    """The same, with the normalised messages averaged with the old ones.

    Normalised messages are messages of spins, s / (sqrt(e) + s): so it does not matter which value
    of a unit is called 1.
    """
    (p, q), (high, low) = hidden, visible
    for j in range(s.shape[0]):
        t = s[j] * q[j]
        above, below = (t + e[j] * p[j]) * low, (t + p[j]) * high
        # Divided at once: with weights of the largest size no more can be multiplied.
        new = (above + e[j] * below) / (above + below)
        root = math.sqrt(e[j])
        new_weight, old_weight = new_fraction * (root + s[j]), damping * (root + new)
        new = (new * new_weight + s[j] * old_weight) / (new_weight + old_weight)
        s[j] = new
        product[j] *= new


@kernel(mode="merged")
def flush_products(product, product64):
    """Multiply products into the products in float64, and reset them to 1."""
    for j in range(product.shape[0]):
        product64[j] *= product[j]
        product[j] = 1


@kernel(mode="merged")
def add_logs(product64, total):
    """Add the logarithms of products to a total, and reset them to 1."""
    for j in range(product64.shape[0]):
        total[j] += log_of_normal(product64[j])
        product64[j] = 1


@kernel(mode="merged")
def add(row, total):
    """Add a row to a total."""
    for j in range(row.shape[0]):
        total[j] += row[j]


@kernel(mode="inline")
def max_message(w, minus_cavity, zero):
    """Max-product log-message max(0, w + cavity) - max(0, cavity).

    Written with -cavity, because w would be lost in rounding where the cavity log-odds are large.
    Compiled apart, because so would a sum of messages if their differences were reordered.
    """
    return larger(w, minus_cavity) - larger(zero, minus_cavity)


@kernel(mode="merged")
def set_to_halves(w, log_s):
    """Set log-messages to W / 2, the middle of their range."""
    half = w.dtype.type(0.5)
    for j in range(w.shape[0]):
        log_s[j] = half * w[j]


@kernel(mode="merged")
def max_to_visible(w, log_s, log_odds, log_r):
    """Max-product log-messages from the hidden units of such log-odds; returns their sum."""
    zero, total = w.dtype.type(0), 0.0
    for j in range(w.shape[0]):
        message = max_message(w[j], log_s[j] - log_odds[j], zero)
        log_r[j] = message
        total += message
    return total


@kernel(mode="merged")
def max_to_hidden(w, log_r, log_odds, damping, new_fraction, log_s, total):
    """Max-product log-messages to the hidden units, damped, and their sum over visible units."""
    zero = w.dtype.type(0)
    for j in range(w.shape[0]):
        new = new_fraction * max_message(w[j], log_r[j] - log_odds, zero) + damping * log_s[j]
        log_s[j] = new
        total[j] += new


@kernel(mode="merged")
def add_max_changes(w, log_r, log_odds, log_s, largest):
    """Update the largest changes by the undamped sweep of `max_to_hidden` to come."""
    zero = w.dtype.type(0)
    for j in range(w.shape[0]):
        new = max_message(w[j], log_r[j] - log_odds, zero)
        largest[j] = larger(abs(new - log_s[j]), largest[j])


@kernel(mode="merged")
def add_pair_beliefs(e, s, p, q, scale, total):
    """Add scale * P(h = 1 | v = 1) of the pairs of one visible unit to a total."""
    for j in range(e.shape[0]):
        both = e[j] * p[j]
        total[j] += scale * both / (s[j] * q[j] + both)
