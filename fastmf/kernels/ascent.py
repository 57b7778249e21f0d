"""One step of gradient ascent on a matrix of couplings W, in one pass over it.

With the gradient G, offsets m, l of the units below and above, and gradients dv, dh by their
fields,

    G <- G - (l2 W + l1 sign(W)) - (m dh' + dv l')
    velocity <- momentum velocity + rate G
    W <- W + velocity
"""

from typing import NamedTuple

from fastmf._intrinsics import fetch_and_increment, row, smaller
from fastmf._numba import REORDER, kernel

# Rows of the matrix in one task of a worker.
TASK_ROWS = 24


class AscentStep(NamedTuple):
    """Step size, momentum and weight decay.

    Parameters
    ----------
    rate : float
        Learning rate.
    momentum : float
        Weight of the last step in this one.
    l2, l1 : float
        Weight decay: l2 W + l1 sign(W) is subtracted from the gradient.
    """

    rate: float
    momentum: float
    l2: float
    l1: float


@kernel(merged=True)
def finish_gradient(weights, gradient, decay, below, above):
    """Subtract weight decay, and what the fields account for, from the gradient of one unit.

    Parameters
    ----------
    weights, gradient : array of shape (n_above,)
    decay : tuple of two numbers
        l2 and l1.
    below : tuple of two numbers
        Offset of the unit, and gradient by its field.
    above : tuple of two arrays of shape (n_above,)
        The same of the units above.
    """
    dtype = weights.dtype.type
    l2, l1, one, zero = dtype(decay[0]), dtype(decay[1]), dtype(1), dtype(0)
    (offset, field_gradient), (offsets, field_gradients) = below, above
    for j in range(weights.shape[0]):
        weight = weights[j]
        sign = one if weight > 0 else (-one if weight < 0 else zero)
        g = gradient[j] - (l2 * weight + l1 * sign)
        gradient[j] = g - (offset * field_gradients[j] + field_gradient * offsets[j])


@kernel(merged=True)
def ascend_row(weights, gradient, velocity, rate, momentum, offsets):
    """Move the couplings of one unit along their gradient.

    Returns the inner product of the gradient with the offsets above, and the squared norm of the
    couplings. In two loops: LLVM makes no vectors of one that would have to compare more than a few
    addresses first.
    """
    dtype = weights.dtype.type
    rate, momentum = dtype(rate), dtype(momentum)
    gradient_dot = squared_norm = dtype(0)
    for j in range(weights.shape[0]):
        gradient_dot += gradient[j] * offsets[j]
    for j in range(weights.shape[0]):
        step = momentum * velocity[j] + rate * gradient[j]
        velocity[j] = step
        weight = weights[j] + step
        weights[j] = weight
        squared_norm += weight * weight
    return gradient_dot, squared_norm


@kernel(fastmath=REORDER, views=True)
def ascend(weights, gradient, velocity, settings, centring, queue, row_sums, out):
    """Take one step of gradient ascent with momentum, weight decay and centring.

    Parameters
    ----------
    weights : array of shape (n_below, n_above)
    gradient, velocity : array of shape (n_below, n_above)
        Changed in place: the gradient to that with weight decay and centring, the velocity to the
        step taken.
    settings : AscentStep
    centring : tuple of two arrays of shape (2, n_below) and (2, n_above)
        Offsets of the units below and above, and gradients by their fields: see
        `fastmf.learning.training.centring`.
    queue : int64 array of shape (1,)
        Next group of rows not taken yet; shared by all threads that call this.
    row_sums : array of shape (2, n_below)
        Filled with the inner products of the gradient with the offsets above, and with the squared
        norms of the rows of the new weights.
    out : array of shape (n_below, n_above)
        Filled with the new weights.
    """
    n_below, n = weights.shape
    (below, above), first = centring, fetch_and_increment(queue) * TASK_ROWS
    rate, momentum, decay = settings.rate, settings.momentum, (settings.l2, settings.l1)
    while first < n_below:
        for i in range(first, smaller(first + TASK_ROWS, n_below)):
            old, new = row(weights, (i, 0), n), row(out, (i, 0), n)
            for j in range(n):
                new[j] = old[j]
            g, last = row(gradient, (i, 0), n), row(velocity, (i, 0), n)
            of_below = below[0, i], below[1, i]
            of_above = row(above, (0, 0), n), row(above, (1, 0), n)
            finish_gradient(new, g, decay, of_below, of_above)
            row_sums[0, i], row_sums[1, i] = ascend_row(new, g, last, rate, momentum, of_above[0])
        first = fetch_and_increment(queue) * TASK_ROWS
