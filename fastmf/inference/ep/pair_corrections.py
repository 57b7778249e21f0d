"""Corrections of expectation propagation by single pairs of discrete units.

With the Gaussian N of a fixed point, its marginals N_i and the tilted units q_i, which have the
same means and variances,

    Z = Z_EP E_N[prod_i q_i(x_i) / N_i(x_i)].

Pair by pair that is, to all orders in each pair (Opper, Paquet & Winther 2013; Cseke & Heskes
2011),

    ln Z - ln Z_EP ~ sum_(i<j) ln sum_(x,y) q_i(x) q_j(y) r_ij(x, y)
    p_i(x) ~ q_i(x) prod_j sum_y q_j(y) r_ij(x, y),        r_ij = N_ij / (N_i N_j),

exact where units are coupled two by two. Without correlations there is nothing to correct.
"""

from typing import NamedTuple

import numpy as np

from fastmf.priors._protocol import has_log_prob, n_units, parts_of
from fastmf.priors._queries import support

# Square of the largest correlation of two units.
MAX_SQUARED_CORRELATION = 1 - 1e-10


class PairCorrections(NamedTuple):
    """Result of `pair_corrections`.

    Parameters
    ----------
    log_partition : float
        Nats to be added.
    changes : array of shape (n_discrete,)
        Changes of the means of discrete units, in the distance of the lowest and the highest value.
    """

    log_partition: float
    changes: np.ndarray


class ValueTable(NamedTuple):
    """Values of discrete units.

    Parameters
    ----------
    units : int array of shape (n_discrete,)
        Numbers of the units that are discrete and have log-weights.
    values, log_weights : array of shape (n_values, n_discrete)
        Padded with a value of the unit, and with -inf.
    """

    units: np.ndarray
    values: np.ndarray
    log_weights: np.ndarray


def value_table(prior):
    """The `ValueTable` of a prior without groups of states."""
    units, columns, first = [np.zeros(0, int)], [], 0
    for part in parts_of(prior):
        last, values = first + n_units(part), support(part)
        if values is not None and has_log_prob(part):
            there = ~np.isnan(values)
            x = np.where(there, values, np.nanmin(values, axis=0))
            columns.append((x, np.where(there, part.log_prob(x), -np.inf)))
            units.append(np.arange(first, last))
        first = last
    most = max((len(x) for x, _ in columns), default=0)
    padded = [np.zeros((2, most, 0))]
    for x, logs in columns:
        below = (0, most - len(x)), (0, 0)
        padded.append([np.pad(x, below, "edge"), np.pad(logs, below, constant_values=-np.inf)])
    return ValueTable(np.concatenate(units), *np.concatenate(padded, axis=2))


def pair_corrections(table, mean, cavity, covariance):
    """The `PairCorrections` of one fixed point."""
    units, x, log_weights = table
    mean, (b, a), covariance = mean[units], cavity[:, units], covariance[np.ix_(units, units)]
    logs = log_weights + b * x - a * x * x / 2
    logs -= np.logaddexp.reduce(logs, axis=0)
    var = covariance.diagonal()
    free = (var > 0) & (np.isfinite(logs).sum(0) > 1)
    scale = np.where(free, 1 / np.sqrt(np.where(free, var, 1)), 0)
    z, correlation = (x - mean) * scale, covariance * scale * scale[:, None]
    np.fill_diagonal(correlation, 0)
    given = [_given(correlation, z[s], z, logs) for s in range(len(x))]
    pairs = np.logaddexp.reduce([p[:, None] + own for p, own in zip(logs, given, strict=True)])
    corrected = logs + np.sum(given, axis=2)
    corrected = np.exp(corrected - np.logaddexp.reduce(corrected, axis=0))
    width = np.maximum(x.max(0) - x.min(0), np.finfo(float).tiny)
    changes = ((corrected - np.exp(logs)) * x).sum(0) / width
    return PairCorrections(float(np.triu(pairs, 1).sum()), changes)


def _given(correlation, value, z, logs):
    """ln sum_y q_j(y) r_ij(x, y) of all pairs (i, j) for a value x of each unit i, standardised."""
    square = np.minimum(correlation * correlation, MAX_SQUARED_CORRELATION)
    slope, curvature = correlation / (1 - square), square / (1 - square) / 2
    total = np.full(correlation.shape, -np.inf)
    for y, log_weight in zip(z, logs, strict=True):
        exponent = slope * (value[:, None] * y) - curvature * (value[:, None] ** 2 + y * y)
        total = np.logaddexp(total, log_weight + exponent)
    return total - np.log1p(-square) / 2
