"""NumPy twin of `fastmf.kernels.mean_field.groups_third`: groups of states to third order.

With the centred couplings C of a pair of groups, or W - s of a group and another unit, the third
order of the log-partition is the sum over pairs of <C^3> / 6, over independent states.
"""

from functools import partial

import numpy as np

from fastmf.priors._protocol import take
from fastmf.reference.mean_field.units import update_units

# As in `fastmf.kernels.mean_field.arguments`, which a reference does not import.
SCALARS, GROUP_RUN, GROUP = range(3)


def updates(sweep, settings, rows):
    """One sweep: a function of each target, in order."""
    layers, groups = sweep.layers.of_model, sweep.layers.groups
    found = []
    for k, first, last in sweep.blocks:
        layer, sources = layers[k], groups[k].sources
        for target in groups[k].targets[first:last]:
            couplings = _couplings(layer, target)
            found.append(partial(_update, layer, couplings, target, sources, rows))
    return found


def _couplings(layer, target):
    """The couplings to a target, (n_source, n)."""
    first, n, _, own, *_ = target
    n_source = layer.couplings.shape[1]
    block = layer.couplings.ravel()[n_source * first : n_source * (first + n)]
    return block.reshape(n, n_source).T if own >= 0 else block.reshape(n_source, n)


def _update(layer, couplings, target, sources, rows, fresh):
    """New moments of a group, or of some other units, in all rows."""
    first, n, _, own, *_ = target
    here = slice(layer.start + first, layer.start + first + n)
    mean, prior = rows.mean[:, here], take(layer.prior, slice(first, first + n))
    products = np.zeros((3, *mean.shape), mean.dtype)
    for begin, size, kind, *_ in sources:
        at = slice(layer.source + begin, layer.source + begin + size)
        source, w = (rows.mean[:, at], rows.var[:, at], rows.third[:, at]), couplings[begin:][:size]
        if kind == GROUP_RUN:
            continue
        if own >= 0:
            of_source = _group_from_units if kind == SCALARS else _group_from_group
            parts = of_source(w, mean, source)
        else:
            parts = _from_units(w, *source) if kind == SCALARS else _from_group(w, source[0])
        for total, part in zip(products, parts, strict=False):
            total += part
    update_units(rows, here, prior, products, 3, True, alone=own < 0)


def _from_units(w, h, c, k):
    return h @ w, c @ w**2, k @ w**3


def _from_group(w, h):
    """The cumulants of the field of a group."""
    first, second, third = h @ w, h @ w**2, h @ w**3
    variance = second - first**2
    return first, variance, third - 3 * first * second + 2 * first**3


def _group_from_units(w, mean, source):
    """Terms of other units in the tilts of a group."""
    h, c, k = source
    s = mean @ w.T
    v = mean @ (w**2).T - s**2
    third = k * (s**2 - v) @ w - k * s @ w**2 + k @ w**3 / 3
    return (h - c * s) @ w + third / 2, c @ w**2


def _group_from_group(w, mean, source):
    """Terms of a group in the tilts of another."""
    h = source[0]
    s, r = mean @ w.T, h @ w
    t = np.einsum("ra,ra->r", mean, r)[:, None]
    centred = w - s[:, :, None] - r[:, None, :] + t[:, :, None]
    v = np.einsum("ra,rba->rb", mean, centred**2)
    third = np.einsum("rb,rba->ra", h, centred * (centred**2 - 3 * v[:, :, None]))
    return (h * (1 - s)) @ w + r * t + third / 6, h @ w**2 - r**2
