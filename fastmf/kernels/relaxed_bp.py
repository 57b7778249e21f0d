"""Relaxed belief propagation: messages between all coupled pairs, one row at a time.

A message is a mean and a variance. The messages into a layer lie in a matrix (sources, units); a
visit fills the other matrix, (units, sources), with the answer of each unit to each source, and
adds them up to the tilt of each source. In an RBM the layers take turns; a layer coupled to itself
is visited twice.
"""

from typing import NamedTuple

import numpy as np

from fastmf._numba import REORDER, fetch_and_increment, kernel, not_inlined
from fastmf._outcomes import CONVERGED, DIVERGED, OUT_OF_ITERATIONS, RUNNING
from fastmf.kernels.mean_field_types import STRONGEST_DAMPING, WINDOW
from fastmf.priors._protocol import tilted_log_partition, tilted_moments
from fastmf.special import constant

# Sources that are answered together, so that whole lines of the cache are turned over.
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
    """How to sweep: as `mean_field_types.Settings`, with damping of the fields."""

    damping: float
    adaptive: bool
    tol: float
    max_iter: int
    resolution: float


@kernel(inline=True)
def _turn_over(rows, out, first):
    """Set some columns of out to the rows."""
    n, m = rows.shape
    for j in range(m):
        out_j = out[j, first : first + n]
        for i in range(n):
            out_j[i] = rows[i, j]


@kernel(inline=True, fastmath=REORDER)
def _pull(w, mean, var):
    """What messages do together to the tilt of the unit that they go to."""
    b, a = constant(0.0, w[0]), constant(0.0, w[0])
    for i in range(w.shape[0]):
        b += w[i] * mean[i]
        a -= w[i] * w[i] * var[i]
    return b, a


@kernel(inline=True)
def _cavities(w, mean, var, b, a, cavity_b, cavity_a):
    """The tilt of each unit without the message from one source."""
    for i in range(w.shape[0]):
        cavity_b[i] = b[i] - w[i] * mean[i]
        cavity_a[i] = a[i] + w[i] * w[i] * var[i]


@kernel(inner=True)
def _visit(side, messages, others, tilt, field, precision, damping, state, scratch, answers):
    """Update one layer, unless moments do not exist.

    Returns the largest change of a mean, and whether all moments are finite.
    """
    not_inlined()
    n_source, n_units = side.couplings.shape
    size = n_source * n_units
    mean = messages[0, :size].reshape(n_source, n_units)
    var = messages[1, :size].reshape(n_source, n_units)
    to_mean = others[0, :size].reshape(n_units, n_source)
    to_var = others[1, :size].reshape(n_units, n_source)
    first, last = side.start, side.start + n_units
    new_b, new_a = tilt[0, first:last], tilt[1, first:last]
    new_mean, new_var = scratch[0, :n_units], scratch[1, :n_units]
    old_mean, b, a = state[0, first:last], state[2, first:last], state[3, first:last]
    zero = np.int64(0)
    tilted_moments(side.prior, zero, new_b, new_a, new_mean, new_var)
    change, finite = 0 * b[0], True
    for i in range(n_units):
        change = max(change, abs(new_mean[i] - old_mean[i]))
        finite = finite and np.isfinite(new_mean[i]) and np.isfinite(new_var[i])
    if not finite:
        return change, False
    for i in range(n_units):
        old_mean[i] = new_mean[i]
        state[1, first + i] = new_var[i]
        b[i] = damping * b[i] + (1 - damping) * new_b[i]
        a[i] = damping * a[i] + (1 - damping) * new_a[i]
    cavity_b, cavity_a = scratch[2, :n_units], scratch[3, :n_units]
    for start in range(0, n_source, _TILE):
        n_here = min(_TILE, n_source - start)
        for r in range(n_here):
            k, source = start + r, side.source + start + r
            w, mean_r, var_r = side.couplings[k], answers[0, r, :n_units], answers[1, r, :n_units]
            _cavities(w, mean[k], var[k], b, a, cavity_b, cavity_a)
            tilted_moments(side.prior, zero, cavity_b, cavity_a, mean_r, var_r)
            pull_b, pull_a = _pull(w, mean_r, var_r)
            tilt[0, source] = field[source] + pull_b
            tilt[1, source] = precision[source] + pull_a
        _turn_over(answers[0, :n_here, :n_units], to_mean, start)
        _turn_over(answers[1, :n_here, :n_units], to_var, start)
    return change, True


@kernel(inner=True)
def _bethe(side, messages, tilt, scratch):
    """The part of a layer in Eq. 65: log Z_i, less half of log Z_i - log Z_i->j for all j."""
    not_inlined()
    n_source, n_units = side.couplings.shape
    size = n_source * n_units
    mean = messages[0, :size].reshape(n_source, n_units)
    var = messages[1, :size].reshape(n_source, n_units)
    first, last = side.start, side.start + n_units
    b, a = tilt[0, first:last], tilt[1, first:last]
    without_b, without_a = scratch[2, :n_units], scratch[3, :n_units]
    zero = np.int64(0)
    whole = tilted_log_partition(side.prior, zero, b, a)
    total = whole
    for k in range(n_source):
        _cavities(side.couplings[k], mean[k], var[k], b, a, without_b, without_a)
        without = tilted_log_partition(side.prior, zero, without_b, without_a)
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
    tilt, scratch = np.zeros((2, n_units), dtype), np.zeros((4, n_units), dtype)
    answers = np.zeros((2, _TILE, n_units), dtype)
    row = fetch_and_increment(queue)
    while row < n_rows:
        outside_b, outside_a = field[row % len(field)], precision[row % len(precision)]
        n_source, n_here = first.couplings.shape
        for i in range(n_units):
            tilt[0, i], tilt[1, i] = outside_b[i], outside_a[i]
        for k in range(n_source):
            w, source = first.couplings[k], first.source + k
            m, v = record.state[0, row, source], record.state[1, row, source]
            for i in range(n_here):
                messages[0, k * n_here + i], messages[1, k * n_here + i] = m, v
                tilt[0, first.start + i] += w[i] * m
                tilt[1, first.start + i] -= w[i] * w[i] * v
        for plane in range(4):
            for i in range(n_units):
                state[plane, i] = record.state[plane, row, i]
        status, sweep, damping = RUNNING, 0, dtype.type(course.damping)
        best, before, change = np.inf, np.inf, 0 * state[0, 0]
        while status == RUNNING:
            # Before the first sweep there are no old fields to keep a share of.
            share = damping if sweep > 0 else 0 * damping
            change, finite = _visit(
                first, messages, others, tilt, outside_b, outside_a, share, state, scratch, answers
            )
            if finite:
                more, finite = _visit(
                    *(second, others, messages, tilt, outside_b, outside_a),
                    *(share, state, scratch, answers),
                )
                change = max(change, more)
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
                status = OUT_OF_ITERATIONS
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
            total = _bethe(first, messages, tilt, scratch)
            share = 0 * damping
            _visit(
                first, messages, others, tilt, outside_b, outside_a, share, state, scratch, answers
            )
            total += _bethe(second, others, tilt, scratch)
            # A layer that was visited twice was counted twice.
            log_partition[row] = total if first.start != second.start else 0.5 * total
        row = fetch_and_increment(queue)
