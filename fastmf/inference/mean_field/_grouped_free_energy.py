"""The mean-field log-partition of models with groups of states.

With the tilts b and a of `fastmf.kernels.mean_field.groups`, before external ones are added, and f
= W' m,

    log Z = sum_groups [log Z_i(b + field, a + precision) + (m.f + m.a - 3 m.b) / 4]
            + sum over other units [log Z_i - m b / 2 + a v / 4]

which are the terms of the units, log Z_i - m.b + a (m^2 + v) / 2 with m^2 + v = m in a group, and
half of the first two orders in the couplings of each unit, m' W m and tr(C W C W') / 2.
"""

import numpy as np

from fastmf.priors._groups import column_is_group, column_sizes, groups, has_groups


def log_partition_of_rows(model, layout, state, order, tilt):
    """Mean-field log-partition of each row; see `free_energy`."""
    with np.errstate(invalid="ignore", over="ignore"):
        total = np.zeros(state.shape[1])
        means, variances = state[:2]
        for k, (prior, units) in enumerate(zip(model.layers, layout.bounds, strict=True)):
            moments = means[:, units], variances[:, units]
            tilts = fields(layout, k, means, variances, order)
            total += of_units(prior, moments, tilts, tilt, units)
        return total


def of_units(prior, moments, tilts, tilt, units):
    """Sum log-partitions of some units and half of their pair terms; `tilts` are W' m, b and a."""
    (mean, var), (field, b, a), scalar = moments, tilts, ~_in_group(prior)
    parts = [(mean * x).astype(np.float64) for x in (field, a, b)]
    total = np.where(scalar, 0, parts[0] + parts[1] - 3 * parts[2]).sum(1) / 4
    total += np.where(scalar, a * var / 4 - parts[2] / 2, 0).sum(1)
    return total + _units_alone(prior, (mean, var, b, a), [b, a], tilt, units)


def fields(layout, k, means, variances, order):
    """Fields W' m on the units of layer k, and the tilts b and a, for means of all units."""
    couplings, prior, units = layout.couplings[k], layout.priors[k], layout.bounds[k]
    sources = slice(layout.source[k], layout.source[k] + len(couplings))
    source_mean, source_var, mean = means[:, sources], variances[:, sources], means[:, units]
    field = source_mean @ couplings
    if order < 2:
        return field, field.copy(), np.zeros_like(field)
    of_sources = layout.groups_of_sources[k]
    # In a group v + m^2 is m.
    second = source_var.copy()
    for group in of_sources:
        second[:, group] = source_mean[:, group]
    a = -second @ np.square(couplings)
    for group in of_sources:
        a += np.square(source_mean[:, group] @ couplings[group])
    b = field + a * mean
    for group in groups(prior):
        own = mean[:, group] @ couplings[:, group].T
        response = covariance_times(source_mean, source_var, of_sources, own)
        b[:, group] = field[:, group] - response @ couplings[:, group]
    return field, b, a


def covariance_times(mean, var, groups_, x):
    """C x with the covariance C of a layer: v x, and in a group m (x - m.x)."""
    out = var * x
    for group in groups_:
        m, here = mean[:, group], x[:, group]
        out[:, group] = m * (here - np.einsum("ij,ij->i", m, here)[:, None])
    return out


def second_order(weights, below, above):
    """tr(C W C' W') / 2 of each row, for two layers given as prior, mean and variance."""
    (prior, mean, _), (prior_above, mean_above, _) = below, above
    second, second_above = second_moments(*below), second_moments(*above)
    total = np.einsum("ij,ij->i", second @ np.square(weights), second_above)
    others = groups(prior_above)
    for group in groups(prior):
        s = mean[:, group] @ weights[group]
        total -= np.einsum("ij,ij,ij->i", s, s, second_above)
        for other in others:
            total += np.einsum("ij,ij->i", s[:, other], mean_above[:, other]) ** 2
    for group in others:
        r = mean_above[:, group] @ weights[:, group].T
        total -= np.einsum("ij,ij,ij->i", r, r, second)
    return total / 2


def second_moments(prior, mean, var):
    """The variance, and in a group the mean, which is v + m^2 there."""
    return np.where(_in_group(prior), mean, var) if has_groups(prior) else var


def _in_group(prior):
    return np.repeat(column_is_group(prior), column_sizes(prior))


def _units_alone(prior, state, tilts, tilt, units):
    """Log-partitions of the units under their `tilts`, to which external ones are added.

    Clamped units have none, and their terms -b m + a (m^2 + v) / 2 are taken back.
    """
    mean, var, b, a = state
    clamped = np.broadcast_to(tilt.clamped[:, units], mean.shape)
    second = np.where(_in_group(prior), mean, mean * mean + var)
    taken_back = np.where(clamped, a * second / 2 - b * mean, 0).sum(1)
    b, a = tilts[0] + tilt.field[:, units], tilts[1] + tilt.precision[:, units]
    own = prior.log_partition(b, a)
    firsts = np.cumsum([0, *column_sizes(prior)[:-1]])
    own = np.where(clamped[:, firsts], 0, own)
    return own.sum(1, dtype=np.float64) - taken_back
