"""Exact sums over the states of small machines, with which all solvers compare converged rows.

States of all units, or of the smaller of two sides without couplings inside, are enumerated; of
other fully visible machines one unit after the other is eliminated. Where sums would take longer
than some tenths of a second for all rows together, none are made.
"""

from typing import NamedTuple

import numpy as np

from fastmf.inference.mean_field.naive_bound import sides_of, terms_of_units
from fastmf.inference.mean_field.second_solutions import is_discrete, widths
from fastmf.models import BoltzmannMachine
from fastmf.models._elimination import Marginals, Tables
from fastmf.models._graph import pairwise_graph
from fastmf.models._graph_sums import GraphSums
from fastmf.models._narrow_graphs import reduction_of
from fastmf.models._state_tables import coupling_tables, unit_tables
from fastmf.models.exact import states_of
from fastmf.priors._groups import column_sizes
from fastmf.priors._protocol import by_parts, has_log_prob, parts_of
from fastmf.priors._queries import number_of_states

# Rows with tilts of their own, and numbers of all rows, up to which states are enumerated.
MAX_FIELD_ROWS, MAX_NUMBERS = 2000, 2**21
# Units with a choice that are enumerated at most, by these numbers.
MAX_ENUMERATED_COLUMNS = 24
# Numbers that are held at a time, so that a call is not made for every row.
_NUMBERS_AT_A_TIME = 2**18
# Entries of the tables of all rows, and units of all rows, up to which units are eliminated.
MAX_ENTRIES, MAX_ELIMINATIONS = 2**25, 8000
# Memory of tables, beyond which messages are made twice.
MAX_TABLE_BYTES = 2**29
# Units and edges of the largest graphs for which an order of elimination is sought.
MAX_UNITS, MAX_COUPLED_PAIRS = 2000, 6000
# Rows of larger graphs of width two.
MAX_NARROW_ROWS = 100
# Nats, and probabilities on average and of one state, by which exact sums may differ; of means
# fractions of the range of a unit, or of so many standard deviations of an unbounded one.
MAX_NATS, MAX_MEAN, MAX_PROBABILITY = 1.0, 0.05, 0.2
DEVIATIONS = 4.0
# Share of the weight up to which a row with a start of its own is one solution of several.
LARGEST_SHARE = 0.75
SUMS = (
    "the exact log-partition, which is quickly found here, is {:+.2g} nats away and means or "
    "probabilities differ by up to {:.2g} of their range; take fastmf.exact, or belief_propagation "
    "with algorithm='auto'"
)


class ExactRows(NamedTuple):
    """Exact sums of rows.

    Parameters
    ----------
    log_partition : array of shape (n_rows,)
        NaN where there are no sums.
    mean : array of shape (n_rows, n_units)
    width : array of shape (n_rows or 1, n_units)
        Distance of the lowest and the highest value of each unit; `DEVIATIONS` standard deviations
        of units that are not discrete.
    """

    log_partition: np.ndarray
    mean: np.ndarray
    width: np.ndarray


def reasons_by_exact_sums(model, tilt, mean, values, whole=True):
    """Reason why each row is wrong, by exact sums.

    A row that stands for one solution of several has a share w = exp(-d) of the weight, if its
    log-partition is d nats too low, so that means may differ by 1 - w more. From three quarters of
    the weight on it has to stand for the whole machine.

    Parameters
    ----------
    model : RBM, DBM or BoltzmannMachine
    tilt : Tilt
        With one or `n_rows` rows, in the order of `sides_of`.
    mean : array of shape (n_rows, n_units)
        Means of the rows, which are the values of clamped units.
    values : array of shape (n_rows,)
        Log-partitions of the rows.
    whole : bool
        Whether rows stand for the whole machine.

    Returns
    -------
    list of str or None, or None
        "" for a row that is right, None for one of which sums do not tell whether it is; None for
        all if sums are not quick.
    """
    sums = exact_rows(model, tilt, mean)
    if sums is None:
        return None
    lacking = sums.log_partition - values
    differences = (sums.mean - mean) / sums.width
    out = []
    for nats, of_row in zip(lacking, differences, strict=True):
        if not np.isfinite(nats):
            out.append(None)
            continue
        why = reason_of_sums(nats, of_row)
        weight = np.exp(-max(nats, 0.0))
        if why and not whole and weight <= LARGEST_SHARE:
            contradicts = reason_of_sums(0.0, np.maximum(abs(of_row) - (1 - weight), 0))
            why = why if contradicts else None
        out.append(why)
    return out


def reason_of_sums(nats, differences, text=SUMS):
    """Reason by sums that are exact or of more fixed points, "" if they are about the same.

    Parameters
    ----------
    nats : float
        Error of the log-partition.
    differences : array of shape (n_states,) or (n_units,)
        Errors of probabilities of states, or of means as fractions of their range.
    text : str
    """
    sizes = abs(differences)
    largest = sizes.max(initial=0.0)
    average = sizes.mean() if sizes.size else 0.0
    right = abs(nats) <= MAX_NATS and average <= MAX_MEAN and largest <= MAX_PROBABILITY
    return "" if right else text.format(nats, largest)


def exact_rows(model, tilt, values):
    """The `ExactRows` of a machine, None if they are not quick.

    Parameters
    ----------
    model : RBM, DBM or BoltzmannMachine
    tilt : Tilt
        With one or `n_rows` rows, in the order of `sides_of`.
    values : array of shape (n_rows, n_units)
        Values of clamped units.
    """
    sides, n_rows = sides_of(model), len(values)
    values = values.astype(np.float64)
    own = tilt._make(part.astype(part.dtype if part.dtype == bool else np.float64) for part in tilt)
    n_own = n_rows if tilt.clamped.any() else max(map(len, tilt))
    summed = _enumerated_side(sides, n_own)
    if summed is not None:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # units without moments
            found = _enumerated(sides, summed, own, values[:n_own])
    elif len(sides.priors) == 1:
        found = _eliminated(sides, own, values[:n_own])
    else:
        found = None
    if found is None or n_own == n_rows:
        return found
    return ExactRows(*(np.repeat(part, n_rows, axis=0) for part in found[:2]), found.width)


def _enumerated_side(sides, n_rows):
    """Side of which the states are few enough for all rows, None if there is none."""
    two = len(sides.priors) == 2
    width = sum(sides.couplings.shape) * n_rows if two else sides.couplings.shape[0] + n_rows
    counts = [
        number_of_states(p)
        if len(column_sizes(p)) <= MAX_ENUMERATED_COLUMNS and all(map(has_log_prob, parts_of(p)))
        else np.inf
        for p in sides.priors
    ]
    best = int(np.argmin(counts))
    return best if counts[best] * width <= MAX_NUMBERS and n_rows <= MAX_FIELD_ROWS else None


def _enumerated(sides, summed, tilt, values):
    """The `ExactRows` by the states of one side; the other, if any, is summed analytically."""
    prior, n_rows = sides.priors[summed], len(values)
    x = np.vstack(list(states_of(prior, 1)))
    fields = x @ (sides.couplings.T if summed else sides.couplings)
    log_weights = prior.log_prob(x).sum(1)
    if len(sides.priors) == 1:
        log_weights = log_weights + (fields * x).sum(1) / 2
    tilt = [np.broadcast_to(part, values.shape) for part in tilt]
    step = max(1, _NUMBERS_AT_A_TIME // (len(x) * sum(sides.couplings.shape)))
    found = []
    for first in range(0, n_rows, step):
        own, *of_rows = (part[first : first + step] for part in (values, *tilt))
        found.append(_sums_of_rows(sides, summed, (x, fields, log_weights), of_rows, own))
    return ExactRows(*map(np.concatenate, zip(*found, strict=True)))


def _sums_of_rows(sides, summed, states, tilt, values):
    """The `ExactRows` of some rows with tilts of their own, by (states, fields, log-weights)."""
    x, fields, log_weights = states
    prior, here = sides.priors[summed], sides.slices[summed]
    field, precision, clamped = (part[:, here] for part in tilt)
    logs = log_weights + field @ x.T - precision @ (x**2).T / 2
    if clamped.any():
        wrong = (clamped[:, None] & (x != values[:, None, here])).any(2)
        logs = np.where(wrong, -np.inf, logs)
    two = len(sides.priors) == 2
    if two:
        prior_there, there = sides.priors[1 - summed], sides.slices[1 - summed]
        field, *others = (part[:, None, there] for part in (*tilt, values))
        b = fields + field
        parts = [np.broadcast_to(part, b.shape).reshape(-1, b.shape[2]) for part in (b, *others)]
        means, terms = terms_of_units(prior_there, parts[0], *parts)
        logs = logs + terms.sum(1).reshape(logs.shape)
    largest = logs.max(1)
    known = np.isfinite(largest)  # otherwise no state is possible, or units have no moments
    w = np.exp(logs - largest[:, None])
    log_partition = np.where(known, largest + np.log(w.sum(1)), np.nan)
    w /= w.sum(1, keepdims=True)
    mean, width = np.empty(values.shape), np.empty(values.shape)
    mean[:, here], width[:, here] = w @ x, widths(prior)
    if two:
        means = means.reshape(b.shape)
        mean[:, there] = _averages(w, means)
        width[:, there] = _widths_or_deviations(prior_there, *parts[:2], w, means)
    mean[~known], width[~known] = 0, 1
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
    """Widths of discrete units, and `DEVIATIONS` standard deviations of others.

    Parameters
    ----------
    prior : unit prior
    var : array of shape (n_rows, n_units)

    Returns
    -------
    array of shape (n_rows, n_units)
    """
    deviations = np.maximum(DEVIATIONS * np.sqrt(var), 1e-300)
    return np.hstack([
        np.broadcast_to(widths(part), own.shape) if is_discrete(part) else own
        for part, own in by_parts(prior, deviations)
    ])  # fmt: skip


def _eliminated(sides, tilt, values):
    """The `ExactRows` of a fully visible machine, None if its tables are large."""
    prior, n_rows = sides.priors[0], len(values)
    if not is_discrete(prior) or not all(map(has_log_prob, parts_of(prior))):
        return None
    machine = BoltzmannMachine(sides.couplings, prior)
    graph, plans = pairwise_graph(machine), {}
    if not is_small(graph, n_rows):
        return None
    fields, states = unit_tables(machine)
    couplings = coupling_tables(graph, states)
    log_partition, mean = np.full(n_rows, np.nan), np.zeros(values.shape)
    for k in range(n_rows):
        field, precision, clamped = (part[min(k, len(part) - 1)] for part in tilt)
        own = _tilted(prior, fields, states, (field, precision, clamped, values[k]))
        found = eliminated(Tables(own, graph.edges, couplings), MAX_ENTRIES / n_rows, plans)
        if found is None:
            return None
        if found.units is None:  # no state is possible
            continue
        log_partition[k] = found.log_partition
        if isinstance(states, np.ndarray):
            mean[k] = (found.units * states[:, :, 0]).sum(1)
        else:
            mean[k] = np.concatenate([p @ x for p, x in zip(found.units, states, strict=True)])
    return ExactRows(log_partition, mean, widths(prior)[None])


def _tilted(prior, fields, states, tilt):
    """Log-weights of states at the (field, precision, clamped, values) of a row."""
    if isinstance(states, np.ndarray):
        field, precision, clamped, values = (part[:, None] for part in tilt)
        x = states[:, :, 0]
        wrong = clamped & (x != values)
        return np.where(wrong, -np.inf, fields + x * field - x**2 * precision / 2)
    (field, precision, clamped, values), own = tilt, []
    ends = np.cumsum(column_sizes(prior))
    for logs, x, end in zip(fields, states, ends, strict=True):
        at = slice(end - x.shape[1], end)
        logs = logs + x @ field[at] - x**2 @ precision[at] / 2
        wrong = ((x != values[at]) & clamped[at]).any(1)
        own.append(np.where(wrong, -np.inf, logs))
    return own


def is_small(graph, n_rows=1):
    """Whether an order of elimination is sought for a `PairwiseGraph` with so many rows."""
    n_units = len(graph.n_states)
    small = n_units <= MAX_UNITS and len(graph.edges) <= MAX_COUPLED_PAIRS
    if small and n_units * n_rows <= MAX_ELIMINATIONS:
        return True
    most = int(graph.n_states.max(initial=1))
    sparse = n_rows <= MAX_NARROW_ROWS and len(graph.edges) < 2 * n_units
    if not sparse or n_rows * n_units * most**2 > MAX_ENTRIES:
        return False
    reduction = reduction_of(n_units, graph.edges, most, MAX_ENTRIES / n_rows)
    n_left = len(reduction.core)
    few = n_left <= MAX_UNITS and len(reduction.edges) <= MAX_COUPLED_PAIRS
    return few and n_left * n_rows <= MAX_ELIMINATIONS


def eliminated(tables, max_entries, plans, mode=False):
    """Exact `Marginals` of a graph, -inf alone if no state is possible; None if they are large.

    With `mode`, the most probable states in the place of `units`.

    Parameters
    ----------
    tables : Tables
    max_entries : float
        Largest number of entries of all tables together.
    plans : dict
        Orders of elimination of the same edges, for other rows.
    """
    allowed = tables.fields > -np.inf if isinstance(tables.fields, np.ndarray) else [
        logs > -np.inf for logs in tables.fields
    ]  # fmt: skip
    n_allowed = np.fromiter(map(np.count_nonzero, allowed), np.int64, len(allowed))
    if not n_allowed.all():
        return Marginals(-np.inf, None, None)
    key = n_allowed.tobytes()
    if key not in plans:
        n_bytes, bits = min(32 * max_entries, MAX_TABLE_BYTES), np.log2(max(max_entries, 1.0))
        plans[key] = GraphSums(n_allowed, tables.edges, n_bytes, bits)
    sums = plans[key]
    if not sums.plan.complete or sums.n_entries > max_entries:
        return None
    if mode:
        return Marginals(np.nan, sums.most_probable(tables, allowed), None)
    return sums.marginals(tables, allowed)
