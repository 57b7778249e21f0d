"""Block Gibbs sampling of an RBM with layers of two-valued units or of groups of states."""

from typing import NamedTuple

import numpy as np
from numba.extending import overload

from fastmf._intrinsics import fetch_and_increment, row, smaller
from fastmf._numba import INNER, kernel
from fastmf.kernels.product import product
from fastmf.kernels.random import row_key, uniform
from fastmf.kernels.work import new_work
from fastmf.priors._compiled import tilted_moments

# Rows of one task; they share a pass over the couplings.
TASK_ROWS = 24


class TwoValuedLayer(NamedTuple):
    """A layer of two-valued units.

    Parameters
    ----------
    units : Units
    couplings : array of shape (n_panels, n_source, panel_width)
        Packed couplings from the other layer to this one.
    low, high : float
        The two values of the units.
    first : int
        Number of the first unit among those that are drawn together.
    """

    units: np.ndarray
    couplings: np.ndarray
    low: float
    high: float
    first: int = 0


class GroupLayer(NamedTuple):
    """A layer of groups of states, one of which is 1 and the others are 0.

    Parameters
    ----------
    units : Units
    couplings : array of shape (n_panels, n_source, panel_width)
        Packed couplings from the other layer to this one.
    group_starts : int64 array of shape (n_groups + 1,)
        The first state of each group, and the number of states.
    """

    units: np.ndarray
    couplings: np.ndarray
    group_starts: np.ndarray


def _draw(layer, key, mean, out):
    """Draw the units of a layer, one uniform number for each unit or group, given their means."""
    (_draw_groups if hasattr(layer, "group_starts") else _draw_two_valued)(layer, key, mean, out)


@overload(_draw, jit_options=INNER)
def _draw_compiled(layer, key, mean, out):
    return _draw_groups if "group_starts" in layer.fields else _draw_two_valued


def _draw_two_valued(layer, key, mean, out):
    low, high, first = layer.low, layer.high, layer.first
    for i in range(out.shape[0]):
        out[i] = high if low + (high - low) * uniform(key, first + i) < mean[i] else low


def _draw_groups(layer, key, mean, out):
    for g in range(layer.group_starts.shape[0] - 1):
        first, last = layer.group_starts[g], layer.group_starts[g + 1]
        u, below, taken = uniform(key, g), mean[first], first
        while u >= below and taken < last - 1:
            taken += 1
            below += mean[taken]
        for a in range(first, last):
            out[a] = 0
        out[taken] = 1


@kernel(inner=True)
def draw_rows(layer, counter, fields, scratch, units, out):
    """Draw one layer of a few rows given the fields of its units.

    Parameters
    ----------
    layer : TwoValuedLayer or GroupLayer
    counter : tuple of seed, step, first and last row
        From which the random numbers are made.
    fields : array of shape (n_rows, n_columns)
        Of these rows.
    scratch : array of shape (3, n_columns)
        The first row is zero.
    units : tuple of int
        Where the layer is in `out`: first unit, and number of units.
    out : array of shape (n_all_rows, n_all_units)
    """
    (seed, step, first, last), (start, n) = counter, units
    zero, mean, var = row(scratch, (0, 0), n), row(scratch, (1, 0), n), row(scratch, (2, 0), n)
    for r in range(first, last):
        tilted_moments(layer.units, np.int64(0), row(fields, (r - first, 0), n), zero, mean, var)
        _draw(layer, row_key(seed, step, r), mean, row(out, (r, start), n))


def gibbs_work(visible, hidden, dtype, n_workers=1):
    """What `gibbs` needs for so many threads.

    Parameters
    ----------
    visible, hidden : TwoValuedLayer or GroupLayer
    dtype : NumPy dtype
    n_workers : int

    Returns
    -------
    Work
        Its scratch memory is of shape (n_workers, TASK_ROWS + 3, n_columns).
    """
    n_columns = max(
        layer.couplings.shape[0] * layer.couplings.shape[2] for layer in (visible, hidden)
    )
    return new_work(np.zeros((n_workers, TASK_ROWS + 3, n_columns), dtype))


@kernel(views=True)
def gibbs(address, visible, hidden, seed, n_sweeps, v, h, work):
    """Sample hidden units given visible ones and back, `n_sweeps` times for each row in the queue.

    Parameters
    ----------
    address : int
        Of the compiled product.
    visible, hidden : TwoValuedLayer or GroupLayer
    seed : uint64
    n_sweeps : int
    v, h : array of shape (n_rows, n_visible) and (n_rows, n_hidden)
        States, changed in place; `v` is the start.
    work : Work
        Shared by all threads that call this: see `gibbs_work`. Tasks are groups of rows.
    """
    (n_rows, n_visible), n_hidden, start = v.shape, h.shape[1], np.int64(0)
    scratch, queue = work
    w = fetch_and_increment(row(queue, (1,), 1))
    if w >= scratch.shape[0]:
        return
    fields, vectors = scratch[w, :TASK_ROWS], scratch[w, TASK_ROWS:]
    first = fetch_and_increment(queue) * TASK_ROWS
    while first < n_rows:
        last = smaller(n_rows, first + TASK_ROWS)
        n_here, v_rows, h_rows = last - first, v[first:last], h[first:last]
        for sweep in range(n_sweeps):
            product(address, v_rows, n_here, start, hidden.couplings, fields, n_hidden)
            counter = seed, 2 * sweep + 1, first, last
            draw_rows(hidden, counter, fields, vectors, (start, n_hidden), h)
            product(address, h_rows, n_here, start, visible.couplings, fields, n_visible)
            counter = seed, 2 * sweep + 2, first, last
            draw_rows(visible, counter, fields, vectors, (start, n_visible), v)
        first = fetch_and_increment(queue) * TASK_ROWS
