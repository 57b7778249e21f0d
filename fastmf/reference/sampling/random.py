"""The random numbers of `fastmf.kernels.sampling.random`, a layer at a time."""

import numpy as np

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _mix(x):
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def uniforms(seed, step, shape):
    """Uniform numbers in [0, 1), a function of seed, step, row and unit."""
    rows, units = (np.arange(1, n + 1, dtype=np.uint64) * _GOLDEN for n in shape)
    step = np.array([step], dtype=np.uint64)
    keys = _mix(_mix(np.array([seed], dtype=np.uint64) + step * _GOLDEN) + rows)
    return (_mix(keys[:, None] + units) >> np.uint64(11)) * 2.0**-53
