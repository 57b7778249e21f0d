"""Relaxed belief propagation: Gaussian messages between all coupled pairs, one row at a time.

The message from unit j to unit i is a mean and a variance, the moments of j without the message of
i (its cavity):

    b_i = field_i + sum_j W_ij m_ji          b_ij = b_i - W_ij m_ji
    a_i = precision_i - sum_j W_ij^2 v_ji    a_ij = a_i + W_ij^2 v_ji
    (m_i, v_i) = moments(b_i, a_i)           (m_ij, v_ij) = moments(b_ij, a_ij)
    log Z = sum_i log Z_i - 1/2 sum_i sum_j (log Z_i - log Z_ij)

where index ij is the message from i to j, and log Z_i, log Z_ij are those of unit i under the tilts
(b_i, a_i) and (b_ij, a_ij). The messages into a layer are a matrix (sources, units); an update
fills the matrix (units, sources) of the messages that the layer sends. The layers of an RBM take
turns; a layer coupled to itself is updated twice in a sweep.
"""

from functools import cache
from typing import NamedTuple

import numba
import numpy as np

from fastmf._intrinsics import fetch_and_increment, larger, row, smaller
from fastmf._numba import REORDER, address_of, call, kernel
from fastmf._outcomes import CONVERGED, DIVERGED, OUT_OF_ITERATIONS, RUNNING
from fastmf.kernels.mean_field_types import MAX_DAMPING, WINDOW_SWEEPS
from fastmf.kernels.work import new_work
from fastmf.priors._compiled import tilted_log_partition, tilted_moments
from fastmf.special import constant

# Sources whose messages are computed together, so that transposing them writes whole cache lines.
TILE_SOURCES = 16


class LayerView(NamedTuple):
    """One layer of units with its couplings to the units that it receives messages from.

    Parameters
    ----------
    units : Units
    couplings : array of shape (n_source, n_units)
    start, source : int
        Position of the layer's first unit, and of the first unit that it is coupled to.
    """

    units: np.ndarray
    couplings: np.ndarray
    start: int
    source: int


class RelaxedBPSettings(NamedTuple):
    """Options as in `mean_field_types.TapSettings`; damping is that of the tilts b and a."""

    damping: float
    adaptive: bool
    tol: float
    max_iter: int
    resolution: float
    update: int


class RelaxedBPRow(NamedTuple):
    """The row that a worker iterates, and its scratch space.

    Parameters
    ----------
    messages : array of shape (4, n_messages)
        Means and variances of the messages into the first layer of a sweep, and of those from it.
    state : array of shape (4, n_units)
        Mean, variance, and damped tilts b and a.
    tilt : array of shape (2, n_units)
        Tilts b and a of the newest messages, undamped.
    external : array of shape (2, n_units)
        Field and precision.
    scratch : array of shape (4, n_units)
    tile : array of shape (2, TILE_SOURCES, n_units)
        Means and variances of messages before they are transposed.
    measures : float64 array of shape (2,)
        Of the last update: the largest change of a mean, and 1 if all moments are finite.
    """

    messages: np.ndarray
    state: np.ndarray
    tilt: np.ndarray
    external: np.ndarray
    scratch: np.ndarray
    tile: np.ndarray
    measures: np.ndarray


@kernel(inline=True, fastmath=REORDER)
def _tilt_of_messages(w, mean, var):
    """What all messages to a unit add to its tilt."""
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


@kernel(merged=True)
def _update_marginals(layer, damping, work):
    """Marginal moments of a layer, and its damped tilts, unless moments do not exist."""
    first, n = layer.start, layer.couplings.shape[1]
    new_b, new_a = row(work.tilt, (0, first), n), row(work.tilt, (1, first), n)
    new_mean, new_var = row(work.scratch, (0, 0), n), row(work.scratch, (1, 0), n)
    mean, var = row(work.state, (0, first), n), row(work.state, (1, first), n)
    b, a = row(work.state, (2, first), n), row(work.state, (3, first), n)
    tilted_moments(layer.units, 0, new_b, new_a, new_mean, new_var)
    change, finite, old = 0 * mean[0], True, mean.dtype.type(damping)
    for i in range(n):
        change = larger(change, abs(new_mean[i] - mean[i]))
        finite = finite and np.isfinite(new_mean[i]) and np.isfinite(new_var[i])
    work.measures[0], work.measures[1] = change, finite
    if finite:
        new = 1 - old
        for i in range(n):
            mean[i], var[i] = new_mean[i], new_var[i]
            b[i] = old * b[i] + new * new_b[i]
            a[i] = old * a[i] + new * new_a[i]


@kernel(merged=True)
def _send_tile(work, outgoing, start, n_here, shape):
    """Transpose the messages to some sources, `n_here` from `start` on, into those of the layer."""
    n_source, n = shape
    for k in range(2 * n):
        plane, j = k // n, k % n
        out = row(work.messages, (outgoing + plane, j * n_source + start), n_here)
        for i in range(n_here):
            out[i] = work.tile[plane, i, j]


@kernel(by_address=True, views=True)
def _update_layer(layer, incoming, damping, work):
    """Update marginals and messages of one layer, unless moments do not exist.

    `incoming` is the plane of the means of the messages into the layer; `work.measures` is filled.
    """
    _update_marginals(layer, damping, work)
    if work.measures[1] == 0:
        return
    n_source, n = layer.couplings.shape
    outgoing = 2 - incoming
    b, a = row(work.state, (2, layer.start), n), row(work.state, (3, layer.start), n)
    cavity_b, cavity_a = row(work.scratch, (2, 0), n), row(work.scratch, (3, 0), n)
    for start in range(0, n_source, TILE_SOURCES):
        n_here = smaller(TILE_SOURCES, n_source - start)
        for r in range(n_here):
            k, source = start + r, layer.source + start + r
            w = row(layer.couplings, (k, 0), n)
            mean, var = (
                row(work.messages, (incoming, k * n), n),
                row(work.messages, (incoming + 1, k * n), n),
            )
            _cavities(w, mean, var, b, a, cavity_b, cavity_a)
            new_mean, new_var = row(work.tile, (0, r, 0), n), row(work.tile, (1, r, 0), n)
            tilted_moments(layer.units, 0, cavity_b, cavity_a, new_mean, new_var)
            sum_b, sum_a = _tilt_of_messages(w, new_mean, new_var)
            work.tilt[0, source] = work.external[0, source] + sum_b
            work.tilt[1, source] = work.external[1, source] + sum_a
        _send_tile(work, outgoing, start, n_here, layer.couplings.shape)


@cache
def update_address(dtype):
    """Address of the compiled update of a layer, for a floating type."""
    wide, tile = np.zeros((0, 0), dtype), np.zeros((0, 0, 0), dtype)
    layer = LayerView(np.zeros(0, np.int64), wide, 0, 0)
    work = RelaxedBPRow(wide, wide, wide, wide, wide, tile, np.zeros(0))
    return address_of(_update_layer, *map(numba.typeof, (layer, 0, 0.0, work)))


@kernel(merged=True)
def _bethe_terms(layer, incoming, work):
    """Terms of a layer in the Bethe log-partition (Eq. 65), at undamped tilts."""
    n_source, n = layer.couplings.shape
    b, a = row(work.tilt, (0, layer.start), n), row(work.tilt, (1, layer.start), n)
    cavity_b, cavity_a = row(work.scratch, (2, 0), n), row(work.scratch, (3, 0), n)
    terms, total, whole = row(work.scratch, (0, 0), n), 0.0, 0.0
    tilted_log_partition(layer.units, 0, b, a, terms)
    for i in range(n):
        whole += terms[i]
    for k in range(n_source):
        mean, var = (
            row(work.messages, (incoming, k * n), n),
            row(work.messages, (incoming + 1, k * n), n),
        )
        w = row(layer.couplings, (k, 0), n)
        _cavities(w, mean, var, b, a, cavity_b, cavity_a)
        tilted_log_partition(layer.units, 0, cavity_b, cavity_a, terms)
        for i in range(n):
            total += terms[i]
    return whole - 0.5 * (n_source * whole - total)


@kernel(merged=True)
def _bethe(layers, settings, work):
    """The Bethe log-partition of a row."""
    total = 0.0
    for k in range(2):
        total += _bethe_terms(layers[k], 2 * k, work)
        if k == 0:
            call(settings.update, (layers[0], 0, 0.0, work))
    # A layer that is updated twice is counted twice.
    return total if layers[0].start != layers[1].start else 0.5 * total


@kernel(merged=True)
def _start_row(layer, index, record, work):
    """Start: the messages into a layer are the moments of the units that send them."""
    n_source, n = layer.couplings.shape
    for i in range(work.state.shape[1]):
        for plane in range(2):
            work.tilt[plane, i] = work.external[plane, i]
        for plane in range(4):
            work.state[plane, i] = record.state[plane, index, i]
    b, a = row(work.tilt, (0, layer.start), n), row(work.tilt, (1, layer.start), n)
    for k in range(n_source):
        w, source = row(layer.couplings, (k, 0), n), layer.source + k
        m, v = record.state[0, index, source], record.state[1, index, source]
        mean, var = row(work.messages, (0, k * n), n), row(work.messages, (1, k * n), n)
        for i in range(n):
            mean[i], var[i] = m, v
            b[i] += w[i] * m
            a[i] -= w[i] * w[i] * v


@kernel(merged=True)
def _status(work, sweep, settings):
    """Whether a row has ended after so many sweeps, and how."""
    change, scale = work.measures[0], 0.0
    for i in range(work.state.shape[1]):
        scale = larger(scale, abs(work.state[0, i]))
    if work.measures[1] == 0:
        return DIVERGED
    if change <= larger(settings.tol, 4 * settings.resolution * scale):
        return CONVERGED
    return OUT_OF_ITERATIONS if sweep == settings.max_iter else RUNNING


@kernel(merged=True)
def _iterate_row(layers, settings, index, record, work):
    """Sweep a row until it ends, and store it; returns its status."""
    status, sweep, damping = RUNNING, np.int64(0), settings.damping
    min_change, last_min_change, change = np.inf, np.inf, 0.0
    while status == RUNNING:
        change = 0.0
        for k in range(2):
            # Before the first sweep there are no old tilts.
            old = damping if sweep > 0 else 0.0
            call(settings.update, (layers[k], 2 * k, old, work))
            change = larger(change, work.measures[0])
            if work.measures[1] == 0:
                break
        work.measures[0] = change
        if len(record.history):
            record.history[index, sweep] = change
        sweep += 1
        status = _status(work, sweep, settings)
        min_change = smaller(min_change, change)
        if sweep % WINDOW_SWEEPS == 0:
            if settings.adaptive and min_change > 0.7 * last_min_change:
                damping = smaller((1 + damping) / 2, MAX_DAMPING)
            last_min_change, min_change = min_change, np.inf
    for plane in range(4):
        for i in range(work.state.shape[1]):
            record.state[plane, index, i] = work.state[plane, i]
    record.status[index], record.n_iter[index], record.residual[index] = status, sweep, change
    return status


def relaxed_bp_work(n_workers, n_units, n_messages, dtype):
    """What `relaxed_bp` needs for so many threads: `RelaxedBPRow`, its arrays with an axis more."""
    shapes = (4, n_messages), (4, n_units), (2, n_units), (2, n_units), (4, n_units)
    parts = (np.empty((n_workers, *shape), dtype) for shape in shapes)
    tile = np.empty((n_workers, 2, TILE_SOURCES, n_units), dtype)
    return new_work(RelaxedBPRow(*parts, tile, np.zeros((n_workers, 2))))


@kernel(views=True)
def relaxed_bp(first, second, settings, field, precision, work, record, log_partition):
    """Iterate the rows in the queue to fixed points.

    Parameters
    ----------
    first, second : LayerView
        The layers in the order of their updates; the same one twice if it is coupled to itself.
    settings : RelaxedBPSettings
    field, precision : array of shape (n_rows, n_units) or (1, n_units)
        External tilt.
    work : Work
        Shared by all threads that call this: see `relaxed_bp_work`. Tasks are rows.
    record : MeanFieldRecord
    log_partition : float64 array of shape (n_rows,)
        Filled with the Bethe estimate.
    """
    n_units, layers = record.state.shape[2], (first, second)
    (messages, state, tilt, external, scratch, tile, measures), queue = work
    w = fetch_and_increment(row(queue, (1,), 1))
    if w >= state.shape[0]:
        return
    here = RelaxedBPRow(
        messages[w], state[w], tilt[w], external[w], scratch[w], tile[w], measures[w]
    )
    index = fetch_and_increment(queue)
    while index < record.state.shape[1]:
        for i in range(n_units):
            here.external[0, i] = field[index % len(field), i]
            here.external[1, i] = precision[index % len(precision), i]
        _start_row(first, index, record, here)
        if _iterate_row(layers, settings, index, record, here) != DIVERGED:
            log_partition[index] = _bethe(layers, settings, here)
        index = fetch_and_increment(queue)
