"""NumPy twin of `fastmf.kernels.mean_field.groups`: the updates of models with groups of states."""

from functools import partial

import numpy as np

from fastmf.priors._protocol import take
from fastmf.reference.linear.product import unpacked
from fastmf.reference.mean_field.units import update_units

# As in `fastmf.kernels.mean_field.arguments`, which a reference does not import.
SCALARS, GROUP_RUN, GROUP = range(3)


def updates(sweep, settings, rows):
    """One sweep: a function of each target, in order."""
    layers, groups = sweep.layers.of_model, sweep.layers.groups
    rows.group_fields = np.zeros((len(rows.index), groups[0].shifted), rows.mean.dtype)
    steps = []
    for k, first, last in sweep.blocks:
        layer, sources = layers[k], groups[k].sources
        width = layer.couplings.shape[2]
        for target in groups[k].targets[first:last]:
            panels = slice(target[2], target[2] - (-target[1] // width))
            couplings = unpacked(layer.couplings[panels], target[1])
            steps.append(partial(_update, layer, couplings, target, sources, settings, rows))
    return steps


def panels_of(layers, k):
    """First unit, number of units and couplings of each block that is packed together."""
    layer, width = layers.of_model[k], layers.of_model[k].couplings.shape[2]
    if not layers.groups:
        return [(0, layer.n_units, layer.couplings)]
    return [
        (first, n, layer.couplings[panel : panel - (-n // width)])
        for first, n, panel, *_ in layers.groups[k].targets
    ]


def _update(layer, couplings, target, sources, settings, rows):
    """New moments of a group, or of some other units, in all rows."""
    first, n, _, of_group, _, place = target
    units = slice(layer.start + first, layer.start + first + n)
    neighbours = slice(layer.source, layer.source + len(couplings))
    source_mean, source_var = rows.mean[:, neighbours], rows.var[:, neighbours]
    prior = take(layer.prior, slice(first, first + n))
    second = source_var.copy()
    for begin, size, kind, *_ in sources:
        if kind == GROUP_RUN:
            second[:, begin : begin + size] = source_mean[:, begin : begin + size]
    onsager = second @ couplings**2
    shifted = source_mean
    if settings.order > 1 and of_group >= 0:
        effect = np.empty_like(source_mean)
        for begin, size, _, _, offset in sources:
            fields = rows.group_fields[:, of_group + offset : of_group + offset + size]
            effect[:, begin : begin + size] = fields
        shifted = source_mean - covariance_times(source_mean, source_var, sources, effect)
    for begin, size, kind, position, _ in sources:
        if kind == GROUP:
            fields = source_mean[:, begin : begin + size] @ couplings[begin : begin + size]
            rows.group_fields[:, position + place : position + place + n] = fields
            onsager -= fields**2
    products = shifted @ couplings, onsager
    update_units(rows, units, prior, products, settings.order, alone=of_group < 0)


def covariance_times(mean, var, sources, x):
    """C x: the response of the sources to fields x."""
    out = var * x
    for begin, size, kind, *_ in sources:
        if kind == GROUP:
            group = slice(begin, begin + size)
            m = mean[:, group]
            out[:, group] = m * (x[:, group] - (m * x[:, group]).sum(1)[:, None])
    return out
