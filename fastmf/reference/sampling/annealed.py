"""NumPy twin of `fastmf.kernels.sampling.annealed`, with the same random numbers."""

from itertools import pairwise

import numpy as np

from fastmf.reference.linear.product import unpacked
from fastmf.reference.sampling.random import uniforms
from fastmf.reference.units import draws, log_partition
from fastmf.special import sigmoid, softplus


def annealed(to_hidden, to_visible, path, seed, v, h, log_weights, queue):
    """Take all rows along the path, and add up their log importance weights."""
    weights, transposed = unpacked(to_hidden, h.shape[1]), unpacked(to_visible, v.shape[1])

    def log_partition(shift, beta):
        return softplus(path.hidden_base + beta * shift).sum(1, dtype=np.float64)

    for step, (old, new) in enumerate(pairwise(path.betas), 1):
        log_weights += (new - old) * (v @ path.visible_shift.astype(np.float64))
        old, new = v.dtype.type(old), v.dtype.type(new)
        shift = v @ weights + path.hidden_shift
        log_weights += log_partition(shift, new) - log_partition(shift, old)
        h[:] = uniforms(seed, 2 * step, h.shape) < sigmoid(path.hidden_base + new * shift)
        shift = h @ transposed + path.visible_shift
        v[:] = uniforms(seed, 2 * step + 1, v.shape) < sigmoid(path.visible_base + new * shift)


def annealed_units(address, visible, hidden, path, seed, chains, log_weights, work):
    """The same for units of any kind."""
    v, h = chains
    weights, transposed = (
        unpacked(hidden.couplings, h.shape[1]),
        unpacked(visible.couplings, v.shape[1]),
    )
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
        h[:] = draws(hidden.units.prior, tilts[1], uniforms(seed, 2 * step, h.shape))
        b = tilt(path.visible_base, new, h @ transposed)
        v[:] = draws(visible.units.prior, b, uniforms(seed, 2 * step + 1, v.shape))
