"""NumPy twin of `fastmf.kernels.annealed`, with the same random numbers."""

from itertools import pairwise

import numpy as np

from fastmf.reference.product import unpacked
from fastmf.reference.random import uniforms
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
        if hasattr(path, "group_starts"):
            _draw_groups(
                path.group_starts, path.visible_base + new * shift, (seed, 2 * step + 1), v
            )
        else:
            v[:] = uniforms(seed, 2 * step + 1, v.shape) < sigmoid(path.visible_base + new * shift)


def _draw_groups(starts, log_weights, counter, out):
    u, out[:] = uniforms(*counter, (len(out), len(starts) - 1)), 0
    for group, (first, last) in enumerate(pairwise(starts)):
        here = log_weights[:, first:last]
        below = np.cumsum(np.exp(here - here.max(1)[:, None]), axis=1, dtype=np.float64)
        taken = (below <= u[:, group, None] * below[:, -1:]).sum(1)
        out[np.arange(len(out)), first + np.minimum(taken, last - first - 1)] = 1
