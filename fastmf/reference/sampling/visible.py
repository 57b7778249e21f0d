"""NumPy twin of `fastmf.kernels.sampling.visible`, with the same random numbers."""

from itertools import pairwise

import numpy as np
from scipy.special import expit, softmax

from fastmf.reference.sampling.random import uniforms


def anneal_visible(couplings, units, path, seeds, x, log_weights, work):
    """Take all chains along the path, a unit or group of all of them after the other."""
    matrix, tilt = couplings.astype(np.float64), path.tilt
    for (old, new), seed in zip(pairwise(path.betas), seeds, strict=True):
        log_weights += (new - old) * ((x @ matrix * x).sum(1, dtype=np.float64) / 2 - x @ tilt)
        u = uniforms(seed, 0, x.shape)
        for first, last in pairwise(units.first):
            column = slice(first, last)
            t = new * (x @ matrix[:, column]) + (1 - new) * tilt[column] + units.field[column]
            if last - first == 1:
                low, high = units.low[first], units.high[first]
                is_high = u[:, first] < expit((high - low) * t[:, 0])
                x[:, first] = np.where(is_high, high, low)
            else:
                below = np.cumsum(softmax(t, axis=1), axis=1)[:, :-1] <= u[:, [first]]
                x[:, column] = np.arange(last - first) == below.sum(1)[:, None]
