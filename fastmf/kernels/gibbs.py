"""Block Gibbs sampling of an RBM with two-valued units."""

import numpy as np

from fastmf._numba import fetch_and_increment, kernel
from fastmf.kernels.product import product
from fastmf.kernels.random import row_key, uniform
from fastmf.priors._protocol import tilted_moments

# Rows that one task is about; they share a pass over the couplings.
ROWS = 24


@kernel(inner=True)
def _sample_layer(source, couplings, prior, values, seed, step, first_row, fields, scratch, out):
    """Draw one layer of a few rows given the other."""
    n_rows, n_units = out.shape
    n_panels, _, width = couplings.shape
    start = np.int64(0)
    for panel in range(n_panels):
        product(source, n_rows, start, couplings, panel, fields, panel * width, n_units)
    low, high = values
    zero, mean, var = scratch[0, :n_units], scratch[1, :n_units], scratch[2, :n_units]
    for r in range(n_rows):
        tilted_moments(prior, start, fields[r][:n_units], zero, mean, var)
        key, out_r = row_key(seed, step, first_row + r), out[r]
        for i in range(n_units):
            out_r[i] = high if low + (high - low) * uniform(key, i) < mean[i] else low


@kernel
def gibbs(
    to_hidden, to_visible, visible, hidden, visible_values, hidden_values, seed, n_sweeps, v, h,
    queue,
):  # fmt: skip
    """Run the rows in the queue `n_sweeps` times from visible to hidden units and back, in place.

    Parameters
    ----------
    to_hidden, to_visible : array of shape (n_panels, n_source, panel_width)
        The packed couplings and those of the transposed matrix.
    visible, hidden : unit prior
    visible_values, hidden_values : tuple of two floats
        The two values of the units, the lower first.
    seed : uint64
    n_sweeps : int
    v, h : array of shape (n_rows, n_visible) and (n_rows, n_hidden)
        States; `v` is the start.
    queue : int64 array of shape (1,)
        Next group of rows that nobody has taken; shared by all threads that call this.
    """
    n_rows = v.shape[0]
    n_columns = max(to_hidden.shape[0], to_visible.shape[0]) * to_hidden.shape[2]
    fields, scratch = np.zeros((ROWS, n_columns), v.dtype), np.zeros((3, n_columns), v.dtype)
    first = fetch_and_increment(queue) * ROWS
    while first < n_rows:
        last = min(n_rows, first + ROWS)
        v_rows, h_rows = v[first:last], h[first:last]
        for sweep in range(n_sweeps):
            _sample_layer(
                v_rows, to_hidden, hidden, hidden_values, seed, 2 * sweep + 1, first, fields,
                scratch, h_rows,
            )  # fmt: skip
            _sample_layer(
                h_rows, to_visible, visible, visible_values, seed, 2 * sweep + 2, first, fields,
                scratch, v_rows,
            )  # fmt: skip
        first = fetch_and_increment(queue) * ROWS
