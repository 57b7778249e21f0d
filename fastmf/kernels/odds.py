"""Inner loops of belief propagation, over the hidden units that one visible unit meets.

Notation as in `fastmf.kernels.belief_propagation`.
"""

from fastmf._numba import REORDER, kernel
from fastmf.special import log


@kernel(fastmath=REORDER, inner=True)
def log_of_product(factors, quarter, fold, chunk):
    """Logarithm of a product; factors are multiplied by fours first if they may be."""
    if not fold:
        return _log_in_chunks(factors, chunk)
    n = quarter.shape[0]
    for j in range(n):
        quarter[j] = (factors[j] * factors[j + n]) * (factors[j + 2 * n] * factors[j + 3 * n])
    return _log_in_chunks(quarter, chunk // 4)


@kernel(fastmath=REORDER, inner=True)
def _log_in_chunks(factors, chunk):
    if factors.shape[0] <= chunk:  # a loop of one round is slower by a tenth of a sweep
        return log(_product(factors))
    total = 0.0
    for start in range(0, factors.shape[0], chunk):
        total += log(_product(factors[start : start + chunk]))
    return total


@kernel(fastmath=REORDER, inner=True)
def _product(factors):
    product = 1.0
    for j in range(factors.shape[0]):
        product *= factors[j]
    return product


@kernel(fastmath=REORDER, inner=True)
def total_of(values):
    """Sum in double precision."""
    total = 0.0
    for j in range(values.shape[0]):
        total += values[j]
    return total


@kernel(fastmath=REORDER, inner=True)
def incoming(e, s, p, q, r):
    """Messages from the hidden units."""
    for j in range(r.shape[0]):
        t = s[j] * q[j]
        r[j] = (t + e[j] * p[j]) / (t + p[j])


@kernel(fastmath=REORDER, inner=True)
def outgoing(e, r, yes, no, s, product):
    """Messages back to the hidden units, and products of them over visible units."""
    for j in range(r.shape[0]):
        off = r[j] * no
        new = (off + e[j] * yes) / (off + yes)
        s[j] = new
        product[j] *= new


@kernel(fastmath=REORDER, inner=True)
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


@kernel(fastmath=REORDER, inner=True)
def pair_ratios(r, yes, no):
    """Normalisers of the beliefs of pairs, relative to those of the messages."""
    for j in range(r.shape[0]):
        r[j] = no + yes / r[j]


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
def from_off(e, p, q, r):
    """Messages of mixed-product from the hidden units to one that was decoded as 0."""
    for j in range(r.shape[0]):
        r[j] = q[j] + e[j] * p[j]


@kernel(fastmath=REORDER, inner=True)
def from_on(e, p, q, r):
    """The same to one that was decoded as 1, inverted and without exp(sum of its weights)."""
    for j in range(r.shape[0]):
        r[j] = e[j] * q[j] + p[j]
