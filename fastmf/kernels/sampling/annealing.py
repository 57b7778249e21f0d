"""Gibbs sampling and annealed importance sampling, with counter-based random numbers.

A random number is a function of (seed, step, row, unit), without a state, so that the chain of a
row depends neither on the other rows nor on the number of threads. Each unit uses one uniform
number.

*RBMs* are sampled a layer at a time. Along the path from uncoupled units (beta = 0) to the model
(beta = 1) units have the tilts

    (1 - beta) base + beta W x

A step from beta to beta' adds the change of the log-partitions of the hidden units, minus
(beta' - beta) v' base, to the log importance weight, and draws hidden and then visible units at
beta', by the `draw` of their priors. Steps at beta = 1 are Gibbs sampling.

*Fully visible machines* of two-valued units and groups of states: at beta the log-weight of a state
is the log-weight of uncoupled units plus

    beta x'Jx / 2 + (1 - beta) c.x,

so that a step from beta to beta' adds (beta' - beta) (x'Jx / 2 - c.x) to the log importance weight.
Then a sweep at beta' visits one unit or group after the other. The fields J x are stored, and
updated when a unit changes.
"""

from typing import NamedTuple

import numpy as np

from fastmf._jit.intrinsics import fetch_and_increment, larger, row, smaller
from fastmf._jit.kernel import REORDER, kernel
from fastmf._threads.workers import next_task, stopped
from fastmf.kernels.linear.product import new_work, product
from fastmf.priors._compiled import tilted_draws, tilted_log_partition
from fastmf.special import constant, exp

# Constants of the SplitMix64 generator (Steele, Lea & Flood 2014).
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31, _S11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)


@kernel(mode="inner")
def _mix(x):
    x = (x ^ (x >> _S30)) * _MIX_1
    x = (x ^ (x >> _S27)) * _MIX_2
    return x ^ (x >> _S31)


@kernel(mode="inner")
def row_key(seed, step, row):
    """Return the key of the random numbers of one row in one step."""
    key = _mix(seed + np.uint64(step) * _GOLDEN)
    return _mix(key + np.uint64(row + 1) * _GOLDEN)


@kernel(mode="inner")
def uniform(key, i):
    """Return a float64 in [0, 1) for unit `i`."""
    return np.float64(_mix(key + np.uint64(i + 1) * _GOLDEN) >> _S11) * 2.0**-53


class SampledLayer(NamedTuple):
    """A layer of units."""

    units: np.ndarray  # Units: with draws and log-partitions
    # (n_panels, n_source, panel_width): packed couplings from the other layer
    couplings: np.ndarray


class LayersPath(NamedTuple):
    """The distributions between uncoupled units and the model."""

    visible_base: np.ndarray  # (n_visible,) and (n_hidden,): tilts of uncoupled units, at beta = 0
    hidden_base: np.ndarray  # (n_visible,) and (n_hidden,)
    # float64 (n_steps + 1,): increasing or decreasing, or all 1 for Gibbs sampling of the model
    betas: np.ndarray


class LayersMemory(NamedTuple):
    """Scratch memory of each thread."""

    rows: np.ndarray  # (n_workers, task_rows + 3, n_columns): the last but two is zero
    uniforms: np.ndarray  # float64 (n_workers, n_columns)


def layers_work(visible, hidden, dtype, task_rows, n_workers=1):
    """Allocate memory of `anneal_layers` for numbers of rows of each task, and of threads."""
    n_columns = max(
        layer.couplings.shape[0] * layer.couplings.shape[2] for layer in (visible, hidden)
    )
    rows = np.zeros((n_workers, task_rows + 3, n_columns), dtype)
    return new_work(LayersMemory(rows, np.zeros((n_workers, n_columns))))


@kernel(mode="inner")
def _draw_rows(layer, counter, fields, scratch, out):
    """Draw one layer of a few rows given the fields of its units."""
    (seed, step, first, last), (vectors, uniforms), n = counter, scratch, out.shape[1]
    zero, moments, u = row(vectors, (0, 0), n), row(vectors, (1, 0), n), row(uniforms, (0,), n)
    for r in range(first, last):
        key = row_key(seed, step, r)
        for i in range(n):
            u[i] = uniform(key, i)
        b, drawn = row(fields, (r - first, 0), n), row(out, (r, 0), n)
        tilted_draws(layer.units, np.int64(0), b, zero, u, drawn, moments)


@kernel(mode="inner")
def _tilt(base, beta, fields, out):
    """Compute tilts at `beta` along the path."""
    new = constant(beta, base[0])
    old = constant(1.0, base[0]) - new
    for i in range(base.shape[0]):
        out[i] = old * base[i] + new * fields[i]


@kernel(mode="merged")
def _sum_of_log_partitions(units, b, zero, out):
    """Sum log-partitions of units tilted by `b`, in float64; `out` is scratch memory."""
    tilted_log_partition(units, np.int64(0), b, zero, out)
    total = 0.0
    for i in range(out.shape[0]):
        total += out[i]
    return total


@kernel(mode="merged")
def _log_ratio(hidden, path, step, v, field, vectors):
    """Compute the change of the log-weight of a row in a step, from fields on hidden units."""
    old, new, n = path.betas[step - 1], path.betas[step], field.shape[0]
    zero, out, tilt = row(vectors, (0, 0), n), row(vectors, (1, 0), n), row(vectors, (2, 0), n)
    linear = 0.0
    for i in range(v.shape[0]):
        linear += v[i] * path.visible_base[i]
    _tilt(path.hidden_base, old, field, tilt)
    before = _sum_of_log_partitions(hidden.units, tilt, zero, out)
    _tilt(path.hidden_base, new, field, tilt)
    return _sum_of_log_partitions(hidden.units, tilt, zero, out) - before - (new - old) * linear


@kernel(mode="merged")
def _step(address, layers, path, counter, of_task, chains, log_weights, memory):
    """Move all rows of a task one step along the path."""
    (visible, hidden), (seed, step), (first, last), (v, h) = layers, counter, of_task, chains
    (fields, scratch), beta = memory, path.betas[step]
    n_visible, n_hidden, start = v.shape[1], h.shape[1], np.int64(0)
    product(address, v[first:last], last - first, start, hidden.couplings, fields, n_hidden)
    for r in range(first, last):
        field = row(fields, (r - first, 0), n_hidden)
        if path.betas[step - 1] != beta:
            state = row(v, (r, 0), n_visible)
            log_weights[r] += _log_ratio(hidden, path, step, state, field, scratch[0])
        _tilt(path.hidden_base, beta, field, field)
    _draw_rows(hidden, (seed, 2 * step - 1, first, last), fields, scratch, h)
    product(address, h[first:last], last - first, start, visible.couplings, fields, n_visible)
    for r in range(last - first):
        field = row(fields, (r, 0), n_visible)
        _tilt(path.visible_base, beta, field, field)
    _draw_rows(visible, (seed, 2 * step, first, last), fields, scratch, v)


@kernel(views=True)
def anneal_layers(address, visible, hidden, path, seed, chains, log_weights, work):
    """Move the chains in the queue along the path, and sum their log importance weights."""
    (scratch, queue), n_rows = work, log_weights.shape[0]
    w = fetch_and_increment(row(queue, (1,), 1))
    if w >= scratch.rows.shape[0]:
        return
    task_rows = scratch.rows.shape[1] - 3
    fields, vectors = scratch.rows[w, :task_rows], scratch.rows[w, task_rows:]
    memory, layers = (fields, (vectors, scratch.uniforms[w])), (visible, hidden)
    first = next_task(queue) * task_rows
    while first < n_rows:
        of_task = first, smaller(n_rows, first + task_rows)
        for step in range(1, path.betas.shape[0]):
            if stopped(queue):
                return
            _step(address, layers, path, (seed, step), of_task, chains, log_weights, memory)
        first = next_task(queue) * task_rows


# Planes of scratch memory.
FIELDS, UNIT_LOGS, CHANCES = range(3)


class VisibleUnits(NamedTuple):
    """Columns of data: two-valued units, and groups of states."""

    # int64 (n_columns + 1,): first unit of each column; a group has more than one unit
    first: np.ndarray
    low: np.ndarray  # float64 (n_units,): the two values; 0 and 1 in groups
    high: np.ndarray  # float64 (n_units,)
    field: np.ndarray  # float64 (n_units,): fields of the uncoupled units


class TiltedBetas(NamedTuple):
    """The distributions between uncoupled units and the model."""

    tilt: np.ndarray  # float64 (n_units,): the tilt c of the uncoupled units
    # float64 (n_steps + 1,): rising or falling, or all 1 for Gibbs sampling of the model
    betas: np.ndarray


def visible_work(n_units, n_workers=1):
    """Allocate memory of `anneal_visible` for some threads."""
    return new_work(np.zeros((n_workers, 3, n_units)))


@kernel(mode="inner", fastmath=REORDER)
def _add_row(couplings, i, change, fields):
    """Add the effect of a change of unit i to the fields."""
    n = fields.shape[0]
    values = row(couplings, (i, 0), n)
    for j in range(n):
        fields[j] += change * values[j]


@kernel(mode="inner")
def _set_fields(couplings, x, fields):
    """Compute the fields of all units, J x."""
    for i in range(x.shape[0]):
        fields[i] = 0.0
    for i in range(x.shape[0]):
        if x[i] != 0:
            _add_row(couplings, i, np.float64(x[i]), fields)


@kernel(mode="inner")
def _change(couplings, i, new, x, fields):
    """Set the new value of a unit, and update the fields."""
    change = new - x[i]
    if change != 0:
        x[i] = new
        _add_row(couplings, i, change, fields)


@kernel(mode="inner")
def _set_probabilities(logs, out, start, end):
    """Write normalised exp(logs) of states."""
    top, total = logs[start], 0.0
    for a in range(start + 1, end):
        top = larger(top, logs[a])
    for a in range(start, end):
        out[a] = exp(logs[a] - top)
        total += out[a]
    for a in range(start, end):
        out[a] /= total


@kernel(mode="inner")
def _drawn(p, start, end, u):
    """Return the first label whose cumulative probability exceeds a uniform number."""
    label, below = np.int64(0), p[start]
    while start + label + 1 < end and below <= u:
        label += 1
        below += p[start + label]
    return label


@kernel(mode="inner")
def _sweep(couplings, units, path, beta, key, x, memory):
    """Draw all columns of one chain in turn."""
    n = x.shape[0]
    fields, logs = row(memory, (FIELDS, 0), n), row(memory, (UNIT_LOGS, 0), n)
    p = row(memory, (CHANCES, 0), n)
    for c in range(units.first.shape[0] - 1):
        first, last = units.first[c], units.first[c + 1]
        u = uniform(key, first)
        for i in range(first, last):
            logs[i] = beta * fields[i] + (1 - beta) * path.tilt[i] + units.field[i]
        if last - first == 1:
            low, high = units.low[first], units.high[first]
            is_high = u * (1 + exp((low - high) * logs[first])) < 1
            _change(couplings, first, high if is_high else low, x, fields)
            continue
        _set_probabilities(logs, p, first, last)
        state = first + _drawn(p, first, last, u)
        for i in range(first, last):
            _change(couplings, i, 1.0 if i == state else 0.0, x, fields)


@kernel(mode="inner")
def _exponent(fields, tilt, x):
    """Compute x'Jx / 2 - c.x of one chain."""
    total = 0.0
    for i in range(x.shape[0]):
        total += x[i] * (fields[i] / 2 - tilt[i])
    return total


@kernel(views=True)
def anneal_visible(couplings, units, path, seeds, x, log_weights, work):
    """Move the chains in the queue along the path, and sum their log importance weights."""
    (scratch, queue), n = work, x.shape[1]
    w = fetch_and_increment(row(queue, (1,), 1))
    if w >= scratch.shape[0]:
        return
    memory = scratch[w]
    fields = row(memory, (FIELDS, 0), n)
    r = next_task(queue)
    while r < x.shape[0]:
        chain = row(x, (r, 0), n)
        _set_fields(couplings, chain, fields)
        for step in range(1, path.betas.shape[0]):
            if stopped(queue):
                return
            old, new = path.betas[step - 1], path.betas[step]
            log_weights[r] += (new - old) * _exponent(fields, path.tilt, chain)
            key = row_key(seeds[step - 1], 0, r)
            _sweep(couplings, units, path, new, key, chain, memory)
        r = next_task(queue)
