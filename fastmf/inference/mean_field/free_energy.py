"""The mean-field log-partition (minus the free energy) as a function of the tilts of the units.

`fastmf.kernels.mean_field.units` measures it at given means and variances.
"""

from itertools import pairwise

import numpy as np

from fastmf.models._layered import Layered
from fastmf.priors._groups import column_is_group, column_sizes, groups, has_groups


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
