"""Block Gibbs sampling in NumPy, with the random numbers of `fastmf.kernels.gibbs`."""

import numpy as np

from fastmf.reference.product import unpacked
from fastmf.reference.random import uniforms


def gibbs(
    to_hidden, to_visible, visible, hidden, visible_values, hidden_values, seed, n_sweeps, v, h,
    queue,
):  # fmt: skip
    """Run every row `n_sweeps` times from visible to hidden units and back, in place."""
    zero = v.dtype.type(0)
    weights, transposed = unpacked(to_hidden, h.shape[1]), unpacked(to_visible, v.shape[1])
    for sweep in range(n_sweeps):
        for step, source, couplings, prior, (low, high), out in (
            (2 * sweep + 1, v, weights, hidden, hidden_values, h),
            (2 * sweep + 2, h, transposed, visible, visible_values, v),
        ):
            mean = prior.moments(source @ couplings, zero)[0]
            below = low + (high - low) * uniforms(seed, step, out.shape) < mean
            out[:] = np.where(below, high, low)
