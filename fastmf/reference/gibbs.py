"""NumPy twin of `fastmf.kernels.gibbs`, with the same random numbers."""

from itertools import pairwise

import numpy as np

from fastmf.reference.product import unpacked
from fastmf.reference.random import uniforms
from fastmf.reference.units import moments


def gibbs(address, visible, hidden, seed, n_sweeps, v, h, work):
    """Sample hidden units given visible ones and back, `n_sweeps` times for each row."""
    zero = v.dtype.type(0)
    for sweep in range(n_sweeps):
        for step, source, layer, out in (
            (2 * sweep + 1, v, hidden, h),
            (2 * sweep + 2, h, visible, v),
        ):
            fields = source @ unpacked(layer.couplings, out.shape[1])
            mean = moments(layer.units.prior, fields, zero)[0]
            if hasattr(layer, "group_starts"):
                _draw_groups(layer.group_starts, mean, seed, step, out)
                continue
            width = layer.high - layer.low
            below = layer.low + width * uniforms(seed, step, out.shape) < mean
            out[:] = np.where(below, layer.high, layer.low)


def _draw_groups(starts, mean, seed, step, out):
    u, out[:] = uniforms(seed, step, (len(out), len(starts) - 1)), 0
    for group, (first, last) in enumerate(pairwise(starts)):
        below = np.cumsum(mean[:, first:last], axis=1)
        taken = np.minimum((below <= u[:, group, None]).sum(1), last - first - 1)
        out[np.arange(len(out)), first + taken] = 1
