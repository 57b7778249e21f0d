"""From rows that have ended to the `GraphBeliefs` that users get."""

from functools import partial
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

from fastmf._outcomes import INFEASIBLE, is_converged, messages_of
from fastmf.inference.bp._assignments import reasons
from fastmf.inference.bp.beliefs import of_record
from fastmf.inference.bp.graphs.beliefs import GraphBeliefs
from fastmf.inference.bp.graphs.radius import spectral_radius
from fastmf.inference.bp.graphs.starts import returned_messages
from fastmf.inference.fixed_point import Question, with_check
from fastmf.kernels.mean_field.units import Tilt
from fastmf.priors._queries import binary_field, two_values

NONE_FOUND = (
    "not converged: no assignment that is possible was found, and there may be none; "
    "algorithm='auto' says so of graphs that are not large"
)


def graph_beliefs(options, units, solved, probability, single):
    """The `GraphBeliefs` of rows; without the axis of rows if `single`."""
    dtype = units.model.dtype
    mean, var, tilts, labels = _units(units, solved.beliefs)
    labels = labels if solved.labels is None else solved.labels
    message, converged = _messages(solved)
    pairs = _pairs(units, solved) if options.pairwise else None
    if options.pairwise == "mean" and pairs is not None:
        pairs = pairs.mean(0)

    returned = None if solved.messages is None else returned_messages(solved.messages, units)
    layers = {"mean": mean, "var": var, "b": tilts, "assignment": units.values_of(labels)}
    rows = {
        "log_partition": solved.log_partition if solved.objective is None else solved.objective,
        "score": solved.objective,
        "bound": solved.bounds,
        "local_maximum": solved.optimal if options.search else None,
        "messages": returned,
        "converged": converged,
        "message": message,
    }
    graph = units.graph
    shared = {"edges": graph.edges, "edge_probability": probability, "n_states": graph.n_states}
    pairs = None if pairs is None else pairs.astype(dtype)
    (shared if options.pairwise == "mean" else rows)["pairwise"] = pairs
    record = SimpleNamespace(**solved.record)
    result = of_record(record, single, dtype, layers, rows, GraphBeliefs, **shared)
    if options.algorithm == "sum":
        states = solved.beliefs, partial(_most_probable, units)
        result.__dict__.update(_radius=partial(spectral_radius, units), _states=states)
    if options.algorithm == "max":
        return with_check(result, partial(reasons_by_elimination, units, solved.is_best))
    return result


class Solved(NamedTuple):
    """Results of rows that have ended."""

    record: dict  # arrays of a ConvergenceRecord
    beliefs: np.ndarray  # probabilities of all states, in the given order
    log_partition: np.ndarray | None
    pairs: np.ndarray | None
    messages: np.ndarray | None
    labels: np.ndarray | None
    optimal: np.ndarray | None
    objective: np.ndarray | None
    # whether no assignment is more probable, by elimination or by the bound
    is_best: np.ndarray | None = None
    bounds: np.ndarray | None = None


def joined(parts):
    """The rows of several `Solved`, one after another."""
    if len(parts) == 1:
        return parts[0]
    record = {
        name: np.concatenate([part.record[name] for part in parts]) for name in parts[0].record
    }
    arrays = (
        None if column[0] is None else np.concatenate(column)
        for column in zip(*(part[1:] for part in parts), strict=True)
    )
    return Solved(record, *arrays)


def reasons_by_elimination(units, is_best, result):
    """Reason why each assignment is not reliable, "" if it is; None if elimination takes long."""
    best = objective = np.atleast_1d(result.score)
    if not units.is_forest and not is_best.all():
        states = units.best_states(range(len(objective)))
        if states is None:
            return None
        best = states[1]
    return reasons(objective, best, "search=True")


def all_right(answer):
    """The check of rows that are exact."""
    return [""] * np.size(answer.converged)


def _most_probable(units, beliefs):
    """The most probable state of each unit."""
    return units.values_of(units.labels(beliefs))


def question_of(units, mixed=None, stable=None):
    """The check of `reliable` of sum-product."""
    if units.is_forest:
        return all_right
    clamp = np.full((1, units.model.n_units), np.nan) if units.clamp is None else units.clamp
    tilt = Tilt(units.field, np.zeros((1, units.model.n_units)), ~np.isnan(clamp))
    return Question(units.model, tilt, True, mixed, stable)


def _messages(solved):
    """How rows have ended, in words, and whether they have converged."""
    status = solved.record["status"]
    converged, message = is_converged(status), messages_of(status)
    if solved.objective is not None:
        none = np.isneginf(solved.objective) & (status != INFEASIBLE)
        message, converged = np.where(none, NONE_FOUND, message), converged & ~none
    return message, converged


def _units(units, beliefs):
    """Means, variances, tilts and the most probable state of each unit."""
    prior, pair = units.model.prior, two_values(units.model.prior)
    if pair is None:
        mean, var = units.moments(beliefs)
        return mean, var, _tilts(units, beliefs), units.labels(beliefs)
    (low, high), q, p = pair, beliefs[:, ::2], beliefs[:, 1::2]
    with np.errstate(divide="ignore", invalid="ignore"):
        log_odds = np.nan_to_num(np.log(p) - np.log(q), posinf=np.inf, neginf=-np.inf)
    tilt = log_odds / (high - low) - binary_field(prior)[0].astype(np.float64)
    return low * q + high * p, (high - low) ** 2 * p * q, tilt, (p > q).astype(np.int64)


def _tilts(units, beliefs):
    """Tilts of the units, or None where some are neither groups nor two-valued."""
    unit, value, weight = units.states
    counts = np.bincount(unit)
    if counts.max() > 2:
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.nan_to_num(np.log(beliefs) - weight, posinf=np.inf, neginf=-np.inf)
    first = np.cumsum(counts) - counts
    last = first + counts - 1
    distance = np.where(counts == 2, value[last] - value[first], 1.0)
    lower = np.where(counts == 2, logs[:, first], 0.0)
    with np.errstate(invalid="ignore"):
        return np.nan_to_num((logs[:, last] - lower) / distance, posinf=np.inf, neginf=-np.inf)


def _pairs(units, solved):
    """Expected products of two-valued units, or probabilities of pairs of states."""
    pairs, pair = solved.pairs, two_values(units.model.prior)
    if pairs is None or pair is None:
        return pairs
    edges, (low, high) = units.graph.edges, pair
    if pairs.shape[1] == 4 * len(edges):
        values = units.states[1].reshape(-1, 2)
        first, second = values[edges[:, 0]], values[edges[:, 1]]
        products = first[:, :, None] * second[:, None, :]
        return (pairs.reshape(len(pairs), -1, 2, 2) * products).sum((2, 3))
    scale, ends = high - low, solved.beliefs[:, 1::2][:, edges]
    return low * low + low * scale * ends.sum(2) + scale**2 * pairs
