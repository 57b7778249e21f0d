"""Block Gibbs sampling and annealed importance sampling of an RBM.

Along the path from uncoupled units (beta = 0) to the model (beta = 1) units have the tilts

    (1 - beta) base + beta W x

A step from beta to beta' adds the change of the log-partitions of the hidden units, less
(beta' - beta) v' base, to the log importance weight, and draws hidden and then visible units at
beta'. Steps at beta = 1 are Gibbs sampling. A unit is drawn from a uniform number of its
own (`fastmf.kernels.sampling.random`) by the `draw` of its prior.
"""

from typing import NamedTuple

import numpy as np

from fastmf._jit.intrinsics import fetch_and_increment, row, smaller
from fastmf._jit.kernel import kernel
from fastmf._threads.interrupts import next_task, stopped
from fastmf.kernels.linear.product import TASK_ROWS, product
from fastmf.kernels.linear.work import new_work
from fastmf.kernels.sampling.random import row_key, uniform
from fastmf.priors._compiled import tilted_draws, tilted_log_partition
from fastmf.special import constant


class SampledLayer(NamedTuple):
    """A layer of units."""

    units: np.ndarray  # Units: with draws and log-partitions
    # (n_panels, n_source, panel_width): packed couplings from the other layer to this one
    couplings: np.ndarray


class LayersPath(NamedTuple):
    """The distributions between uncoupled units and the model."""

    visible_base: np.ndarray  # (n_visible,) and (n_hidden,): tilts of uncoupled units, at beta = 0
    hidden_base: np.ndarray  # (n_visible,) and (n_hidden,)
    # float64 (n_steps + 1,): rising or falling, or all 1 for Gibbs sampling of the model
    betas: np.ndarray


class LayersMemory(NamedTuple):
    """Scratch memory of each thread."""

    rows: np.ndarray  # (n_workers, TASK_ROWS + 3, n_columns): the last but two is zero
    uniforms: np.ndarray  # float64 (n_workers, n_columns)


def layers_work(visible, hidden, dtype, n_workers=1):
    """Memory of `anneal_layers` for a number of threads."""
    n_columns = max(
        layer.couplings.shape[0] * layer.couplings.shape[2] for layer in (visible, hidden)
    )
    rows = np.zeros((n_workers, TASK_ROWS + 3, n_columns), dtype)
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
    """Tilts at `beta` along the path."""
    new = constant(beta, base[0])
    old = constant(1.0, base[0]) - new
    for i in range(base.shape[0]):
        out[i] = old * base[i] + new * fields[i]


@kernel(mode="merged")
def _sum_of_log_partitions(units, b, zero, out):
    """In double precision, of units tilted by `b`; `out` is scratch memory."""
    tilted_log_partition(units, np.int64(0), b, zero, out)
    total = 0.0
    for i in range(out.shape[0]):
        total += out[i]
    return total


@kernel(mode="merged")
def _log_ratio(hidden, path, step, v, field, vectors):
    """The change of the log-weight of a row in a step, from the fields on its hidden units."""
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
    """One step of all rows of a task along the path."""
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
    """Take the chains in the queue along the path, and add up their log importance weights."""
    (scratch, queue), n_rows = work, log_weights.shape[0]
    w = fetch_and_increment(row(queue, (1,), 1))
    if w >= scratch.rows.shape[0]:
        return
    fields, vectors = scratch.rows[w, :TASK_ROWS], scratch.rows[w, TASK_ROWS:]
    memory, layers = (fields, (vectors, scratch.uniforms[w])), (visible, hidden)
    first = next_task(queue) * TASK_ROWS
    while first < n_rows:
        of_task = first, smaller(n_rows, first + TASK_ROWS)
        for step in range(1, path.betas.shape[0]):
            if stopped(queue):
                return
            _step(address, layers, path, (seed, step), of_task, chains, log_weights, memory)
        first = next_task(queue) * TASK_ROWS
