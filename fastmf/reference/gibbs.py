"""Block Gibbs sampling in NumPy, with the random numbers of `fastmf.kernels.gibbs`."""

import numpy as np

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _mix(x):
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _uniforms(seed, step, shape):
    """Numbers in [0, 1) that are a function of seed, step, row and unit."""
    rows, units = (np.arange(1, n + 1, dtype=np.uint64) * _GOLDEN for n in shape)
    step = np.array([step], dtype=np.uint64)
    keys = _mix(_mix(np.array([seed], dtype=np.uint64) + step * _GOLDEN) + rows)
    return (_mix(keys[:, None] + units) >> np.uint64(11)) * 2.0**-53


def gibbs(
    weights, transposed, visible, hidden, visible_values, hidden_values, seed, n_sweeps, v, h, b,
    queue,
):  # fmt: skip
    """Run every row `n_sweeps` times from visible to hidden units and back, in place."""
    zero = v.dtype.type(0)
    for sweep in range(n_sweeps):
        for step, source, couplings, prior, (low, high), out in (
            (2 * sweep + 1, v, weights, hidden, hidden_values, h),
            (2 * sweep + 2, h, transposed, visible, visible_values, v),
        ):
            mean = prior.moments(source @ couplings, zero)[0]
            below = low + (high - low) * _uniforms(seed, step, out.shape) < mean
            out[:] = np.where(below, high, low)
