"""Block Gibbs sampling of an RBM.

A unit is drawn from a uniform number of its own, which is a function of seed, step, row and unit:
see `fastmf.kernels.sampling.random`. What it makes of this number is `draw` of its prior.
"""

from typing import NamedTuple

import numpy as np

from fastmf._jit.intrinsics import fetch_and_increment, row, smaller
from fastmf._jit.kernel import kernel
from fastmf._threads.interrupts import next_task, stopped
from fastmf.kernels.linear.product import product
from fastmf.kernels.linear.work import new_work
from fastmf.kernels.sampling.random import row_key, uniform
from fastmf.priors._compiled import tilted_draws

# Rows of one task; they share a pass over the couplings.
CHAIN_ROWS = 24


class SampledLayer(NamedTuple):
    """A layer of units.

    Parameters
    ----------
    units : Units
        With draws.
    couplings : array of shape (n_panels, n_source, panel_width)
        Packed couplings from the other layer to this one.
    first : int
        Number of the first unit among those that are drawn together.
    """

    units: np.ndarray
    couplings: np.ndarray
    first: int = 0


class GibbsMemory(NamedTuple):
    """Scratch memory of each thread.

    Parameters
    ----------
    rows : array of shape (n_workers, CHAIN_ROWS + 3, n_columns)
        The last but two is zero.
    uniforms : float64 array of shape (n_workers, n_columns)
    """

    rows: np.ndarray
    uniforms: np.ndarray


@kernel(mode="inner")
def draw_rows(layer, counter, fields, scratch, units, out):
    """Draw one layer of a few rows given the fields of its units."""
    (seed, step, first, last), (start, n), (vectors, uniforms) = counter, units, scratch
    zero, others, u = row(vectors, (0, 0), n), row(vectors, (1, 0), n), row(uniforms, (0,), n)
    for r in range(first, last):
        key = row_key(seed, step, r)
        for i in range(n):
            u[i] = uniform(key, layer.first + i)
        b, drawn = row(fields, (r - first, 0), n), row(out, (r, start), n)
        tilted_draws(layer.units, np.int64(0), b, zero, u, drawn, others)


def gibbs_work(visible, hidden, dtype, n_workers=1):
    """Memory of `gibbs` for so many threads."""
    n_columns = max(
        layer.couplings.shape[0] * layer.couplings.shape[2] for layer in (visible, hidden)
    )
    rows = np.zeros((n_workers, CHAIN_ROWS + 3, n_columns), dtype)
    return new_work(GibbsMemory(rows, np.zeros((n_workers, n_columns))))


@kernel(views=True)
def gibbs(address, visible, hidden, seed, n_sweeps, v, h, work):
    """Sample hidden units given visible ones and back, `n_sweeps` times for each queued row."""
    (n_rows, n_visible), n_hidden, start = v.shape, h.shape[1], np.int64(0)
    scratch, queue = work
    w = fetch_and_increment(row(queue, (1,), 1))
    if w >= scratch.rows.shape[0]:
        return
    fields, memory = (
        scratch.rows[w, :CHAIN_ROWS],
        (scratch.rows[w, CHAIN_ROWS:], scratch.uniforms[w]),
    )
    first = next_task(queue) * CHAIN_ROWS
    while first < n_rows:
        last = smaller(n_rows, first + CHAIN_ROWS)
        n_here, v_rows, h_rows = last - first, v[first:last], h[first:last]
        for sweep in range(n_sweeps):
            if stopped(queue):
                return
            product(address, v_rows, n_here, start, hidden.couplings, fields, n_hidden)
            counter = seed, 2 * sweep + 1, first, last
            draw_rows(hidden, counter, fields, memory, (start, n_hidden), h)
            product(address, h_rows, n_here, start, visible.couplings, fields, n_visible)
            counter = seed, 2 * sweep + 2, first, last
            draw_rows(visible, counter, fields, memory, (start, n_visible), v)
        first = next_task(queue) * CHAIN_ROWS
