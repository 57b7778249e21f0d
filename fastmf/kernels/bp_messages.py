"""Inner loops of belief propagation, over the hidden units that one visible unit meets.

Notation as in `fastmf.kernels.belief_propagation`.
"""

import numpy as np

from fastmf._numba import REORDER, kernel
from fastmf.special import constant, log, sigmoid_pair


@kernel(inline=True)
def probabilities(log_odds, old, damping, yes, no, changes):
    """Probabilities of 1 and of 0; returns the largest change of a belief from log-odds `old`."""
    # Two loops and no branch, so that the exponentials vectorise.
    undamped = 1.0 if damping == 0 else 0.0
    for k in range(log_odds.shape[0]):
        yes[k], no[k] = sigmoid_pair(log_odds[k])
        changes[k] = _change(np.float64(old[k]), log_odds[k], undamped)
    largest = 0.0
    for k in range(log_odds.shape[0]):
        largest = max(largest, changes[k])
    return largest


@kernel(inline=True)
def _change(old, new, undamped):
    """Change of a belief from its log-odds; undamped, theirs too, which a saturated one hides.

    The log-partition is stationary in the messages: an error of log-odds counts squared.
    """
    change = abs(sigmoid_pair(new)[0] - sigmoid_pair(old)[0])
    relative = undamped * (new - old) / (1 + abs(old) + abs(new))
    return max(change, relative * relative)


@kernel(inline=True)
def log_of_product(factors, fold, chunk):
    """Logarithm of a product; factors are multiplied by fours first if they may be."""
    n = factors.shape[0] // 4 if fold else factors.shape[0]
    chunk = chunk // 4 if fold else chunk
    total, start = 0.0, 0
    while start < n:
        stop = min(start + chunk, n)
        some = factors[start:stop]
        if fold:
            second, third = factors[n + start : n + stop], factors[2 * n + start : 2 * n + stop]
            total += log(_by_fours(some, second, third, factors[3 * n + start : 3 * n + stop]))
        else:
            total += log(_product(some))
        start = stop
    return total


@kernel(fastmath=REORDER, inline=True)
def _product(factors):
    product = 1.0
    for j in range(factors.shape[0]):
        product *= factors[j]
    return product


@kernel(fastmath=REORDER, inline=True)
def _by_fours(a, b, c, d):
    product = 1.0
    for j in range(a.shape[0]):
        product *= (a[j] * b[j]) * (c[j] * d[j])
    return product


@kernel(fastmath=REORDER, inline=True)
def total_of(values):
    """Sum in double precision."""
    total = 0.0
    for j in range(values.shape[0]):
        total += values[j]
    return total


@kernel(fastmath=REORDER, inline=True)
def incoming(e, s, p, q, r):
    """Messages from the hidden units."""
    for j in range(r.shape[0]):
        t = s[j] * q[j]
        r[j] = (t + e[j] * p[j]) / (t + p[j])


@kernel(fastmath=REORDER, inline=True)
def outgoing(e, r, yes, no, s, product):
    """Messages back to the hidden units, and products of them over visible units."""
    for j in range(r.shape[0]):
        off = r[j] * no
        new = (off + e[j] * yes) / (off + yes)
        s[j] = new
        product[j] *= new


@kernel(fastmath=REORDER, inline=True)
def outgoing_damped(e, r, yes, no, old_share, new_share, s, product):
    """The same, averaged with the old messages."""
    # The normalised messages s / (1 + s) are averaged, here with all denominators multiplied out.
    one = s.dtype.type(1)
    for j in range(r.shape[0]):
        off = r[j] * no
        m1, m0 = off + e[j] * yes, off + yes
        scale, both = new_share * (one + s[j]), old_share * (m1 + m0)
        new = (m1 * scale + both * s[j]) / (m0 * scale + both)
        s[j] = new
        product[j] *= new


@kernel(fastmath=REORDER, inline=True)
def pair_ratios(r, yes, no):
    """Normalisers of the beliefs of pairs, relative to those of the messages."""
    for j in range(r.shape[0]):
        r[j] = no + yes / r[j]


@kernel(fastmath=REORDER, inline=True)
def gather(product, wide):
    """Move products to double precision."""
    for j in range(product.shape[0]):
        wide[j] *= product[j]
        product[j] = 1


@kernel(fastmath=REORDER, inline=True)
def take_logs(wide, logs):
    """Add the logarithms of products, and begin new ones."""
    for j in range(wide.shape[0]):
        logs[j] += log(wide[j])
        wide[j] = 1


@kernel(fastmath=REORDER, inline=True)
def add(row, total):
    """Add a row to a total."""
    for j in range(row.shape[0]):
        total[j] += row[j]


@kernel(fastmath=REORDER, inline=True)
def rise(w, x):
    """max(0, w - x) - max(0, -x), which itself would lose w where -x is large."""
    return max(w, x) - max(constant(0.0, w), x)


@kernel(fastmath=REORDER, inline=True)
def clipped(w, message, log_odds, incoming):
    """Log-messages of max-product from the hidden units."""
    for j in range(w.shape[0]):
        incoming[j] = rise(w[j], message[j] - log_odds[j])


@kernel(fastmath=REORDER, inline=True)
def clipped_back(w, incoming, log_odds, old_share, new_share, message, total):
    """Log-messages of max-product back to them, and their sums over visible units."""
    for j in range(w.shape[0]):
        new = new_share * rise(w[j], incoming[j] - log_odds) + old_share * message[j]
        message[j] = new
        total[j] += new


@kernel(fastmath=REORDER, inline=True)
def from_off(e, p, q, r):
    """Messages of mixed-product from the hidden units to one that was decoded as 0."""
    for j in range(r.shape[0]):
        r[j] = q[j] + e[j] * p[j]


@kernel(fastmath=REORDER, inline=True)
def from_on(e, p, q, r):
    """The same to one that was decoded as 1, inverted and without exp(sum of its weights)."""
    for j in range(r.shape[0]):
        r[j] = e[j] * q[j] + p[j]
