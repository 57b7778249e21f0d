"""Counter-based random numbers inside kernels: a function of (seed, step, row, unit), no state.

The chain of a row depends neither on the other rows nor on the number of threads.
"""

import numpy as np

from fastmf._jit.kernel import kernel

# Constants of the SplitMix64 generator (Steele, Lea & Flood 2014).
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31, _S11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)


@kernel(mode="inner")
def _mix(x):
    x = (x ^ (x >> _S30)) * _MIX_1
    x = (x ^ (x >> _S27)) * _MIX_2
    return x ^ (x >> _S31)


@kernel(mode="inner")
def row_key(seed, step, row):
    """The key of the random numbers of one row in one step."""
    key = _mix(seed + np.uint64(step) * _GOLDEN)
    return _mix(key + np.uint64(row + 1) * _GOLDEN)


@kernel(mode="inner")
def uniform(key, i):
    """A float64 in [0, 1) for unit `i`."""
    return np.float64(_mix(key + np.uint64(i + 1) * _GOLDEN) >> _S11) * 2.0**-53
