"""Block Gibbs sampling of an RBM with two-valued units."""

from typing import NamedTuple

import numpy as np

from fastmf._numba import fetch_and_increment, kernel
from fastmf.kernels.product import product
from fastmf.kernels.random import row_key, uniform
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
    """

    units: np.ndarray
    couplings: np.ndarray
    low: float
    high: float


@kernel(inner=True)
def sample_layer(address, layer, source, counter, fields, scratch, out):
    """Draw one layer of a few rows given the other.

    `counter` holds seed, step and first row, from which the random numbers are made.
    """
    n_rows, n_units = out.shape
    start = np.int64(0)
    product(address, source, n_rows, start, layer.couplings, fields, n_units)
    seed, step, first_row = counter
    low, high = layer.low, layer.high
    zero, mean, var = scratch[0, :n_units], scratch[1, :n_units], scratch[2, :n_units]
    for r in range(n_rows):
        tilted_moments(layer.units, start, fields[r][:n_units], zero, mean, var)
        key, out_r = row_key(seed, step, first_row + r), out[r]
        for i in range(n_units):
            out_r[i] = high if low + (high - low) * uniform(key, i) < mean[i] else low


@kernel
def gibbs(address, visible, hidden, seed, n_sweeps, v, h, queue):
    """Sample hidden units given visible ones and back, `n_sweeps` times for each row in the queue.

    Parameters
    ----------
    address : int
        Of the compiled product.
    visible, hidden : TwoValuedLayer
    seed : uint64
    n_sweeps : int
    v, h : array of shape (n_rows, n_visible) and (n_rows, n_hidden)
        States, changed in place; `v` is the start.
    queue : int64 array of shape (1,)
        Next group of rows not taken yet; shared by all threads that call this.
    """
    n_rows = v.shape[0]
    n_panels = max(hidden.couplings.shape[0], visible.couplings.shape[0])
    n_columns = n_panels * hidden.couplings.shape[2]
    fields, scratch = np.zeros((TASK_ROWS, n_columns), v.dtype), np.zeros((3, n_columns), v.dtype)
    first = fetch_and_increment(queue) * TASK_ROWS
    while first < n_rows:
        last = min(n_rows, first + TASK_ROWS)
        v_rows, h_rows = v[first:last], h[first:last]
        for sweep in range(n_sweeps):
            counter = (seed, 2 * sweep + 1, first)
            sample_layer(address, hidden, v_rows, counter, fields, scratch, h_rows)
            counter = (seed, 2 * sweep + 2, first)
            sample_layer(address, visible, h_rows, counter, fields, scratch, v_rows)
        first = fetch_and_increment(queue) * TASK_ROWS
