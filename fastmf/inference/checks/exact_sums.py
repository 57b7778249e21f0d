"""Exact sums over the states of small machines, with which all solvers compare converged rows.

States of all units, or of the smaller of two sides without couplings inside, are enumerated; of
other fully visible machines one unit after the other is eliminated. Where sums would take longer
than some tenths of a second for all rows together, none are made.
"""

from typing import NamedTuple

import numpy as np

from fastmf.inference.bp.graphs.units import GraphUnits
from fastmf.inference.mean_field.discrete_units import is_discrete, widths
from fastmf.inference.mean_field.lower_bound import sides_of, terms_of_units
from fastmf.models import BoltzmannMachine
from fastmf.models._couplings import has_forbidden
from fastmf.models._graph_sums import MAX_ENTRIES, is_small
from fastmf.models.exact import states_of
from fastmf.priors._protocol import by_parts, has_log_prob, parts_of
from fastmf.priors._queries import number_of_states

# Numbers of all rows up to which states are enumerated, an eighth of them at a time.
MAX_NUMBERS = 2**21
# Standard deviations that count as the range of a unit of unbounded values.
DEVIATIONS = 4.0


class ExactRows(NamedTuple):
    """Log-partitions (n_rows,), means (n_rows, n_units) and ranges (n_rows or 1, n_units) of units.

    The log-partition is NaN where units have no moments, and -inf where no state is possible.
    """

    log_partition: np.ndarray
    mean: np.ndarray
    width: np.ndarray


def exact_rows(model, tilt, values):
    """The `ExactRows` of a model, tilted in the order of `sides_of`; None if they are not quick."""
    sides, n_rows = sides_of(model), len(values)
    values = values.astype(np.float64)
    tilt = tilt._make(
        part.astype(part.dtype if part.dtype == bool else np.float64) for part in tilt
    )
    n_own = n_rows if tilt.clamped.any() else max(map(len, tilt))
    summed = _enumerated_side(sides, n_own)
    if summed is not None:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # units without moments
            sums = _enumerated(sides, summed, tilt, values[:n_own])
    elif len(sides.priors) == 1:
        sums = _eliminated(sides, tilt, values[:n_own])
    else:
        sums = None
    if sums is None or n_own == n_rows:
        return sums
    return ExactRows(*(np.repeat(part, n_rows, axis=0) for part in sums[:2]), sums.width)


def _enumerated_side(sides, n_rows):
    """Side with few enough states for all rows, or None."""
    two = len(sides.priors) == 2
    width = sum(sides.couplings.shape) * n_rows if two else sides.couplings.shape[0] + n_rows
    if has_forbidden(sides.couplings):
        return None
    counts = [
        number_of_states(prior) if all(map(has_log_prob, parts_of(prior))) else np.inf
        for prior in sides.priors
    ]
    best = int(np.argmin(counts))
    return best if counts[best] * width <= MAX_NUMBERS else None


def _enumerated(sides, summed, tilt, values):
    """The `ExactRows` by the states of one side; the other, if any, is summed analytically."""
    prior, n_rows = sides.priors[summed], len(values)
    x = np.vstack(list(states_of(prior, 1)))
    fields = x @ (sides.couplings.T if summed else sides.couplings)
    log_weights = prior.log_prob(x).sum(1)
    if len(sides.priors) == 1:
        log_weights = log_weights + (fields * x).sum(1) / 2
    tilt = [np.broadcast_to(part, values.shape) for part in tilt]
    step = max(1, MAX_NUMBERS // 8 // (len(x) * sum(sides.couplings.shape)))
    sums = []
    for first in range(0, n_rows, step):
        some_values, *tilts = (part[first : first + step] for part in (values, *tilt))
        sums.append(_sums_of_rows(sides, summed, (x, fields, log_weights), tilts, some_values))
    return ExactRows(*map(np.concatenate, zip(*sums, strict=True)))


def _sums_of_rows(sides, summed, states, tilt, values):
    """The `ExactRows` of some rows with tilts of their own, by (states, fields, log-weights)."""
    x, fields, log_weights = states
    prior, of_side = sides.priors[summed], sides.slices[summed]
    field, precision, clamped = (part[:, of_side] for part in tilt)
    logs = log_weights + field @ x.T - precision @ (x**2).T / 2
    if clamped.any():
        wrong = (clamped[:, None] & (x != values[:, None, of_side])).any(2)
        logs = np.where(wrong, -np.inf, logs)
    two = len(sides.priors) == 2
    if two:
        prior_there, of_other_side = sides.priors[1 - summed], sides.slices[1 - summed]
        field, *more = (part[:, None, of_other_side] for part in (*tilt, values))
        b = fields + field
        parts = [np.broadcast_to(part, b.shape).reshape(-1, b.shape[2]) for part in (b, *more)]
        means, terms = terms_of_units(prior_there, parts[0], *parts)
        logs = logs + terms.sum(1).reshape(logs.shape)
    largest = logs.max(1)
    exists = np.isfinite(largest)  # otherwise no state is possible, or units have no moments
    w = np.exp(logs - largest[:, None])
    log_partition = np.where(exists, largest + np.log(w.sum(1)), np.nan)
    w /= w.sum(1, keepdims=True)
    mean, width = np.empty(values.shape), np.empty(values.shape)
    mean[:, of_side], width[:, of_side] = w @ x, widths(prior)
    if two:
        means = means.reshape(b.shape)
        mean[:, of_other_side] = _averages(w, means)
        width[:, of_other_side] = _widths_or_deviations(prior_there, *parts[:2], w, means)
    mean[~exists], width[~exists] = 0, 1
    return ExactRows(log_partition, mean, width)


def _averages(w, values):
    """Averages of values of shape (n_rows, n_states, n_units) with weights of all states."""
    return (w[:, None] @ values)[:, 0]


def _widths_or_deviations(prior, b, precision, w, mean):
    """Widths of units in each row; of those that are not discrete by their variances."""
    if is_discrete(prior):
        return widths(prior)
    var = prior.moments(b, precision)[1].reshape(mean.shape)
    between = _averages(w, mean**2) - _averages(w, mean) ** 2
    return ranges(prior, _averages(w, var) + np.maximum(between, 0))


def ranges(prior, var):
    """Ranges of discrete units, and `DEVIATIONS` standard deviations of all other units."""
    deviations = np.maximum(DEVIATIONS * np.sqrt(var), 1e-300)
    return np.hstack([
        np.broadcast_to(widths(part), of_part.shape) if is_discrete(part) else of_part
        for part, of_part in by_parts(prior, deviations)
    ])  # fmt: skip


def _eliminated(sides, tilt, values):
    """The `ExactRows` of a fully visible machine, None if its tables are large."""
    prior, n_rows = sides.priors[0], len(values)
    if not is_discrete(prior) or not all(map(has_log_prob, parts_of(prior))):
        return None
    units = GraphUnits(BoltzmannMachine(sides.couplings, prior))
    if not is_small(units.graph, n_rows):
        return None
    units.field, units.precision = tilt.field, tilt.precision
    units.clamp = np.where(tilt.clamped, values, np.nan)
    marginals = units.marginals(range(n_rows), MAX_ENTRIES / n_rows)
    if marginals is None:
        return None
    log_partition, beliefs, _ = map(np.array, zip(*marginals, strict=True))
    return ExactRows(log_partition, units.moments(beliefs)[0], widths(prior)[None])
