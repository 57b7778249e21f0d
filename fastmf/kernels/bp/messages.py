"""Arguments of belief propagation in RBMs, messages of a visible unit, and their products.

Notation as in `fastmf.kernels.bp.belief_propagation`: e = exp(W), s and r the messages to and from
the hidden units as ratios m(1) / m(0), (p, q) and (P, Q) the beliefs of the hidden and visible
units; for max-product W, log s and log r, and cavity log-odds. These functions are merged into the
blocks of a sweep, which may reorder their sums and products; only `max_message` is not.

With the numerators n = s q + e p and the denominators d = s q + p of the messages r = n / d to a
visible unit, two products over hidden units are needed, for a few visible units at once,

    of messages      prod r = prod n / prod d
    of normalisers   prod (Q + P / r) = prod (n Q + d P) / prod n

Numerators and denominators are multiplied separately, so that there is no division for each pair of
units, and no message is stored. After a limited number of factors, before a product could leave the
range of float64, its logarithm is taken.
"""

import math
from typing import NamedTuple

import numpy as np

from fastmf._jit.argument_types import Bool, Float64, Int64, Real
from fastmf._jit.intrinsics import larger, row, smaller, widest_vectors
from fastmf._jit.kernel import REORDER, kernel
from fastmf.special import log_of_normal

# Visible units of a tile, whose beliefs are computed together so that the exponentials vectorise,
# and of a task of `pair_beliefs`.
TILE_UNITS = 16
# Hidden units are padded to a multiple of this: a vector of float32, or two.
PADDING_MULTIPLE = {"sum": 16, "max": 32, "mixed": 16}

# Rows of `BPWorkspaces.tile`.
LOG_ODDS, P, Q, CHANGES, LOGS = range(5)


class BPProblem(NamedTuple):
    """Couplings and fields of {0, 1} units."""

    weights: Real[2]  # (n_visible, n_padded): not read by sum-product; may then have no rows
    # (n_visible, n_padded): exp(weights). Not read by max-product; may then have no rows
    exponentials: Real[2]
    # (n_visible, n_padded): exp(weights / 2), the messages that rows start from. Read by
    # sum-product, if there are fewer entries of messages than rows; may otherwise have no rows
    starts: Real[2]
    row_sums: Float64[1]  # (n_visible,): sums of the rows of `weights`; read by mixed-product only
    visible_field: Float64[2]  # (1 or n_rows, n_visible)
    hidden_field: Float64[2]  # (1 or n_rows, n_padded)


class BPSettings(NamedTuple):
    """Options of the iteration.

    Parameters
    ----------
    algorithm : int
        SUM_PRODUCT, MAX_PRODUCT or MIXED_PRODUCT.
    adaptive, tol, rounding_error, max_iter
        As in `ConvergenceSettings`.
    max_factors : int
        Number of messages to one visible unit whose product is in the range of float64.
    flush_every, log_every : int
        Number of visible units after which the products of their messages to the hidden units are
        moved to float64, and after which their logarithm is taken, a multiple of the first.
    block, bethe, finish, objective, pair_logs, log_products, visible_beliefs,
    hidden_beliefs, add_softplus : int
        Addresses of the functions of `fastmf.kernels.bp.belief_propagation`, 0 for functions that
        the algorithm does not call.
    """

    algorithm: int
    adaptive: bool
    tol: float
    rounding_error: float
    max_iter: int
    max_factors: int
    flush_every: int
    log_every: int
    block: int = 0
    bethe: int = 0
    finish: int = 0
    objective: int = 0
    pair_logs: int = 0
    log_products: int = 0
    visible_beliefs: int = 0
    hidden_beliefs: int = 0
    add_softplus: int = 0


class BPRecord(NamedTuple):
    """Beliefs and convergence record of all rows."""

    visible: Float64[2]  # (n_rows, n_visible): log-odds of the beliefs
    hidden: Float64[2]  # (n_rows, n_padded): log-odds of the beliefs
    # bool (n_rows, n_visible): best assignment of all sweeps, of max- and mixed-product
    best: Bool[2]
    # (n_rows,): log-probability of that assignment plus log Z, with the hidden units maximised
    # (max-product) or summed out (mixed-product)
    objective: Float64[1]
    bethe: Float64[1]  # (n_rows,): Bethe log-partition, of sum-product
    status: Int64[1]  # as in `ConvergenceRecord` (this and the next 7)
    n_iter: Int64[1]
    residual: Float64[1]
    damping: Float64[1]
    min_residual: Float64[1]
    n_stalled: Int64[1]
    limit: Float64[1]
    history: Float64[2]


class BPWorkspaces(NamedTuple):
    """Results and buffers of the blocks of a sweep, with one entry for each worker."""

    # (n_workers, 3, n_padded): p, q and log-odds of the hidden units, in the type of the messages
    beliefs: Real[3]
    # (n_workers, n_blocks, n_padded): sums over a block of the log-messages to each hidden unit
    message_sums: Float64[3]
    # (n_workers, n_blocks or 0, n_padded): sums of the couplings of the units decoded as 1, for
    # max-product only
    decoded_sums: Float64[3]
    # (n_workers, n_blocks): largest change of a belief or message, -1 before the first sweep of a
    # row whose messages are not set; sum of the fields of the units decoded as 1
    change: Float64[2]
    decoded_field: Float64[2]  # (n_workers, n_blocks)
    # (n_workers, TILE_UNITS, n_padded): messages to a tile of visible units, of max-product
    received: Real[3]
    # (n_workers, 5, TILE_UNITS): log-odds of these units, P, Q, the changes of their beliefs, and
    # logarithms of products
    tile: Float64[3]
    # (n_workers, n_padded): products of messages to the hidden units; sums, for max- and
    # mixed-product
    product: Real[2]
    # (n_workers, n_padded): largest change of a message to each hidden unit, relative for
    # sum-product
    message_changes: Real[2]
    # (n_workers, n_padded): products of these products; changes of the beliefs of the hidden units
    product64: Float64[2]


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
    """Update the largest relative changes of messages that `sum_to_hidden` is going to make."""
    (p, q), (high, low), one = hidden, visible, s.dtype.type(1)
    for j in range(s.shape[0]):
        t = s[j] * q[j]
        above, below = (t + e[j] * p[j]) * low, (t + p[j]) * high
        ratio = (above + e[j] * below) / ((above + below) * s[j])
        largest[j] = larger(abs(ratio - one), largest[j])


@kernel(mode="merged")
def sum_to_hidden_damped(e, hidden, visible, damping, new_fraction, s, product):
    """Update as in `sum_to_hidden`, and average new and old messages after normalising both.

    Messages are normalised as messages of spins, s / (sqrt(e) + s), so that damping does not depend
    on which value of a unit is called 1.
    """
    (p, q), (high, low) = hidden, visible
    for j in range(s.shape[0]):
        t = s[j] * q[j]
        above, below = (t + e[j] * p[j]) * low, (t + p[j]) * high
        # Divided at once: with the largest weights, a further product would overflow.
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
    """Return the max-product log-message max(0, w + cavity) - max(0, cavity).

    It is written with -cavity, as w would be lost in rounding where the cavity log-odds are large,
    and compiled apart, as reordered differences would lose w in a sum of messages.
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
    """Set the max-product log-messages from hidden units, given their log-odds; return the sum."""
    zero, total = w.dtype.type(0), 0.0
    for j in range(w.shape[0]):
        message = max_message(w[j], log_s[j] - log_odds[j], zero)
        log_r[j] = message
        total += message
    return total


@kernel(mode="merged")
def max_to_hidden(w, log_r, log_odds, damping, new_fraction, log_s, total):
    """Update the damped max-product log-messages to the hidden units, and add them to `total`."""
    zero = w.dtype.type(0)
    for j in range(w.shape[0]):
        new = new_fraction * max_message(w[j], log_r[j] - log_odds, zero) + damping * log_s[j]
        log_s[j] = new
        total[j] += new


@kernel(mode="merged")
def add_max_changes(w, log_r, log_odds, log_s, largest):
    """Update the largest changes of messages that an undamped `max_to_hidden` is going to make."""
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


@kernel(mode="merged")
def _ratio(e, s, p, q):
    """Return the product of the messages n / d to a visible unit."""
    above, below, half = 1.0, 1.0, e.shape[0] // 2
    for j in range(half):
        k = j + half
        t, u = s[j] * q[j], s[k] * q[k]
        above *= (t + e[j] * p[j]) * (u + e[k] * p[k])
        below *= (t + p[j]) * (u + p[k])
    return above / below


@kernel(mode="merged")
def _normaliser(e, s, p, q, high, low):
    """Return the product of the normalisers (n Q + d P) / n of a visible unit."""
    above, below, half = 1.0, 1.0, e.shape[0] // 2
    for j in range(half):
        k = j + half
        t, u = s[j] * q[j], s[k] * q[k]
        n, m = t + e[j] * p[j], u + e[k] * p[k]
        above *= (n * low + (t + p[j]) * high) * (m * low + (u + p[k]) * high)
        below *= n * m
    return above / below


@kernel(mode="by_address", fastmath=REORDER, views=True)
def pair_logs(e, s, hidden, tile, max_factors, normalisers):
    """Set the logarithms of products over all hidden units, for each visible unit of a tile.

    Arguments are few, as a call by address copies all fields of every array.
    """
    widest_vectors()
    n, real = hidden.shape[0] // 3, e.dtype.type
    n_units = s.shape[0] // n
    logs = row(tile, (LOGS * TILE_UNITS,), n_units)
    products = row(tile, (CHANGES * TILE_UNITS,), n_units)
    for k in range(n_units):
        logs[k] = 0
    for start in range(0, n, max_factors):
        size = smaller(max_factors, n - start)
        p, q = row(hidden, (start,), size), row(hidden, (n + start,), size)
        for k in range(n_units):
            of_e, of_s = row(e, (k * n + start,), size), row(s, (k * n + start,), size)
            if normalisers:
                high, low = real(tile[P * TILE_UNITS + k]), real(tile[Q * TILE_UNITS + k])
                products[k] = _normaliser(of_e, of_s, p, q, high, low)
            else:
                products[k] = _ratio(of_e, of_s, p, q)
        for k in range(n_units):
            logs[k] += log_of_normal(products[k])


@kernel(mode="merged")
def _product(e, first, second):
    """Return the product of first + e second."""
    product, half = 1.0, e.shape[0] // 2
    for j in range(half):
        k = j + half
        product *= (first[j] + e[j] * second[j]) * (first[k] + e[k] * second[k])
    return product


@kernel(mode="by_address", fastmath=REORDER, views=True)
def log_products(settings, e, hidden, visible, tile):
    """Set the logarithms of the products of the mixed-product messages to each unit of a tile.

    A message is r = q + e p to a unit that is decoded as 0. For a unit decoded as 1 the factors are
    e / r = p + e q: the caller subtracts the logarithm of their product from the sum of weights.
    """
    widest_vectors()
    n, n_units = hidden.shape[0] // 3, visible.shape[0]
    logs = row(tile, (LOGS * TILE_UNITS,), n_units)
    products = row(tile, (CHANGES * TILE_UNITS,), n_units)
    for k in range(n_units):
        logs[k] = 0
    for start in range(0, n, settings.max_factors):
        size = smaller(settings.max_factors, n - start)
        for k in range(n_units):
            is_one = np.int64(visible[k] > 0)
            first = row(hidden, ((1 - is_one) * n + start,), size)
            second = row(hidden, (is_one * n + start,), size)
            products[k] = _product(row(e, (k * n + start,), size), first, second)
        for k in range(n_units):
            logs[k] += log_of_normal(products[k])
