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

from typing import NamedTuple

import numpy as np

from fastmf._numba import REORDER, fetch_and_increment, kernel, not_inlined
from fastmf._outcomes import CONVERGED, DIVERGED, OUT_OF_ITERATIONS, RUNNING
from fastmf.kernels.mean_field_types import MAX_DAMPING, WINDOW_SWEEPS
from fastmf.priors._protocol import tilted_log_partition, tilted_moments
from fastmf.special import constant

# Sources whose messages are computed together, so that transposing them writes whole cache lines.
TILE_SOURCES = 16


class LayerView(NamedTuple):
    """One layer of units with its couplings to the units that it receives messages from.

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


class RelaxedBPSettings(NamedTuple):
    """Options as in `mean_field_types.TapSettings`; damping is that of the tilts b and a."""

    damping: float
    adaptive: bool
    tol: float
    max_iter: int
    resolution: float


class RelaxedBPRow(NamedTuple):
    """The row that a worker iterates, and its scratch space.

    Parameters
    ----------
    incoming, outgoing : array of shape (2, n_messages)
        Means and variances of the messages into the first layer of a sweep, and of those from it.
    state : array of shape (4, n_units)
        Mean, variance, and damped tilts b and a.
    tilt : array of shape (2, n_units)
        Tilts b and a of the newest messages, undamped.
    external : tuple of two arrays of shape (n_units,)
        Field and precision.
    scratch : array of shape (4, n_units)
    tile : array of shape (2, TILE_SOURCES, n_units)
        Means and variances of messages before they are transposed.
    """

    incoming: np.ndarray
    outgoing: np.ndarray
    state: np.ndarray
    tilt: np.ndarray
    external: tuple
    scratch: np.ndarray
    tile: np.ndarray


@kernel(inline=True)
def _transpose_into(rows, out, first):
    """Set columns of `out`, from `first` on, to the rows."""
    n, m = rows.shape
    for j in range(m):
        out_j = out[j, first : first + n]
        for i in range(n):
            out_j[i] = rows[i, j]


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


@kernel(inline=True)
def _update_marginals(layer, damping, row):
    """Marginal moments of a layer, and its damped tilts, unless moments do not exist.

    Returns the largest change of a mean, and whether all moments are finite.
    """
    first, last = layer.start, layer.start + layer.couplings.shape[1]
    new_b, new_a = row.tilt[0, first:last], row.tilt[1, first:last]
    new_mean, new_var = row.scratch[0, : last - first], row.scratch[1, : last - first]
    mean, var = row.state[0, first:last], row.state[1, first:last]
    b, a = row.state[2, first:last], row.state[3, first:last]
    tilted_moments(layer.prior, np.int64(0), new_b, new_a, new_mean, new_var)
    change, finite = 0 * b[0], True
    for i in range(last - first):
        change = max(change, abs(new_mean[i] - mean[i]))
        finite = finite and np.isfinite(new_mean[i]) and np.isfinite(new_var[i])
    if finite:
        for i in range(last - first):
            mean[i] = new_mean[i]
            var[i] = new_var[i]
            b[i] = damping * b[i] + (1 - damping) * new_b[i]
            a[i] = damping * a[i] + (1 - damping) * new_a[i]
    return change, finite


@kernel(inner=True)
def _update_layer(layer, incoming, outgoing, damping, row):
    """Update marginals and messages of one layer, unless moments do not exist.

    Returns the largest change of a mean, and whether all moments are finite.
    """
    not_inlined()
    change, finite = _update_marginals(layer, damping, row)
    if not finite:
        return change, False
    n_source, n_units = layer.couplings.shape
    size = n_source * n_units
    mean = incoming[0, :size].reshape(n_source, n_units)
    var = incoming[1, :size].reshape(n_source, n_units)
    out_mean = outgoing[0, :size].reshape(n_units, n_source)
    out_var = outgoing[1, :size].reshape(n_units, n_source)
    first, last = layer.start, layer.start + n_units
    b, a = row.state[2, first:last], row.state[3, first:last]
    cavity_b, cavity_a = row.scratch[2, :n_units], row.scratch[3, :n_units]
    field, precision = row.external
    for start in range(0, n_source, TILE_SOURCES):
        n_here = min(TILE_SOURCES, n_source - start)
        for r in range(n_here):
            k, source = start + r, layer.source + start + r
            w, mean_r, var_r = (
                layer.couplings[k],
                row.tile[0, r, :n_units],
                row.tile[1, r, :n_units],
            )
            _cavities(w, mean[k], var[k], b, a, cavity_b, cavity_a)
            tilted_moments(layer.prior, np.int64(0), cavity_b, cavity_a, mean_r, var_r)
            sum_b, sum_a = _tilt_of_messages(w, mean_r, var_r)
            row.tilt[0, source] = field[source] + sum_b
            row.tilt[1, source] = precision[source] + sum_a
        _transpose_into(row.tile[0, :n_here, :n_units], out_mean, start)
        _transpose_into(row.tile[1, :n_here, :n_units], out_var, start)
    return change, True


@kernel(inner=True)
def _bethe_terms(layer, incoming, row):
    """Terms of a layer in the Bethe log-partition (Eq. 65), at undamped tilts."""
    not_inlined()
    n_source, n_units = layer.couplings.shape
    size = n_source * n_units
    mean = incoming[0, :size].reshape(n_source, n_units)
    var = incoming[1, :size].reshape(n_source, n_units)
    first, last = layer.start, layer.start + n_units
    b, a = row.tilt[0, first:last], row.tilt[1, first:last]
    cavity_b, cavity_a = row.scratch[2, :n_units], row.scratch[3, :n_units]
    whole = tilted_log_partition(layer.prior, np.int64(0), b, a)
    total = whole
    for k in range(n_source):
        _cavities(layer.couplings[k], mean[k], var[k], b, a, cavity_b, cavity_a)
        cavity = tilted_log_partition(layer.prior, np.int64(0), cavity_b, cavity_a)
        total -= 0.5 * (whole - cavity)
    return total


@kernel(inner=True)
def _start_row(layer, index, record, row):
    """Start: the messages into a layer are the moments of the units that send them."""
    field, precision = row.external
    n_source, n_units = layer.couplings.shape
    for i in range(row.state.shape[1]):
        row.tilt[0, i], row.tilt[1, i] = field[i], precision[i]
        for plane in range(4):
            row.state[plane, i] = record.state[plane, index, i]
    for k in range(n_source):
        w, source = layer.couplings[k], layer.source + k
        m, v = record.state[0, index, source], record.state[1, index, source]
        for i in range(n_units):
            row.incoming[0, k * n_units + i], row.incoming[1, k * n_units + i] = m, v
            row.tilt[0, layer.start + i] += w[i] * m
            row.tilt[1, layer.start + i] -= w[i] * w[i] * v


@kernel(inner=True)
def _sweep(first, second, damping, row):
    """Update both layers; returns the largest change of a mean, and whether moments are finite."""
    change, finite = _update_layer(first, row.incoming, row.outgoing, damping, row)
    if finite:
        second_change, finite = _update_layer(second, row.outgoing, row.incoming, damping, row)
        change = max(change, second_change)
    return change, finite


@kernel(inner=True)
def _status(change, finite, sweep, settings, mean):
    """Whether a row has ended after so many sweeps, and how."""
    scale = 0 * change
    for i in range(mean.shape[0]):
        scale = max(scale, abs(mean[i]))
    if not finite:
        return DIVERGED
    if change <= max(settings.tol, 4 * settings.resolution * scale):
        return CONVERGED
    return OUT_OF_ITERATIONS if sweep == settings.max_iter else RUNNING


@kernel(inner=True)
def _iterate_row(first, second, settings, index, record, row):
    """Sweep a row until it ends, and store it; returns its status."""
    dtype = record.state.dtype
    status, sweep, damping = RUNNING, 0, dtype.type(settings.damping)
    min_change, last_min_change, change = np.inf, np.inf, 0 * row.state[0, 0]
    while status == RUNNING:
        # Before the first sweep there are no old tilts.
        damping_here = damping if sweep > 0 else 0 * damping
        change, finite = _sweep(first, second, damping_here, row)
        if len(record.history):
            record.history[index, sweep] = change
        sweep += 1
        status = _status(change, finite, sweep, settings, row.state[0])
        min_change = min(min_change, change)
        if sweep % WINDOW_SWEEPS == 0:
            if settings.adaptive and min_change > 0.7 * last_min_change:
                damping = min((1 + damping) / 2, dtype.type(MAX_DAMPING))
            last_min_change, min_change = min_change, np.inf
    for plane in range(4):
        for i in range(row.state.shape[1]):
            record.state[plane, index, i] = row.state[plane, i]
    record.status[index], record.n_iter[index], record.residual[index] = status, sweep, change
    return status


@kernel
def relaxed_bp(first, second, settings, field, precision, queue, record, log_partition):
    """Iterate the rows in the queue to fixed points.

    Parameters
    ----------
    first, second : LayerView
        The layers in the order of their updates; the same one twice if it is coupled to itself.
    settings : RelaxedBPSettings
    field, precision : array of shape (n_rows, n_units) or (1, n_units)
        External tilt.
    queue : int64 array of shape (1,)
        Next row not taken yet; shared by all threads that call this.
    record : MeanFieldRecord
    log_partition : float64 array of shape (n_rows,)
        Filled with the Bethe estimate.
    """
    n_rows, n_units = record.state.shape[1:]
    dtype = record.state.dtype
    n_messages = first.couplings.size
    incoming, outgoing = np.zeros((2, n_messages), dtype), np.zeros((2, n_messages), dtype)
    state = np.zeros((4, n_units), dtype)
    tilt, scratch = np.zeros((2, n_units), dtype), np.zeros((4, n_units), dtype)
    tile = np.zeros((2, TILE_SOURCES, n_units), dtype)
    index = fetch_and_increment(queue)
    while index < n_rows:
        external = field[index % len(field)], precision[index % len(precision)]
        row = RelaxedBPRow(incoming, outgoing, state, tilt, external, scratch, tile)
        _start_row(first, index, record, row)
        if _iterate_row(first, second, settings, index, record, row) != DIVERGED:
            total = _bethe_terms(first, incoming, row)
            _update_layer(first, incoming, outgoing, dtype.type(0), row)
            total += _bethe_terms(second, outgoing, row)
            # A layer that is updated twice is counted twice.
            log_partition[index] = total if first.start != second.start else 0.5 * total
        index = fetch_and_increment(queue)
