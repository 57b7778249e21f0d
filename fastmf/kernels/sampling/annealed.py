"""Annealed importance sampling of an RBM with units of values 0 and 1, or of any others.

The log-odds of units 0 and 1 along the path are base + beta (shift + W x), with shift = field -
base: at beta = 0 those of uncoupled units, at beta = 1 those of the model. A step from beta to
beta' adds

    log p(v; beta') - log p(v; beta),   log p(v; beta) = beta v' shift + sum_j softplus(t_j)

to the log importance weight (t_j are log-odds of hidden units, constant terms are left out), and
draws the hidden and then the visible units at beta'. The tilts of other units are

    (1 - beta) base + beta W x

and a step adds the change of the log-partitions of the hidden units, less (beta' - beta) v' base.
"""

from typing import NamedTuple

import numpy as np

from fastmf._jit.intrinsics import fetch_and_increment, row, smaller
from fastmf._jit.kernel import REORDER, kernel
from fastmf._threads.interrupts import next_task, stopped
from fastmf.kernels.linear.product import product
from fastmf.kernels.sampling.gibbs import CHAIN_ROWS, draw_rows
from fastmf.kernels.sampling.random import row_key, uniform
from fastmf.priors._compiled import tilted_log_partition
from fastmf.special import constant, exp, softplus


class AnnealedPath(NamedTuple):
    """The distributions from uncoupled units to the model.

    Parameters
    ----------
    visible_shift, hidden_shift : array of shape (n_visible,) and (n_hidden,)
        field - base: by how much the log-odds of an uncoupled unit change along the path.
    visible_base, hidden_base : arrays of the same shapes
        Log-odds at beta = 0.
    betas : float64 array of shape (n_steps + 1,)
        Rising or falling.
    product : int
        Address of the compiled product of matrices, for the conditional log-odds.
    """

    visible_shift: np.ndarray
    hidden_shift: np.ndarray
    visible_base: np.ndarray
    hidden_base: np.ndarray
    betas: np.ndarray
    product: int


class TiltedPath(NamedTuple):
    """The same for units of any kind.

    Parameters
    ----------
    visible_base, hidden_base : array of shape (n_visible,) and (n_hidden,)
        Tilts of uncoupled units, at beta = 0.
    betas : float64 array of shape (n_steps + 1,)
        Rising or falling.
    """

    visible_base: np.ndarray
    hidden_base: np.ndarray
    betas: np.ndarray


class AnnealedRows(NamedTuple):
    """The rows of one task and scratch space.

    Parameters
    ----------
    first : int
        Position of the first one among all rows.
    v, h : array of shape (n_rows, n_visible) and (n_rows, n_hidden)
    log_weights : float64 array of shape (n_rows,)
    shifts : array of shape (n_rows, n_columns)
        shift + W x.
    uniforms : array of shape (max(n_visible, n_hidden),)
    """

    first: int
    v: np.ndarray
    h: np.ndarray
    log_weights: np.ndarray
    shifts: np.ndarray
    uniforms: np.ndarray


@kernel(mode="inner", fastmath=REORDER)
def _log_partition(base, shift, beta):
    """Sum of log(1 + exp(t)), t = base + beta * shift, in double precision."""
    total = 0.0
    for j in range(shift.shape[0]):
        total += softplus(base[j] + beta * shift[j])
    return total


@kernel(mode="inner")
def _draw(key, base, shift, beta, uniforms, out):
    """Set out to 1 with log-odds base + beta * shift, to 0 otherwise."""
    # Two loops, because only the second one vectorises.
    for i in range(out.shape[0]):
        uniforms[i] = uniform(key, i)
    one = constant(1.0, shift[0])
    for i in range(out.shape[0]):
        e = exp(-(base[i] + beta * shift[i]))
        out[i] = one if uniforms[i] * (one + e) < one else 0 * one


@kernel(mode="inner")
def _fill_shifts(address, states, couplings, shift, shifts):
    """Set the rows of shifts to shift + states @ couplings."""
    n_units = shift.shape[0]
    product(address, states, states.shape[0], np.int64(0), couplings, shifts, n_units)
    for r in range(states.shape[0]):
        for i in range(n_units):
            shifts[r, i] += shift[i]


@kernel(mode="inner")
def _step(to_hidden, to_visible, path, seed, step, rows):
    """One step of all rows of a task along the path."""
    n_visible, n_hidden = rows.v.shape[1], rows.h.shape[1]
    dtype, change = rows.v.dtype.type, path.betas[step] - path.betas[step - 1]
    old, new = dtype(path.betas[step - 1]), dtype(path.betas[step])
    _fill_shifts(path.product, rows.v, to_hidden, path.hidden_shift, rows.shifts)
    for r in range(rows.v.shape[0]):
        shift, v_r = rows.shifts[r, :n_hidden], rows.v[r]
        linear = 0.0
        for i in range(n_visible):
            linear += v_r[i] * path.visible_shift[i]
        rows.log_weights[r] += (
            change * linear
            + _log_partition(path.hidden_base, shift, new)
            - _log_partition(path.hidden_base, shift, old)
        )
        key = row_key(seed, 2 * step, rows.first + r)
        _draw(key, path.hidden_base, shift, new, rows.uniforms, rows.h[r])
    _fill_shifts(path.product, rows.h, to_visible, path.visible_shift, rows.shifts)
    for r in range(rows.v.shape[0]):
        key = row_key(seed, 2 * step + 1, rows.first + r)
        shift = rows.shifts[r, :n_visible]
        _draw(key, path.visible_base, shift, new, rows.uniforms, rows.v[r])


@kernel
def annealed(to_hidden, to_visible, path, seed, v, h, log_weights, queue):
    """Take the rows in the queue along the path, and add up their log importance weights."""
    n_rows, n_visible = v.shape
    n_columns = max(to_hidden.shape[0], to_visible.shape[0]) * to_hidden.shape[2]
    shifts = np.zeros((CHAIN_ROWS, n_columns), v.dtype)
    uniforms = np.zeros(max(n_visible, h.shape[1]), v.dtype)
    first = next_task(queue) * CHAIN_ROWS
    while first < n_rows:
        last = min(n_rows, first + CHAIN_ROWS)
        rows = AnnealedRows(
            first, v[first:last], h[first:last], log_weights[first:last], shifts, uniforms
        )
        for step in range(1, path.betas.shape[0]):
            if stopped(queue):
                return
            _step(to_hidden, to_visible, path, seed, step, rows)
        first = next_task(queue) * CHAIN_ROWS


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
def _step_of_units(address, layers, path, counter, here, chains, log_weights, memory):
    """One step of all rows of a task along the path."""
    (visible, hidden), (seed, step), (first, last), (v, h) = layers, counter, here, chains
    (fields, scratch), old, new = memory, path.betas[step - 1], path.betas[step]
    n_visible, n_hidden, start = v.shape[1], h.shape[1], np.int64(0)
    zero, out = row(scratch[0], (0, 0), n_hidden), row(scratch[0], (1, 0), n_hidden)
    tilt = row(scratch[0], (2, 0), n_hidden)
    product(address, v[first:last], last - first, start, hidden.couplings, fields, n_hidden)
    for r in range(first, last):
        field, linear = row(fields, (r - first, 0), n_hidden), 0.0
        for i in range(n_visible):
            linear += v[r, i] * path.visible_base[i]
        _tilt(path.hidden_base, old, field, tilt)
        change = -_sum_of_log_partitions(hidden.units, tilt, zero, out)
        _tilt(path.hidden_base, new, field, field)
        change += _sum_of_log_partitions(hidden.units, field, zero, out)
        log_weights[r] += change - (new - old) * linear
    draw_rows(hidden, (seed, 2 * step, first, last), fields, scratch, (start, n_hidden), h)
    product(address, h[first:last], last - first, start, visible.couplings, fields, n_visible)
    for r in range(last - first):
        field = row(fields, (r, 0), n_visible)
        _tilt(path.visible_base, new, field, field)
    draw_rows(visible, (seed, 2 * step + 1, first, last), fields, scratch, (start, n_visible), v)


@kernel(views=True)
def annealed_units(address, visible, hidden, path, seed, chains, log_weights, work):
    """The same for units of any kind."""
    (scratch, queue), n_rows = work, log_weights.shape[0]
    w = fetch_and_increment(row(queue, (1,), 1))
    if w >= scratch.rows.shape[0]:
        return
    fields, vectors = scratch.rows[w, :CHAIN_ROWS], scratch.rows[w, CHAIN_ROWS:]
    memory = fields, (vectors, scratch.uniforms[w])
    first = next_task(queue) * CHAIN_ROWS
    while first < n_rows:
        here = first, smaller(n_rows, first + CHAIN_ROWS)
        for step in range(1, path.betas.shape[0]):
            if stopped(queue):
                return
            layers = visible, hidden
            _step_of_units(address, layers, path, (seed, step), here, chains, log_weights, memory)
        first = next_task(queue) * CHAIN_ROWS
