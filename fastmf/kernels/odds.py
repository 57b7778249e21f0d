"""Inner loops of belief propagation, over the hidden units that one visible unit meets.

Notation as in `fastmf.kernels.belief_propagation`.
"""

from fastmf._numba import REORDER, kernel
from fastmf.special import log


@kernel(fastmath=REORDER, inner=True)
def log_ratio_of_products(top, bottom, chunk):
    """log(product of top / product of bottom), of so many factors at a time."""
    total = 0.0
    for start in range(0, top.shape[0], chunk):
        over, under = top[start : start + chunk], bottom[start : start + chunk]
        x, y = 1.0, 1.0
        for j in range(over.shape[0]):
            x *= over[j]
            y *= under[j]
        total += log(x / y)
    return total


@kernel(fastmath=REORDER, inner=True)
def total_of(values):
    """Sum in double precision."""
    total = 0.0
    for j in range(values.shape[0]):
        total += values[j]
    return total


@kernel(fastmath=REORDER, inner=True)
def incoming(e, s, p, q, n, d):
    """Messages n / d from the hidden units."""
    for j in range(n.shape[0]):
        t = s[j] * q[j]
        n[j] = t + e[j] * p[j]
        d[j] = t + p[j]


@kernel(fastmath=REORDER, inner=True)
def outgoing(e, n, d, big_p, big_q, s, product):
    """Messages back to the hidden units, and products of them over visible units."""
    for j in range(n.shape[0]):
        a, b = n[j] * big_q, d[j] * big_p
        new = (a + e[j] * b) / (a + b)
        s[j] = new
        product[j] *= new


@kernel(fastmath=REORDER, inner=True)
def outgoing_damped(e, n, d, big_p, big_q, old_share, new_share, s, product):
    """The same, averaged with the old messages."""
    # The normalised messages s / (1 + s) are averaged, here with all denominators multiplied out.
    one = s.dtype.type(1)
    for j in range(n.shape[0]):
        a, b = n[j] * big_q, d[j] * big_p
        yes, no = a + e[j] * b, a + b
        scale, both = new_share * (one + s[j]), old_share * (yes + no)
        new = (yes * scale + both * s[j]) / (no * scale + both)
        s[j] = new
        product[j] *= new


@kernel(fastmath=REORDER, inner=True)
def gather(product, wide):
    """Move products to double precision."""
    for j in range(product.shape[0]):
        wide[j] *= product[j]
        product[j] = 1


@kernel(fastmath=REORDER, inner=True)
def take_logs(wide, logs):
    """Add the logarithms of products, and begin new ones."""
    for j in range(wide.shape[0]):
        logs[j] += log(wide[j])
        wide[j] = 1


@kernel(fastmath=REORDER, inner=True)
def add(row, total):
    """Add a row to a total."""
    for j in range(row.shape[0]):
        total[j] += row[j]


@kernel(fastmath=REORDER, inner=True)
def clipped(w, message, log_odds, incoming):
    """Log-messages of max-product from the hidden units."""
    zero = w.dtype.type(0)
    for j in range(w.shape[0]):
        x = log_odds[j] - message[j]
        incoming[j] = max(zero, w[j] + x) - max(zero, x)


@kernel(fastmath=REORDER, inner=True)
def clipped_back(w, incoming, log_odds, old_share, new_share, message, total):
    """Log-messages of max-product back to them, and their sums over visible units."""
    zero = w.dtype.type(0)
    for j in range(w.shape[0]):
        x = log_odds - incoming[j]
        new = max(zero, w[j] + x) - max(zero, x)
        new = new_share * new + old_share * message[j]
        message[j] = new
        total[j] += new


@kernel(fastmath=REORDER, inner=True)
def from_off(e, p, q, n):
    """Messages of mixed-product from the hidden units to one that was decoded as 0."""
    for j in range(n.shape[0]):
        n[j] = q[j] + e[j] * p[j]


@kernel(fastmath=REORDER, inner=True)
def from_on(e, p, q, n):
    """The same to one that was decoded as 1, without the factor exp(sum of its weights)."""
    for j in range(n.shape[0]):
        n[j] = e[j] * q[j] + p[j]
