"""Relaxed belief propagation: Gaussian messages between all coupled pairs, one row at a time.

The message from unit j to unit i is a mean and a variance: the moments of j under its cavity, the
tilt without the message from i:

    b_i = field_i + sum_j W_ij m_ji          b_ij = b_i - W_ij m_ji
    a_i = precision_i - sum_j W_ij^2 v_ji    a_ij = a_i + W_ij^2 v_ji
    (m_i, v_i) = moments(b_i, a_i)           (m_ij, v_ij) = moments(b_ij, a_ij)
    log Z = sum_i log Z_i - 1/2 sum_i sum_j (log Z_i - log Z_ij)

where ij denotes the message from i to j, and log Z_i, log Z_ij are log-partitions of unit i under
the tilts (b_i, a_i) and (b_ij, a_ij). Messages into a layer are a matrix (sources, units); an
update sets the matrix (units, sources) of the messages that the layer sends. The layers of an RBM
are updated in turn; a layer coupled to itself is updated twice in a sweep.
"""

from functools import cache
from typing import NamedTuple

import numpy as np

from fastmf._jit.argument_types import Float64, Int64, Real, argument_types
from fastmf._jit.intrinsics import fetch_and_increment, larger, row, smaller
from fastmf._jit.kernel import REORDER, address_of, call, kernel
from fastmf._outcomes import (
    CONVERGED,
    DIVERGED,
    MAX_DAMPING,
    MEAN_ROUNDING,
    OUT_OF_ITERATIONS,
    RUNNING,
    SMALLEST_NORMAL,
    VAR_ROUNDING,
    WINDOW_SWEEPS,
)
from fastmf._threads.workers import next_task, stopped
from fastmf.kernels.linear.product import new_work
from fastmf.kernels.mean_field.units import MEAN, VAR, A, B
from fastmf.priors._compiled import tilted_log_partition, tilted_moments

# Number of sources whose messages are computed together, so that transposing them writes whole
# cache lines.
TILE_SOURCES = 16
# Planes of the state of a row after moments and damped tilts: the undamped tilts of the moments.
OWN_B, OWN_A = range(4, 6)
# Measures of a sweep, all before damping: largest changes of a marginal mean, of a mean in
# messages, and of a variance; largest effects on the log-partition (see
# `fastmf.kernels.mean_field.units`); largest absolute mean, or variance up to 1; and 1 if moments
# do not exist.
(
    MARGINAL_CHANGE,
    MEAN_CHANGE,
    VAR_CHANGE,
    MESSAGE_EFFECT,
    MESSAGE_VAR_EFFECT,
    LARGEST_MEAN,
    WITHOUT_MOMENTS,
) = range(7)
N_MEASURES = WITHOUT_MOMENTS + 1


class LayerView(NamedTuple):
    """One layer of units, with its couplings to the units that send messages to it."""

    units: Int64[1]  # Units
    couplings: Real[2]  # (n_source, n_units)
    # Position of the layer's first unit, and of the first unit that it is coupled to (this and the
    # next).
    start: int
    source: int


class RelaxedBPSettings(NamedTuple):
    """Options as in `mean_field_types.TapSettings`; damping applies to the tilts b and a."""

    damping: float
    adaptive: bool
    tol: float
    max_iter: int
    resolution: float
    update: int


class RelaxedBPRow(NamedTuple):
    """The row that a worker iterates, and scratch memory."""

    # (4, n_messages): means and variances of the messages into the first layer of a sweep, and of
    # those from it
    messages: Real[2]
    # (6, n_units): mean, variance, damped tilts b and a, and undamped ones: see the planes above
    state: Real[2]
    tilt: Real[2]  # (2, n_units): tilts b and a of the newest messages, undamped
    external: Real[2]  # (2, n_units): field and precision
    scratch: Real[2]  # (4, n_units)
    # (2, TILE_SOURCES, n_units): means and variances of messages before they are transposed
    tile: Real[3]
    measures: Float64[1]  # (N_MEASURES,): measures of the sweep so far: see above


@kernel(mode="inline", fastmath=REORDER)
def _tilt_of_messages(w, mean, var):
    """Sum all messages to a unit, as the tilt that they add."""
    b = a = w.dtype.type(0)
    for i in range(w.shape[0]):
        b += w[i] * mean[i]
        a -= w[i] * w[i] * var[i]
    return b, a


@kernel(mode="inline")
def _cavities(w, mean, var, b, a, cavity_b, cavity_a):
    """Compute the tilt of each unit without the message from one source."""
    for i in range(w.shape[0]):
        cavity_b[i] = b[i] - w[i] * mean[i]
        cavity_a[i] = a[i] + w[i] * w[i] * var[i]


@kernel(mode="merged")
def _update_marginals(layer, damping, work):
    """Update marginal moments and damped tilts of a layer, unless moments do not exist."""
    first, n = layer.start, layer.couplings.shape[1]
    new_b, new_a = row(work.tilt, (0, first), n), row(work.tilt, (1, first), n)
    new_mean, new_var = row(work.scratch, (0, 0), n), row(work.scratch, (1, 0), n)
    mean, var = row(work.state, (MEAN, first), n), row(work.state, (VAR, first), n)
    b, a = row(work.state, (B, first), n), row(work.state, (A, first), n)
    own_b, own_a = row(work.state, (OWN_B, first), n), row(work.state, (OWN_A, first), n)
    external = row(work.external, (1, first), n)
    tilted_moments(layer.units, 0, new_b, new_a, new_mean, new_var)
    measures, finite, old = work.measures, True, mean.dtype.type(damping)
    for i in range(n):
        finite = finite and np.isfinite(new_mean[i]) and np.isfinite(new_var[i])
    if not finite:
        measures[WITHOUT_MOMENTS] = 1
        return
    new = 1 - old
    for i in range(n):
        change, var_change = new_mean[i] - mean[i], new_var[i] - var[i]
        precision = 1 / larger(new_var[i], SMALLEST_NORMAL)
        onsager_change = (new_a[i] - external[i]) * var_change
        effect, var_effect = precision * change * change, onsager_change * onsager_change
        per_var = smaller(1.0, precision)
        per_sd = np.sqrt(per_var)
        measures[MARGINAL_CHANGE] = larger(measures[MARGINAL_CHANGE], per_sd * abs(change))
        measures[VAR_CHANGE] = larger(measures[VAR_CHANGE], per_var * abs(var_change))
        measures[MESSAGE_EFFECT] = larger(measures[MESSAGE_EFFECT], effect)
        measures[MESSAGE_VAR_EFFECT] = larger(measures[MESSAGE_VAR_EFFECT], var_effect)
        scale = larger(per_sd * abs(new_mean[i]), smaller(1.0, new_var[i]))
        measures[LARGEST_MEAN] = larger(measures[LARGEST_MEAN], scale)
        mean[i], var[i], own_b[i], own_a[i] = new_mean[i], new_var[i], new_b[i], new_a[i]
        b[i] = old * b[i] + new * new_b[i]
        a[i] = old * a[i] + new * new_a[i]


@kernel(mode="merged")
def _send_tile(layer, work, outgoing, damping, part):
    """Transpose messages to sources, `part` = (first, number), into the messages of the layer."""
    (n_source, n), (start, n_here), measures = layer.couplings.shape, part, work.measures
    for k in range(2 * n):
        plane, j = k // n, k % n
        out = row(work.messages, (outgoing + plane, j * n_source + start), n_here)
        change = out.dtype.type(0)
        for i in range(n_here):
            message = work.tile[plane, i, j]
            change = larger(change, abs(message - out[i]))
            out[i] = message
        undamped, var = change / (1 - damping), larger(1.0, work.state[VAR, layer.start + j])
        if plane == 0:
            measures[MEAN_CHANGE] = larger(measures[MEAN_CHANGE], undamped / np.sqrt(var))
        else:
            measures[VAR_CHANGE] = larger(measures[VAR_CHANGE], undamped / var)


@kernel(mode="by_address", views=True)
def _update_layer(layer, incoming, damping, work):
    """Update marginals and messages of one layer, unless moments do not exist.

    `incoming` is the plane of the means of messages into the layer; `work.measures` are updated.
    """
    _update_marginals(layer, damping, work)
    if work.measures[WITHOUT_MOMENTS] == 1:
        return
    n_source, n = layer.couplings.shape
    outgoing = 2 - incoming
    b, a = row(work.state, (B, layer.start), n), row(work.state, (A, layer.start), n)
    cavity_b, cavity_a = row(work.scratch, (2, 0), n), row(work.scratch, (3, 0), n)
    for start in range(0, n_source, TILE_SOURCES):
        n_here = smaller(TILE_SOURCES, n_source - start)
        for r in range(n_here):
            k, source = start + r, layer.source + start + r
            w = row(layer.couplings, (k, 0), n)
            mean = row(work.messages, (incoming, k * n), n)
            var = row(work.messages, (incoming + 1, k * n), n)
            _cavities(w, mean, var, b, a, cavity_b, cavity_a)
            new_mean, new_var = row(work.tile, (0, r, 0), n), row(work.tile, (1, r, 0), n)
            tilted_moments(layer.units, 0, cavity_b, cavity_a, new_mean, new_var)
            sum_b, sum_a = _tilt_of_messages(w, new_mean, new_var)
            work.tilt[0, source] = work.external[0, source] + sum_b
            work.tilt[1, source] = work.external[1, source] + sum_a
        _send_tile(layer, work, outgoing, damping, (start, n_here))


@cache
def update_address(dtype):
    """Return the address of the compiled update of a layer, for a floating type."""
    arguments = LayerView, int, float, RelaxedBPRow
    return address_of(_update_layer, *argument_types(dtype, *arguments))


@kernel(mode="merged")
def _bethe_terms(layer, incoming, work):
    """Sum the terms of a layer in the Bethe log-partition (Eq. 65), at undamped tilts."""
    n_source, n = layer.couplings.shape
    b, a = row(work.tilt, (0, layer.start), n), row(work.tilt, (1, layer.start), n)
    cavity_b, cavity_a = row(work.scratch, (2, 0), n), row(work.scratch, (3, 0), n)
    terms, total, of_marginals = row(work.scratch, (0, 0), n), 0.0, 0.0
    tilted_log_partition(layer.units, 0, b, a, terms)
    for i in range(n):
        of_marginals += terms[i]
    for k in range(n_source):
        mean = row(work.messages, (incoming, k * n), n)
        var = row(work.messages, (incoming + 1, k * n), n)
        w = row(layer.couplings, (k, 0), n)
        _cavities(w, mean, var, b, a, cavity_b, cavity_a)
        tilted_log_partition(layer.units, 0, cavity_b, cavity_a, terms)
        for i in range(n):
            total += terms[i]
    return of_marginals - 0.5 * (n_source * of_marginals - total)


@kernel(mode="merged")
def _bethe(layers, settings, work):
    """Compute the Bethe log-partition of a row."""
    total = 0.0
    for k in range(2):
        total += _bethe_terms(layers[k], 2 * k, work)
        if k == 0:
            call(settings.update, (layers[0], 0, 0.0, work))
    # A layer that is updated twice is counted twice.
    return total if layers[0].start != layers[1].start else 0.5 * total


@kernel(mode="merged")
def _start_row(layer, index, record, work):
    """Set starting messages into and from a layer to the moments of the units that send them."""
    n_source, n = layer.couplings.shape
    for k in range(2 * n):
        plane, j = k // n, k % n
        sent = row(work.messages, (2 + plane, j * n_source), n_source)
        for i in range(n_source):
            sent[i] = record.state[plane, index, layer.start + j]
    for i in range(work.state.shape[1]):
        for plane in range(2):
            work.tilt[plane, i] = work.external[plane, i]
        for plane in range(6):
            work.state[plane, i] = record.state[plane % 4, index, i]
    b, a = row(work.tilt, (0, layer.start), n), row(work.tilt, (1, layer.start), n)
    for k in range(n_source):
        w, source = row(layer.couplings, (k, 0), n), layer.source + k
        m, v = record.state[0, index, source], record.state[1, index, source]
        mean, var = row(work.messages, (0, k * n), n), row(work.messages, (1, k * n), n)
        for i in range(n):
            mean[i], var[i] = m, v
            b[i] += w[i] * m
            a[i] -= w[i] * w[i] * v


@kernel(mode="merged")
def _status(measures, sweep, damping, settings):
    """Return the status of a row after a sweep, and whether its marginal means have converged.

    Damped sweeps may converge although undamped sweeps multiply errors by up to (1 + damping) /
    (1 - damping): so changes are multiplied by this factor.
    """
    tol, resolution = settings.tol, settings.resolution
    steepness = (1 + damping) / (1 - damping)
    rounding = MEAN_ROUNDING * resolution * measures[LARGEST_MEAN]
    var_tol = larger(tol, VAR_ROUNDING * resolution)
    settled = steepness * measures[MARGINAL_CHANGE] <= larger(tol, rounding)
    # Messages may be larger than marginal means.
    sent = steepness * measures[MEAN_CHANGE] <= larger(rounding, var_tol)
    still = steepness * measures[VAR_CHANGE] <= var_tol and measures[MESSAGE_VAR_EFFECT] <= var_tol
    small = measures[MARGINAL_CHANGE] <= rounding or measures[MESSAGE_EFFECT] <= var_tol
    if measures[WITHOUT_MOMENTS] == 1:
        return DIVERGED, settled
    if settled and sent and still and small:
        return CONVERGED, settled
    return OUT_OF_ITERATIONS if sweep == settings.max_iter else RUNNING, settled


@kernel(mode="merged")
def _iterate_row(layers, settings, index, queue, record, work):
    """Sweep a row until it ends, and store it; return its status."""
    status, sweep, damping, old = RUNNING, np.int64(0), settings.damping, 0.0
    min_change, last_min_change, residual, measures = np.inf, np.inf, 0.0, work.measures
    while status == RUNNING and not stopped(queue):
        for k in range(N_MEASURES):
            measures[k] = 0
        # Before the first sweep there are no old tilts.
        old = damping if sweep > 0 else 0.0
        for k in range(2):
            call(settings.update, (layers[k], 2 * k, old, work))
            if measures[WITHOUT_MOMENTS] == 1:
                break
        residual = larger(measures[MARGINAL_CHANGE], measures[MEAN_CHANGE])
        residual = larger(residual, measures[VAR_CHANGE])
        if len(record.history):
            record.history[index, sweep] = residual
        sweep += 1
        status, settled = _status(measures, sweep, old, settings)
        # When marginal means have converged, messages may still oscillate, and variances change.
        min_change = smaller(min_change, residual if settled else measures[MARGINAL_CHANGE])
        if sweep % WINDOW_SWEEPS == 0:
            slowest = 1.0 if settled else 0.7
            if settings.adaptive and min_change > slowest * last_min_change:
                damping = smaller((1 + damping) / 2, MAX_DAMPING)
            last_min_change, min_change = min_change, np.inf
    for plane in range(4):
        for i in range(work.state.shape[1]):
            record.state[plane, index, i] = work.state[plane if plane < B else plane + 2, i]
    record.status[index], record.n_iter[index], record.residual[index] = status, sweep, residual
    return status


def relaxed_bp_work(n_workers, n_units, n_messages, dtype):
    """Allocate memory of `relaxed_bp`: a `RelaxedBPRow` with a first axis of workers."""
    shapes = (4, n_messages), (6, n_units), (2, n_units), (2, n_units), (4, n_units)
    parts = (np.empty((n_workers, *shape), dtype) for shape in shapes)
    tile = np.empty((n_workers, 2, TILE_SOURCES, n_units), dtype)
    return new_work(RelaxedBPRow(*parts, tile, np.zeros((n_workers, N_MEASURES))))


@kernel(views=True)
def relaxed_bp(first, second, settings, field, precision, work, record, log_partition):
    """Iterate the rows in the queue to fixed points."""
    n_units, layers = record.state.shape[2], (first, second)
    (messages, state, tilt, external, scratch, tile, measures), queue = work
    w = fetch_and_increment(row(queue, (1,), 1))
    if w >= state.shape[0]:
        return
    memory = RelaxedBPRow(
        messages[w], state[w], tilt[w], external[w], scratch[w], tile[w], measures[w]
    )
    index = next_task(queue)
    while index < record.state.shape[1]:
        for i in range(n_units):
            memory.external[0, i] = field[index % len(field), i]
            memory.external[1, i] = precision[index % len(precision), i]
        _start_row(first, index, record, memory)
        if _iterate_row(layers, settings, index, queue, record, memory) != DIVERGED:
            log_partition[index] = _bethe(layers, settings, memory)
        index = next_task(queue)
