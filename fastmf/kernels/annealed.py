"""Annealed importance sampling of an RBM with units of values 0 and 1.

Along the path the log-odds of a unit are base + beta (field - base + W x): at beta = 0 the units of
the base, uncoupled, at beta = 1 those of the model.
"""

import numpy as np

from fastmf._numba import REORDER, fetch_and_increment, kernel
from fastmf.kernels.product import product
from fastmf.kernels.random import row_key, uniform
from fastmf.special import constant, exp, softplus

# Rows that one task is about; they share a pass over the couplings.
ROWS = 24


@kernel(inner=True, fastmath=REORDER)
def _log_partition(base, slope, beta):
    """Sum of log(1 + exp(t)), t = base + beta * slope, in double precision."""
    total = 0.0
    for j in range(slope.shape[0]):
        total += softplus(base[j] + beta * slope[j])
    return total


@kernel(inner=True)
def _draw(key, base, slope, beta, uniforms, out):
    """Set out to 1 with log-odds base + beta * slope, to 0 otherwise."""
    # Two loops, because only one of them consists of vectors of floats.
    for i in range(out.shape[0]):
        uniforms[i] = uniform(key, i)
    one = constant(1.0, slope[0])
    for i in range(out.shape[0]):
        e = exp(-(base[i] + beta * slope[i]))
        out[i] = one if uniforms[i] * (one + e) < one else 0 * one


@kernel
def annealed(
    to_hidden, to_visible, visible, hidden, visible_base, hidden_base, betas, seed, v, h,
    log_weights, queue,
):  # fmt: skip
    """Take the rows in the queue along the path, and add up their log importance weights.

    Parameters
    ----------
    to_hidden, to_visible : array of shape (n_panels, n_source, panel_width)
        The packed couplings and those of the transposed matrix.
    visible, hidden : array of shape (n_visible,) and (n_hidden,)
        field - base: by how much the log-odds of an uncoupled unit change along the path.
    visible_base, hidden_base : arrays of the same shapes
        Log-odds at beta = 0.
    betas : float64 array of shape (n_steps + 1,)
        Rising or falling. Each step adds log p(v; new) - log p(v; old), unnormalised, to the
        weight, then draws hidden and visible units at the new one.
    seed : uint64
    v, h : array of shape (n_rows, n_visible) and (n_rows, n_hidden)
        States; `v` is the start.
    log_weights : float64 array of shape (n_rows,)
        Added to.
    queue : int64 array of shape (1,)
        Next group of rows that nobody has taken; shared by all threads that call this.
    """
    n_rows, n_visible = v.shape
    n_hidden = h.shape[1]
    visible_panels, _, width = to_visible.shape
    hidden_panels = to_hidden.shape[0]
    slopes = np.zeros((ROWS, max(visible_panels, hidden_panels) * width), v.dtype)
    uniforms = np.zeros(max(n_visible, n_hidden), v.dtype)
    start = np.int64(0)
    first = fetch_and_increment(queue) * ROWS
    while first < n_rows:
        n_here = min(ROWS, n_rows - first)
        v_rows, h_rows = v[first : first + n_here], h[first : first + n_here]
        for step in range(1, betas.shape[0]):
            old, new = v.dtype.type(betas[step - 1]), v.dtype.type(betas[step])
            for panel in range(hidden_panels):
                product(v_rows, n_here, start, to_hidden, panel, slopes, panel * width, n_hidden)
            for r in range(n_here):
                slope, v_r = slopes[r][:n_hidden], v_rows[r]
                for j in range(n_hidden):
                    slope[j] += hidden[j]
                linear = 0.0
                for i in range(n_visible):
                    linear += v_r[i] * visible[i]
                log_weights[first + r] += (
                    (betas[step] - betas[step - 1]) * linear
                    + _log_partition(hidden_base, slope, new)
                    - _log_partition(hidden_base, slope, old)
                )
                key = row_key(seed, 2 * step, first + r)
                _draw(key, hidden_base, slope, new, uniforms, h_rows[r])
            for panel in range(visible_panels):
                product(h_rows, n_here, start, to_visible, panel, slopes, panel * width, n_visible)
            for r in range(n_here):
                slope = slopes[r][:n_visible]
                for i in range(n_visible):
                    slope[i] += visible[i]
                key = row_key(seed, 2 * step + 1, first + r)
                _draw(key, visible_base, slope, new, uniforms, v_rows[r])
        first = fetch_and_increment(queue) * ROWS
