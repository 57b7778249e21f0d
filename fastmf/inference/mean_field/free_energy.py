"""The mean-field log-partition (minus the free energy) of given means and variances.

With b and a as in `fastmf.kernels.mean_field.units`, before external tilts are added, and f = W' m,

    log Z = sum_i [log Z_i(b + field, a + precision) - b m + a (m^2 + v) / 2]
            + sum_(i,j) [W m_i m_j + W^2 v_i v_j / 2 + W^3 k_i k_j / 6]

where the second sum has each pair once, and its three terms are those of order 1, 2 and 3. Half of
the pair terms of each unit, and its terms in the first sum, make

    log Z_i - m b / 2 + a v / 4                       for a unit, to second order
    log Z_i + (m.f + m.a - 3 m.b) / 4                 for a group of states, where v + m^2 = m

with b and a of `fastmf.kernels.mean_field.groups`, which a layout computes as its `fields`.
"""

from contextlib import nullcontext
from itertools import pairwise

import numpy as np

from fastmf._threads.workers import for_each, one_blas_thread, workers_for
from fastmf.kernels.linear.product import TASK_ROWS
from fastmf.models._layered import Layered
from fastmf.priors._groups import column_is_group, column_sizes, groups, has_groups

# Entries of the arrays of some rows that are taken together, so that they stay in the cache.
CACHED_ENTRIES = 1 << 17


def log_partition_of_rows(layout, state, order, tilt, n_threads=None):
    """Compute the log-partition of each row; clamped units have pair terms only."""
    n_rows, n_units = state.shape[1:]
    # All couplings are read once for each block of rows.
    step = max(TASK_ROWS, CACHED_ENTRIES // n_units)
    starts, out = range(0, n_rows, step), np.empty(n_rows)

    def fill_block(first):
        rows = slice(first, first + step)
        of_rows = tilt._make(part[rows] if len(part) > 1 else part for part in tilt)
        with np.errstate(invalid="ignore", over="ignore"):
            cumulants, total = _cumulants(layout, state[:2, rows], order), 0.0
            for k, (prior, units) in enumerate(zip(layout.priors, layout.bounds, strict=True)):
                fields = layout.fields(k, cumulants, order)
                parts = [part[:, units] for part in cumulants]
                total += _of_units(prior, layout.grouped, parts, fields, of_rows, units)
            out[rows] = total

    n_workers = workers_for(len(starts), 100 * n_rows * n_units, n_threads)
    # Products of groups are BLAS's.
    with one_blas_thread() if layout.grouped else nullcontext():
        for_each(fill_block, starts, n_workers)
    return out


def _cumulants(layout, state, order):
    """Means and variances of all units, and at order 3 their third cumulants."""
    if order < 3:
        return [*state]
    third = np.empty_like(state[0])
    for prior, units in zip(layout.priors, layout.bounds, strict=True):
        third[:, units] = prior.third_cumulant(state[0][:, units])[0]
    return [*state, third]


def _of_units(prior, grouped, cumulants, fields, tilt, units):
    """Sum log-partitions of some units and half of their pair terms; b and a are overwritten."""
    (m, v, *k), (f, b, a, *cubic) = cumulants, fields
    total = _sum(a, v) / 4 - _sum(m, b) / 2
    if grouped and has_groups(prior):
        of_groups = np.where(_in_group(prior), (m * (f + a - b) - a * v) / 4, 0)
        total += of_groups.sum(1, dtype=np.float64)
    for third, product in zip(k, cubic, strict=True):
        more = product * (prior.third_cumulant(m)[1] / 6)
        total += _sum(third, product) / 12 - _sum(m, more)
        b += more
    clamped = np.broadcast_to(tilt.clamped[:, units], m.shape)
    any_clamped = tilt.clamped.any()
    if any_clamped:  # their terms of the first sum are taken back
        second = second_moments(prior, m, m * m + v)
        total -= np.where(clamped, a * second / 2 - b * m, 0).sum(1)
    for natural, external in ((b, tilt.field), (a, tilt.precision)):
        if external.any():
            natural += external[:, units]
    alone = prior.log_partition(b, a)
    if any_clamped:
        firsts = np.cumsum([0, *column_sizes(prior)[:-1]])
        alone = np.where(clamped[:, firsts], 0, alone)
    return total + alone.sum(1, dtype=np.float64)


def _sum(x, y):
    """Sums over the units of each row, in double precision."""
    return np.einsum("ij,ij->i", x, y, dtype=np.float64)


def second_moments(prior, mean, var):
    """The variance, and in a group the mean, which is v + m^2 there."""
    return np.where(_in_group(prior), mean, var) if has_groups(prior) else var


def _in_group(prior):
    return np.repeat(column_is_group(prior), column_sizes(prior))


def log_partition_of_tilts(model, b, a, order, field=0.0, precision=0.0):
    """Log-partition as a function of the moments that tilts of the units give, by layer.

    It is the entropy of the units less their energy, with the pair terms up to second order.
    """
    moments, total = [], 0.0
    for prior, b_, a_ in zip(model.layers, b, a, strict=True):
        mean, var = prior.moments(b_, a_)
        moments.append((prior, mean, var))
        square = second_moments(prior, mean, mean * mean + var)
        total = total + prior.log_partition(b_, a_).sum(1)
        total = total + ((a_ - precision) * square / 2 + (field - b_) * mean).sum(1)
    layered = isinstance(model, Layered)
    pairs = list(pairwise(moments)) if layered else [(moments[0], moments[0])]
    couplings = model.couplings if layered else (model.couplings,)
    for weights, (below, above) in zip(couplings, pairs, strict=True):
        terms = ((below[1] @ weights) * above[1]).sum(1)
        if order > 1:
            terms = terms + _second_order(weights, below, above)
        total = total + (terms if layered else terms / 2)
    return total


def _second_order(weights, below, above):
    """tr(C W C' W') / 2 of each row, for two layers given as prior, mean and variance."""
    (prior, mean, _), (prior_above, mean_above, _) = below, above
    second, second_above = second_moments(*below), second_moments(*above)
    total = np.einsum("ij,ij->i", second @ np.square(weights), second_above)
    groups_above = groups(prior_above)
    for group in groups(prior):
        s = mean[:, group] @ weights[group]
        total -= np.einsum("ij,ij,ij->i", s, s, second_above)
        for group_above in groups_above:
            total += np.einsum("ij,ij->i", s[:, group_above], mean_above[:, group_above]) ** 2
    for group in groups_above:
        r = mean_above[:, group] @ weights[:, group].T
        total -= np.einsum("ij,ij,ij->i", r, r, second)
    return total / 2
