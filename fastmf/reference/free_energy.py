"""NumPy twin of `fastmf.kernels.free_energy`, where the equation is."""

import numpy as np

from fastmf.reference.product import unpacked


def free_energy(layers, state, order, tilt, queue, out):
    """Mean-field log-partition of each row, and the tilts of its units."""
    mean, var, b, a = state
    clamped = np.broadcast_to(tilt.clamped, mean.shape) if len(tilt.clamped) else np.zeros(1, bool)
    field = tilt.field if len(tilt.field) else 0
    precision = tilt.precision if len(tilt.precision) else 0
    sites = np.zeros(mean.shape)
    pairs = np.zeros(mean.shape)
    for layer in layers:
        units = slice(layer.start, layer.start + layer.n_units)
        couplings, squares, cubes = (
            unpacked(panels, layer.n_units) if len(panels) else None for panels in layer[4:7]
        )
        source = slice(layer.source, layer.source + len(couplings))
        m, v = mean[:, units], var[:, units]
        a[:, units] = -(var[:, source] @ squares) if order >= 2 else 0
        fields = mean[:, source] @ couplings
        b[:, units] = fields + a[:, units] * m
        pairs[:, units] = m * fields / 2 - a[:, units] * v / 4
        if order == 3:
            cubic = _third_cumulants(layers, mean)[:, source] @ cubes
            cumulant, derivative = layer.prior.third_cumulant(m)
            b[:, units] += cubic * derivative / 6
            pairs[:, units] += cumulant * cubic / 12
    sites = a * (mean * mean + var) / 2 - b * mean
    b += field
    a += precision
    for layer in layers:
        units = slice(layer.start, layer.start + layer.n_units)
        sites[:, units] += layer.prior.log_partition(b[:, units], a[:, units])
    out[:] = pairs.sum(1) + np.where(clamped, 0, sites).sum(1)


def _third_cumulants(layers, mean):
    third = np.empty_like(mean)
    for layer in layers:
        units = slice(layer.start, layer.start + layer.n_units)
        third[:, units] = layer.prior.third_cumulant(mean[:, units])[0]
    return third
