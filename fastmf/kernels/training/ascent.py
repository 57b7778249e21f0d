"""One step of gradient ascent on a matrix of couplings W, in one pass over it.

With a gradient G = sum_r l_r r_r' + W * sum_s l_s r_s' + A from rows of the units below and above
(`Pairs`), offsets m, l of the units below and above, and gradients dv, dh by their fields,

    G <- G - l2 W - l1 S - (m dh' + dv l')
    velocity <- momentum velocity + rate G
    W <- W + velocity

S is a subgradient of the absolute values of the new W, between -1 and 1 where they are 0. So the
new W is the value without S after soft thresholding by rate l1. In preconditioned gradients S is
the sign of the old W, so that W does not become exactly 0.
"""

from typing import NamedTuple

import numpy as np

from fastmf._common.memory import aligned
from fastmf._jit.intrinsics import fetch_and_increment, larger, row, smaller
from fastmf._jit.kernel import REORDER, kernel
from fastmf.kernels.linear.product import add_multiple, new_work, panel_width, product, set_to_zero


class AscentStep(NamedTuple):
    """Step size, momentum and weight decay."""

    rate: float  # learning rate
    momentum: float  # weight of the last step in this one
    l2: float  # weight decay: l2 W + l1 S is subtracted from the gradient (this and the next)
    l1: float


class Pairs(NamedTuple):
    """Products of units of two layers whose sum over rows is a gradient by their couplings."""

    n_second: int  # number of leading rows whose products are multiplied by the couplings
    lefts: np.ndarray  # (n_rows, n_left)
    rights: np.ndarray  # (n_panels, n_rows, panel_width): packed, times the weights of the rows
    added: np.ndarray  # (n_left, n_right): a gradient to add; or (0, 0)


def ascent_work(shape, dtype, n_workers=1):
    """Allocate work memory of `ascend` for couplings of a shape."""
    width = panel_width(dtype)
    return new_work(aligned((n_workers, 2, width, -(-shape[1] // width) * width), dtype))


@kernel(mode="merged")
def _sum_pairs(address, pairs, weights, first, n_units, memory):
    """Set rows of `memory[0]` to the gradient by the couplings of some units, given by `Pairs`."""
    (n_second, lefts, rights, added), (sums, products) = pairs, (memory[0], memory[1])
    n, start, units = weights.shape[1], np.int64(0), slice(first, first + n_units)
    if n_second < lefts.shape[0]:
        of_rows, packed = lefts[n_second:, units].T, rights[:, n_second:]
        product(address, of_rows, n_units, start, packed, sums, n)
    else:
        for r in range(n_units):
            set_to_zero(row(sums, (r, 0), n))
    if n_second > 0:
        of_rows, packed = lefts[:n_second, units].T, rights[:, :n_second]
        product(address, of_rows, n_units, start, packed, products, n)
        for r in range(n_units):
            w, p = row(weights, (first + r, 0), n), row(products, (r, 0), n)
            total = row(sums, (r, 0), n)
            for j in range(n):
                total[j] += w[j] * p[j]
    if added.shape[0] > 0:
        for r in range(n_units):
            total, more = row(sums, (r, 0), n), row(added, (first + r, 0), n)
            for j in range(n):
                total[j] += more[j]


@kernel(mode="merged")
def finish_gradient(weights, gradient, l2, below, above):
    """Subtract weight decay, and the centring terms, from the gradient of one unit."""
    (offset, field_gradient), (offsets, field_gradients) = below, above
    decay = weights.dtype.type(l2)
    for j in range(weights.shape[0]):
        g = gradient[j] - decay * weights[j]
        gradient[j] = g - (offset * field_gradients[j] + field_gradient * offsets[j])


@kernel(mode="merged")
def ascend_row(weights, gradient, velocity, step, offsets):
    """Move the couplings of one unit along their gradient, from which l1 S is subtracted.

    Notes
    -----
    There are two loops, because LLVM does not vectorise a loop that must first compare many
    addresses.
    """
    dtype = weights.dtype.type
    rate, momentum, threshold = dtype(step[0]), dtype(step[1]), dtype(step[0] * step[2])
    zero, inverse = dtype(0), dtype(1 / step[0] if step[0] > 0 else 0)
    gradient_dot = squared_norm = zero
    for j in range(weights.shape[0]):
        change = momentum * velocity[j] + rate * gradient[j]
        weight = weights[j] + change
        decay = larger(-threshold, smaller(threshold, weight))
        # Select 0 explicitly, as a rounded difference need not be 0.
        weight = zero if abs(weight) <= threshold else weight - decay
        weights[j], velocity[j] = weight, change - decay
        gradient[j] -= inverse * decay
        squared_norm += weight * weight
    for j in range(weights.shape[0]):
        gradient_dot += gradient[j] * offsets[j]
    return gradient_dot, squared_norm


@kernel(mode="merged")
def _square(source, target):
    for k in range(target.shape[0]):
        target[k] = source[k] * source[k]


@kernel(mode="merged")
def _pack(weights, first, n_units, packed):
    """Copy the couplings of a panel of units to the panels of both layers, and square them."""
    (above, squares_above), (below, squares_below) = packed
    n, width = weights.shape[1], above.shape[2]
    for p in range(above.shape[0]):
        n_columns = smaller(width, n - p * width)
        for i in range(first, first + n_units):
            w, copied = row(weights, (i, p * width), n_columns), row(above, (p, i, 0), n_columns)
            for k in range(n_columns):
                copied[k] = w[k]
            if squares_above.shape[0] > 0:
                _square(copied, row(squares_above, (p, i, 0), n_columns))
    if below.shape[0] == 0:
        return
    task = first // width
    panel = below[task]
    for j in range(n):
        for i in range(n_units):
            panel[j, i] = weights[first + i, j]
    if squares_below.shape[0] > 0:
        for j in range(n):
            _square(row(below, (task, j, 0), width), row(squares_below, (task, j, 0), width))


@kernel(fastmath=REORDER, views=True)
def ascend(address, pairs, weights, velocity, settings, centring, packed, work, sums):
    """Take one step of gradient ascent with momentum, weight decay and centring.

    The gradient is given by `Pairs`. Packed couplings and their squares, of the layer above and of
    the layer below, are updated with the weights, unless their arrays have no panels.
    """
    (n_below, n), (below, above), (row_sums, offset_products) = weights.shape, centring, sums
    step, (scratch, queue) = (settings.rate, settings.momentum, settings.l1), work
    of_above = row(above, (0, 0), n), row(above, (1, 0), n)
    worker = fetch_and_increment(row(queue, (1,), 1))
    if worker >= scratch.shape[0]:
        return
    memory, width, task = scratch[worker], scratch.shape[2], fetch_and_increment(queue)
    while task < offset_products.shape[0]:
        products, first = row(offset_products, (task, 0), n), task * width
        n_units = smaller(width, n_below - first)
        _sum_pairs(address, pairs, weights, first, n_units, memory)
        set_to_zero(products)
        for i in range(first, first + n_units):
            w, v = row(weights, (i, 0), n), row(velocity, (i, 0), n)
            g = row(memory, (0, i - first, 0), n)
            finish_gradient(w, g, settings.l2, (below[0, i], below[1, i]), of_above)
            row_sums[0, i], row_sums[1, i] = ascend_row(w, g, v, step, of_above[0])
            add_multiple(below[0, i], g, products)
        _pack(weights, first, n_units, packed)
        task = fetch_and_increment(queue)
