"""One step of gradient ascent on a matrix of couplings, in one pass over it."""

from typing import NamedTuple

from fastmf._numba import REORDER, fetch_and_increment, kernel

# Rows of the matrix that one task of a worker is about.
ROWS = 24


class Ascent(NamedTuple):
    """How far to go, and what pulls back.

    Parameters
    ----------
    rate : float
        Share of the slope in a step.
    momentum : float
        Share of the last step in this one.
    l2, l1 : float
        The slope is followed less l2 W + l1 sign(W).
    """

    rate: float
    momentum: float
    l2: float
    l1: float


@kernel(inline=True, fastmath=REORDER)
def _ascend_row(weights, slope, velocity, how, offset, of_field, offsets, of_fields, out):
    """The couplings of one unit; returns their slope times the offsets, and their squared norm."""
    kind = weights.dtype.type
    rate, momentum = kind(how.rate), kind(how.momentum)
    l2, l1 = kind(how.l2), kind(how.l1)
    one, zero = kind(1), kind(0)
    along = size = zero
    for j in range(weights.shape[0]):
        weight = weights[j]
        sign = one if weight > 0 else (-one if weight < 0 else zero)
        followed = slope[j] - (l2 * weight + l1 * sign)
        followed -= offset * of_fields[j] + of_field * offsets[j]
        slope[j] = followed
        along += followed * offsets[j]
        velocity[j] = momentum * velocity[j] + rate * followed
        out[j] = weight + velocity[j]
        size += out[j] * out[j]
    return along, size


@kernel
def ascend(weights, slope, velocity, how, below, above, queue, out, along, sizes):
    """Move couplings along their slope and on with their velocity, which is then the step made.

    Parameters
    ----------
    weights, out : array of shape (n_below, n_above)
    slope, velocity : array of shape (n_below, n_above)
        Changed in place: the slope to the one that is followed.
    how : Ascent
    below, above : array of shape (2, n_below), (2, n_above)
        The offsets that units are counted from, and the slopes by their fields: see
        `fastmf.learning.training.centring`.
    queue : int64 array of shape (1,)
        Next group of rows that nobody has taken; shared by all threads that call this.
    along : array of shape (n_below,)
        Filled with the slope that is followed times the offsets above.
    sizes : array of shape (n_below,)
        Filled with the squared norms of the rows of `out`.
    """
    n_below = weights.shape[0]
    while True:
        first = fetch_and_increment(queue) * ROWS
        if first >= n_below:
            break
        for i in range(first, min(first + ROWS, n_below)):
            along[i], sizes[i] = _ascend_row(
                *(weights[i], slope[i], velocity[i], how),
                *(below[0, i], below[1, i], above[0], above[1], out[i]),
            )
