"""Relaxed belief propagation: messages between all coupled pairs, one row at a time.

A message is a mean and a variance. The messages into a layer lie in a matrix (sources, units); a
visit replaces each by the answer of its unit to its source, so that no second matrix is needed, and
turns the matrix over. In an RBM the layers take turns; a layer coupled to itself is visited twice.
"""

from typing import NamedTuple

import numpy as np

from fastmf._numba import fetch_and_increment, kernel, not_inlined
from fastmf.kernels.vocabulary import (
    CONVERGED,
    DIVERGED,
    OUT_OF_SWEEPS,
    RUNNING,
    STRONGEST_DAMPING,
    WINDOW,
)
from fastmf.priors._protocol import tilted_log_partition, tilted_moments

_TILE = 16


class Side(NamedTuple):
    """What a visit knows of the layer it updates.

    Parameters
    ----------
    prior : unit prior
    couplings : array of shape (n_source, n_units)
    start, source : int
        Position of the layer's first unit, and of the first unit that it is coupled to.
    """

    prior: tuple
    couplings: np.ndarray
    start: int
    source: int


class Course(NamedTuple):
    """How to sweep: as in `fastmf.kernels.vocabulary.Settings`, damping being that of fields."""

    damping: float
    adaptive: bool
    tol: float
    max_iter: int
    resolution: float


@kernel(inner=True)
def _turn_over(matrix, out):
    """Set out to the transposed matrix, in tiles that stay in the cache."""
    n, m = matrix.shape
    for first in range(0, n, _TILE):
        for second in range(0, m, _TILE):
            for i in range(first, min(first + _TILE, n)):
                for j in range(second, min(second + _TILE, m)):
                    out[j, i] = matrix[i, j]


@kernel(inner=True)
def _fields(side, mean, var, field, precision, b, a):
    """The whole tilt of each unit by the messages into it and from outside."""
    couplings = side.couplings
    n_source, n_units = couplings.shape
    for i in range(n_units):
        b[i] = field[i]
        a[i] = precision[i]
    for k in range(n_source):
        w, mean_k, var_k = couplings[k], mean[k], var[k]
        for i in range(n_units):
            b[i] += w[i] * mean_k[i]
            a[i] -= w[i] * w[i] * var_k[i]


@kernel(inner=True)
def _cavities(side, k, mean, var, b, a, cavity_b, cavity_a):
    """The tilt of each unit without the message from source `k`."""
    w, mean_k, var_k = side.couplings[k], mean[k], var[k]
    for i in range(w.shape[0]):
        cavity_b[i] = b[i] - w[i] * mean_k[i]
        cavity_a[i] = a[i] + w[i] * w[i] * var_k[i]


@kernel(inner=True)
def _visit(side, messages, others, field, precision, damping, state, new, cavity):
    """Update one layer; returns the largest change of a mean, and whether all are finite."""
    not_inlined()
    n_source, n_units = side.couplings.shape
    size = n_source * n_units
    mean = messages[0, :size].reshape(n_source, n_units)
    var = messages[1, :size].reshape(n_source, n_units)
    first, last = side.start, side.start + n_units
    new_b, new_a = new[0, :n_units], new[1, :n_units]
    new_mean, new_var = new[2, :n_units], new[3, :n_units]
    old_mean, b, a = state[0, first:last], state[2, first:last], state[3, first:last]
    _fields(side, mean, var, field[first:last], precision[first:last], new_b, new_a)
    zero = np.int64(0)
    tilted_moments(side.prior, zero, new_b, new_a, new_mean, new_var)
    change, finite = 0 * b[0], True
    for i in range(n_units):
        change = max(change, abs(new_mean[i] - old_mean[i]))
        finite = finite and np.isfinite(new_mean[i]) and np.isfinite(new_var[i])
        old_mean[i] = new_mean[i]
        state[1, first + i] = new_var[i]
        b[i] = damping * b[i] + (1 - damping) * new_b[i]
        a[i] = damping * a[i] + (1 - damping) * new_a[i]
    cavity_b, cavity_a = cavity[0, :n_units], cavity[1, :n_units]
    for k in range(n_source):
        _cavities(side, k, mean, var, b, a, cavity_b, cavity_a)
        tilted_moments(side.prior, zero, cavity_b, cavity_a, mean[k], var[k])
    _turn_over(mean, others[0, :size].reshape(n_units, n_source))
    _turn_over(var, others[1, :size].reshape(n_units, n_source))
    return change, finite


@kernel(inner=True)
def _bethe(side, messages, field, precision, new, cavity):
    """The part of a layer in Eq. 65: log Z_i, less half of log Z_i - log Z_i->j for all j."""
    not_inlined()
    n_source, n_units = side.couplings.shape
    size = n_source * n_units
    mean = messages[0, :size].reshape(n_source, n_units)
    var = messages[1, :size].reshape(n_source, n_units)
    b, a = new[0, :n_units], new[1, :n_units]
    last = side.start + n_units
    _fields(side, mean, var, field[side.start : last], precision[side.start : last], b, a)
    zero = np.int64(0)
    whole = tilted_log_partition(side.prior, zero, b, a)
    total = whole
    for k in range(n_source):
        _cavities(side, k, mean, var, b, a, cavity[0, :n_units], cavity[1, :n_units])
        without = tilted_log_partition(side.prior, zero, cavity[0, :n_units], cavity[1, :n_units])
        total -= 0.5 * (whole - without)
    return total


@kernel
def relaxed_bp(first, second, course, field, precision, queue, record, log_partition):
    """Sweep the rows in the queue to fixed points.

    Parameters
    ----------
    first, second : Side
        The layers in the order in which they are visited; the same one twice if it is coupled to
        itself.
    course : Course
    field, precision : array of shape (n_rows, n_units) or (1, n_units)
        Tilt from outside.
    queue : int64 array of shape (1,)
        Next row that nobody has taken; shared by all threads that call this.
    record : Record
    log_partition : float64 array of shape (n_rows,)
        Filled with the Bethe estimate.
    """
    n_rows, n_units = record.state.shape[1:]
    dtype = record.state.dtype
    n_messages = first.couplings.size
    messages, others = np.zeros((2, n_messages), dtype), np.zeros((2, n_messages), dtype)
    state = np.zeros((4, n_units), dtype)
    new, cavity = np.zeros((4, n_units), dtype), np.zeros((2, n_units), dtype)
    row = fetch_and_increment(queue)
    while row < n_rows:
        outside_b, outside_a = field[row % len(field)], precision[row % len(precision)]
        n_source, n_here = first.couplings.shape
        for k in range(n_source):
            for i in range(n_here):
                messages[0, k * n_here + i] = record.state[0, row, first.source + k]
                messages[1, k * n_here + i] = record.state[1, row, first.source + k]
        for plane in range(4):
            for i in range(n_units):
                state[plane, i] = record.state[plane, row, i]
        status, sweep, damping = RUNNING, 0, dtype.type(course.damping)
        best, before, change = np.inf, np.inf, 0 * state[0, 0]
        while status == RUNNING:
            # Before the first sweep there are no old fields to keep a share of.
            share = damping if sweep > 0 else 0 * damping
            change, finite = _visit(
                first, messages, others, outside_b, outside_a, share, state, new, cavity
            )
            change_2, finite_2 = _visit(
                second, others, messages, outside_b, outside_a, share, state, new, cavity
            )
            change, finite = max(change, change_2), finite and finite_2
            if len(record.history):
                record.history[row, sweep] = change
            sweep += 1
            top = 0 * change
            for i in range(n_units):
                top = max(top, abs(state[0, i]))
            if not finite:
                status = DIVERGED
            elif change <= max(course.tol, 4 * course.resolution * top):
                status = CONVERGED
            elif sweep == course.max_iter:
                status = OUT_OF_SWEEPS
            best = min(best, change)
            if sweep % WINDOW == 0:
                if course.adaptive and best > 0.7 * before:
                    damping = min((1 + damping) / 2, dtype.type(STRONGEST_DAMPING))
                before, best = best, np.inf
        for plane in range(4):
            for i in range(n_units):
                record.state[plane, row, i] = state[plane, i]
        record.status[row], record.n_iter[row], record.residual[row] = status, sweep, change
        if status != DIVERGED:
            total = _bethe(first, messages, outside_b, outside_a, new, cavity)
            _visit(first, messages, others, outside_b, outside_a, 0 * damping, state, new, cavity)
            total += _bethe(second, others, outside_b, outside_a, new, cavity)
            # A layer that was visited twice was counted twice.
            log_partition[row] = total if first.start != second.start else 0.5 * total
        row = fetch_and_increment(queue)
