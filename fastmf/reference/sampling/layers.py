"""NumPy twin of `fastmf.kernels.sampling.layers`, with the same random numbers."""

from itertools import pairwise

import numpy as np

from fastmf.reference.linear.product import unpacked
from fastmf.reference.sampling.random import uniforms
from fastmf.reference.units import draws, log_partition


def anneal_layers(address, visible, hidden, path, seed, chains, log_weights, work):
    """Take all chains along the path, and add up their log importance weights."""
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
