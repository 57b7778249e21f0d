"""Annealed importance sampling of an RBM with units of values 0 and 1, or groups of states.

Along the path the log-odds of a unit are base + beta (shift + W x), with shift = field - base: at
beta = 0 those of uncoupled units, at beta = 1 those of the model. A step from beta to beta' adds

    log p(v; beta') - log p(v; beta),   log p(v; beta) = beta v' shift + sum_j softplus(t_j)

to the log importance weight (t_j are log-odds of hidden units, constant terms are left out), and
draws the hidden and then the visible units at beta'. The visible units may be the states of groups,
of each of which one is 1, with the logarithms of weights in the place of log-odds.
"""

from typing import NamedTuple

import numpy as np
from numba.extending import overload

from fastmf._intrinsics import fetch_and_increment, larger
from fastmf._numba import INNER, REORDER, kernel
from fastmf.kernels.product import product
from fastmf.kernels.random import row_key, uniform
from fastmf.special import constant, exp, softplus

# Rows of one task; they share a pass over the couplings.
TASK_ROWS = 24


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


class GroupPath(NamedTuple):
    """The same for visible groups of states.

    Parameters
    ----------
    visible_shift, hidden_shift, visible_base, hidden_base, betas, product
        As in `AnnealedPath`.
    group_starts : int64 array of shape (n_groups + 1,)
        The first state of each group, and the number of states.
    """

    visible_shift: np.ndarray
    hidden_shift: np.ndarray
    visible_base: np.ndarray
    hidden_base: np.ndarray
    betas: np.ndarray
    product: int
    group_starts: np.ndarray


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


@kernel(inner=True, fastmath=REORDER)
def _log_partition(base, shift, beta):
    """Sum of log(1 + exp(t)), t = base + beta * shift, in double precision."""
    total = 0.0
    for j in range(shift.shape[0]):
        total += softplus(base[j] + beta * shift[j])
    return total


@kernel(inner=True)
def _draw(key, base, shift, beta, uniforms, out):
    """Set out to 1 with log-odds base + beta * shift, to 0 otherwise."""
    # Two loops, because only the second one vectorises.
    for i in range(out.shape[0]):
        uniforms[i] = uniform(key, i)
    one = constant(1.0, shift[0])
    for i in range(out.shape[0]):
        e = exp(-(base[i] + beta * shift[i]))
        out[i] = one if uniforms[i] * (one + e) < one else 0 * one


@kernel(inner=True)
def _draw_groups(starts, key, tilt, beta, weights, out):
    """Draw one state of each group, with the log-weights base + beta * shift."""
    base, shift = tilt
    for i in range(out.shape[0]):
        weights[i] = base[i] + beta * shift[i]
    for g in range(starts.shape[0] - 1):
        top = weights[starts[g]]
        for i in range(starts[g], starts[g + 1]):
            top = larger(top, weights[i])
        for i in range(starts[g], starts[g + 1]):
            weights[i] -= top
    for i in range(out.shape[0]):
        weights[i] = exp(weights[i])
        out[i] = 0 * weights[i]
    for g in range(starts.shape[0] - 1):
        total, taken = 0.0, starts[g]
        for i in range(starts[g], starts[g + 1]):
            total += weights[i]
        u, below = uniform(key, g) * total, np.float64(weights[taken])
        while u >= below and taken < starts[g + 1] - 1:
            taken += 1
            below += weights[taken]
        out[taken] = 1


def _draw_visible(path, key, shift, beta, scratch, out):
    """Draw the visible units, with log-odds or log-weights base + beta * shift."""
    draw = _draw_visible_groups if hasattr(path, "group_starts") else _draw_visible_units
    draw(path, key, shift, beta, scratch, out)


@overload(_draw_visible, jit_options=INNER)
def _draw_visible_compiled(path, key, shift, beta, scratch, out):
    return _draw_visible_groups if "group_starts" in path.fields else _draw_visible_units


def _draw_visible_groups(path, key, shift, beta, scratch, out):
    _draw_groups(path.group_starts, key, (path.visible_base, shift), beta, scratch, out)


def _draw_visible_units(path, key, shift, beta, scratch, out):
    _draw(key, path.visible_base, shift, beta, scratch, out)


@kernel(inner=True)
def _fill_shifts(address, states, couplings, shift, shifts):
    """Set the rows of shifts to shift + states @ couplings."""
    n_units = shift.shape[0]
    product(address, states, states.shape[0], np.int64(0), couplings, shifts, n_units)
    for r in range(states.shape[0]):
        for i in range(n_units):
            shifts[r, i] += shift[i]


@kernel(inner=True)
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
        _draw_visible(path, key, shift, new, rows.uniforms, rows.v[r])


@kernel
def annealed(to_hidden, to_visible, path, seed, v, h, log_weights, queue):
    """Take the rows in the queue along the path, and add up their log importance weights.

    Parameters
    ----------
    to_hidden, to_visible : array of shape (n_panels, n_source, panel_width)
        The packed couplings and those of the transposed matrix.
    path : AnnealedPath or GroupPath
    seed : uint64
    v, h : array of shape (n_rows, n_visible) and (n_rows, n_hidden)
        States; `v` is the start.
    log_weights : float64 array of shape (n_rows,)
        Added to.
    queue : int64 array of shape (1,)
        Next group of rows not taken yet; shared by all threads that call this.
    """
    n_rows, n_visible = v.shape
    n_columns = max(to_hidden.shape[0], to_visible.shape[0]) * to_hidden.shape[2]
    shifts = np.zeros((TASK_ROWS, n_columns), v.dtype)
    uniforms = np.zeros(max(n_visible, h.shape[1]), v.dtype)
    first = fetch_and_increment(queue) * TASK_ROWS
    while first < n_rows:
        last = min(n_rows, first + TASK_ROWS)
        rows = AnnealedRows(
            first, v[first:last], h[first:last], log_weights[first:last], shifts, uniforms
        )
        for step in range(1, path.betas.shape[0]):
            _step(to_hidden, to_visible, path, seed, step, rows)
        first = fetch_and_increment(queue) * TASK_ROWS
