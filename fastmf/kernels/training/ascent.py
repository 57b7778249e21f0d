"""One step of gradient ascent on a matrix of couplings W, in one pass over it.

With the gradient G, offsets m, l of the units below and above, and gradients dv, dh by their
fields,

    G <- G - l2 W - l1 S - (m dh' + dv l')
    velocity <- momentum velocity + rate G
    W <- W + velocity

S is a subgradient of the absolute values of the new W, between -1 and 1 where they are 0. So W is
the soft threshold, by rate l1, of what it would be without S. Within preconditioned gradients S is
the sign of the old W, for which W does not become 0.
"""

from typing import NamedTuple

from fastmf._jit.intrinsics import fetch_and_increment, larger, row, smaller
from fastmf._jit.kernel import REORDER, kernel
from fastmf.kernels.linear.copies import add_multiple, set_to_zero


class AscentStep(NamedTuple):
    """Step size, momentum and weight decay."""

    rate: float  # learning rate
    momentum: float  # weight of the last step in this one
    l2: float  # weight decay: l2 W + l1 S is subtracted from the gradient (this and the next)
    l1: float


@kernel(mode="merged")
def finish_gradient(weights, gradient, decay, below, above):
    """Subtract weight decay, and what the fields account for, from the gradient of one unit."""
    dtype = weights.dtype.type
    l2, l1, one, zero = dtype(decay[0]), dtype(decay[1]), dtype(1), dtype(0)
    (offset, field_gradient), (offsets, field_gradients) = below, above
    for j in range(weights.shape[0]):
        weight = weights[j]
        sign = one if weight > 0 else (-one if weight < 0 else zero)
        g = gradient[j] - (l2 * weight + l1 * sign)
        gradient[j] = g - (offset * field_gradients[j] + field_gradient * offsets[j])


@kernel(mode="merged")
def ascend_row(weights, gradient, velocity, step, offsets):
    """Move the couplings of one unit along their gradient, from which l1 S is subtracted.

    Notes
    -----
    In two loops: LLVM makes no vectors of one that would have to compare more than a few addresses
    first.
    """
    dtype = weights.dtype.type
    rate, momentum, threshold = dtype(step[0]), dtype(step[1]), dtype(step[0] * step[2])
    zero, inverse = dtype(0), dtype(1 / step[0] if step[0] > 0 else 0)
    gradient_dot = squared_norm = zero
    for j in range(weights.shape[0]):
        change = momentum * velocity[j] + rate * gradient[j]
        weight = weights[j] + change
        decay = larger(-threshold, smaller(threshold, weight))
        # Selected, as a rounded difference need not be 0.
        weight = zero if abs(weight) <= threshold else weight - decay
        weights[j], velocity[j] = weight, change - decay
        gradient[j] -= inverse * decay
        squared_norm += weight * weight
    for j in range(weights.shape[0]):
        gradient_dot += gradient[j] * offsets[j]
    return gradient_dot, squared_norm


@kernel(fastmath=REORDER, views=True)
def ascend(weights, gradient, velocity, settings, centring, width, queue, sums):
    """Take one step of gradient ascent with momentum, weight decay and centring."""
    (n_below, n), (below, above), (row_sums, offset_products) = weights.shape, centring, sums
    step, decay = (settings.rate, settings.momentum, settings.l1), (settings.l2, 0.0)
    of_above, task = (row(above, (0, 0), n), row(above, (1, 0), n)), fetch_and_increment(queue)
    while task < offset_products.shape[0]:
        products = row(offset_products, (task, 0), n)
        set_to_zero(products)
        for i in range(task * width, smaller((task + 1) * width, n_below)):
            w, g, v = row(weights, (i, 0), n), row(gradient, (i, 0), n), row(velocity, (i, 0), n)
            finish_gradient(w, g, decay, (below[0, i], below[1, i]), of_above)
            row_sums[0, i], row_sums[1, i] = ascend_row(w, g, v, step, of_above[0])
            add_multiple(below[0, i], g, products)
        task = fetch_and_increment(queue)
