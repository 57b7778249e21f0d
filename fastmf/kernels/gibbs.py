"""Block Gibbs sampling of an RBM with two-valued units."""

from fastmf._numba import fetch_and_increment, kernel, unit
from fastmf.kernels.random import row_key, uniform

# Rows that share a pass over the couplings; their fields fit in the first-level cache.
BLOCK_ROWS = 8


@kernel(inner=True)
def _sample_layer(source, couplings, prior, values, seed, step, first_row, b, out):
    """Draw one layer of a few rows given the other."""
    # Slices of rows stay contiguous for the compiler, as slices of the whole would not.
    n = out.shape[1]
    for r in range(b.shape[0]):
        b[r][:n] = 0
    for k in range(source.shape[1]):
        row_of_couplings = couplings[k]
        for r in range(source.shape[0]):
            # Most units of most data are zero: skipping them beats a dense product.
            x = source[r, k]
            if x != 0:
                b_r = b[r][:n]
                for i in range(b_r.shape[0]):
                    b_r[i] += x * row_of_couplings[i]
    low, range_ = values[0], values[1] - values[0]
    for r in range(out.shape[0]):
        key = row_key(seed, step, first_row + r)
        b_r, out_r = b[r][:n], out[r]
        zero = 0 * b_r[0]
        for i in range(out_r.shape[0]):
            mean = unit(prior, i).moments(b_r[i], zero)[0]
            out_r[i] = values[1] if low + range_ * uniform(key, i) < mean else low


@kernel
def gibbs(
    weights, transposed, visible, hidden, visible_values, hidden_values, seed, n_sweeps, v, h, b,
    queue,
):  # fmt: skip
    """Run the rows in the queue `n_sweeps` times from visible to hidden units and back, in place.

    Parameters
    ----------
    weights, transposed : array of shape (n_visible, n_hidden) and (n_hidden, n_visible)
    visible, hidden : unit prior
    visible_values, hidden_values : tuple of two floats
        The two values of the units, the lower first.
    seed : uint64
    n_sweeps : int
    v, h : array of shape (n_rows, n_visible) and (n_rows, n_hidden)
        States; `v` is the start.
    b : array of shape (n_rows, max(n_visible, n_hidden))
        Work space.
    queue : int64 array of shape (1,)
        Next block of rows that nobody has taken; shared by all threads that call this.
    """
    n_rows = v.shape[0]
    first = fetch_and_increment(queue) * BLOCK_ROWS
    while first < n_rows:
        last = min(n_rows, first + BLOCK_ROWS)
        v_rows, h_rows, b_rows = v[first:last], h[first:last], b[first:last]
        for sweep in range(n_sweeps):
            _sample_layer(
                v_rows, weights, hidden, hidden_values, seed, 2 * sweep + 1, first, b_rows, h_rows
            )
            _sample_layer(
                h_rows, transposed, visible, visible_values, seed, 2 * sweep + 2, first, b_rows,
                v_rows,
            )  # fmt: skip
        first = fetch_and_increment(queue) * BLOCK_ROWS
