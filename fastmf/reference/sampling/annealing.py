"""NumPy twin of `fastmf.kernels.sampling.annealing`, with the same random numbers."""

from itertools import pairwise

import numpy as np
from scipy.special import expit, softmax

from fastmf.reference.linear.product import unpacked
from fastmf.reference.units import draws, log_partition

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _mix(x):
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def uniforms(seed, step, shape):
    """Generate uniform numbers in [0, 1) as a function of seed, step, row and unit."""
    rows, units = (np.arange(1, n + 1, dtype=np.uint64) * _GOLDEN for n in shape)
    step = np.array([step], dtype=np.uint64)
    keys = _mix(_mix(np.array([seed], dtype=np.uint64) + step * _GOLDEN) + rows)
    return (_mix(keys[:, None] + units) >> np.uint64(11)) * 2.0**-53


def anneal_layers(address, visible, hidden, path, seed, chains, log_weights, work):
    """Move all chains along the path, and sum their log importance weights."""
    v, h = chains
    weights = unpacked(hidden.couplings, h.shape[1])
    transposed = unpacked(visible.couplings, v.shape[1])
    zero = v.dtype.type(0)

    def tilt(base, beta, fields):
        beta = v.dtype.type(beta)
        return (1 - beta) * base + beta * fields

    for step, (old, new) in enumerate(pairwise(path.betas), 1):
        log_weights -= (new - old) * (v @ path.visible_base.astype(np.float64))
        tilts = [tilt(path.hidden_base, beta, v @ weights) for beta in (old, new)]
        for sign, b in zip((-1, 1), tilts, strict=True):
            values = log_partition(hidden.units.prior, b, zero)
            log_weights += sign * values.sum(1, dtype=np.float64)
        h[:] = draws(hidden.units.prior, tilts[1], uniforms(seed, 2 * step - 1, h.shape))
        b = tilt(path.visible_base, new, h @ transposed)
        v[:] = draws(visible.units.prior, b, uniforms(seed, 2 * step, v.shape))


def anneal_visible(couplings, units, path, seeds, x, log_weights, work):
    """Move all chains along the path, one unit or group after the other in all chains."""
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
