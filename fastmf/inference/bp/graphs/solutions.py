"""Sum-product on graphs from many starts."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import scipy

from fastmf._common import arguments as check
from fastmf._outcomes import is_converged
from fastmf.inference.bp.graphs.moves import forest_moves
from fastmf.inference.bp.graphs.results import fixed_points_of
from fastmf.inference.bp.graphs.starts import returned_messages
from fastmf.inference.bp.graphs.units import checked_clamp
from fastmf.inference.bp.layer_solutions import COLD, N_SWEEPS
from fastmf.inference.bp.solutions import (
    MIN_START_PROBABILITY,
    EndsOfStarts,
    fixed_points,
    random_probabilities,
)
from fastmf.priors._queries import two_values

# Largest size of exponents from which states of starts are found, in the place of -inf.
FORBIDDEN = 1e3
# Slots of all rows together up to which annealed states are as good as max-product.
MAX_START_SLOTS = 10_000


class Solved(NamedTuple):
    """Results of rows that have ended.

    Parameters
    ----------
    record : dict of arrays
        Arrays of a `ConvergenceRecord`.
    beliefs : array of shape (n_rows, n_units or n_states)
        Odds of two-valued units, or probabilities of states; as given.
    log_partition : array of shape (n_rows,) or None
    pairs, messages, labels : array or None
    optimal, objective : array of shape (n_rows,) or None
    is_best : bool array of shape (n_rows,) or None
        Whether no assignment is more probable, by elimination.
    """

    record: dict
    beliefs: np.ndarray
    log_partition: np.ndarray | None
    pairs: np.ndarray | None
    messages: np.ndarray | None
    labels: np.ndarray | None
    optimal: np.ndarray | None
    objective: np.ndarray | None
    is_best: np.ndarray | None = None


def joined(parts):
    """The rows of several `Solved`, one after another."""
    if len(parts) == 1:
        return parts[0]
    record = {
        name: np.concatenate([part.record[name] for part in parts]) for name in parts[0].record
    }
    others = (
        None if column[0] is None else np.concatenate(column)
        for column in zip(*(part[1:] for part in parts), strict=True)
    )
    return Solved(record, *others)


class Several(NamedTuple):
    """Results of the starts of all rows.

    Parameters
    ----------
    solutions : list of Solutions
    beliefs : list of arrays of shape (n_solutions, n_states)
        Probabilities of states at the fixed points.
    pairs : list of arrays of shape (n_solutions, n_edges or n_values)
        Probabilities of pairs, if they are computed.
    stable : list of bool
        Whether the row has a stable fixed point; otherwise it is the end of the first start.
    """

    solutions: list
    beliefs: list
    pairs: list
    stable: list


def propagate_from_starts(options, units, n_rows, solver):
    """Rows of mixtures of fixed points."""
    rng = check.generator(options.rng)
    last = replace(options, n_starts=None, messages=True)
    first = replace(last, pairwise=False)
    parts, several = [], Several([], [], [], [])
    for row in range(n_rows):
        row_units = units.row(row)

        def solve(messages, is_last, row_units=row_units):
            kind = solver(last if is_last else first, row_units)
            return _ends(row_units, kind.solve(np.zeros(len(messages), int), messages))

        mixture = fixed_points(solve, _starts(row_units, options.n_starts, rng), rng)
        solved, means = mixture.ends.result
        parts.append(_mixed(mixture, solved, row_units.binary is not None))
        several.solutions.append(mixture.solutions(means))
        several.beliefs.append(mixture.ends.beliefs[mixture.rows])
        several.stable.append(mixture.stable)
        if solved.pairs is not None:
            several.pairs.append(solved.pairs[mixture.rows])
    return joined(parts), several


def _ends(units, solved):
    beliefs, means = fixed_points_of(units, solved)
    return EndsOfStarts(
        beliefs=beliefs,
        log_partition=solved.log_partition,
        converged=is_converged(solved.record["status"]),
        damping=solved.record["damping"],
        messages=returned_messages(solved.messages, units),
        result=(solved, means),
    )


def _mixed(mixture, solved, is_binary):
    """The `Solved` mixture, with one row."""
    rows = mixture.rows
    record = {name: part[rows[:1]] for name, part in solved.record.items() if name != "history"}
    for name in ("n_iter", "residual", "damping"):
        record[name] = solved.record[name][rows].max(keepdims=True)
    if is_binary:
        beliefs = np.exp(mixture.average_log_odds(np.log(solved.beliefs)))
    else:
        beliefs = mixture.average(solved.beliefs)
    value = np.logaddexp.reduce(mixture.log_partitions)
    pairs = mixture.average(solved.pairs)
    return Solved(record, beliefs, np.array([value]), pairs, None, None, None, None)


def _starts(units, n_starts, rng):
    """Log-messages of the given number of starts, the first without preference."""
    unit, value, weight = units.states
    field = np.clip((weight + value * units.field[:, unit])[0], -FORBIDDEN, FORBIDDEN)
    p = _random_beliefs(units, n_starts - 1, rng)
    # Opposites are one after another, and so are of the same kind.
    kinds = np.arange(n_starts - 1) // 2 % 3
    couplings = couplings_of(units, -FORBIDDEN)
    for kind, temperature in ((1, 1.0), (2, COLD)):
        x = p[kinds == kind]
        for _ in range(N_SWEEPS):
            x = (x + softmax(units, (field + x @ couplings) / temperature)) / 2
        p[kinds == kind] = x
    random, uniform = kinds == 0, np.repeat(1 / units.graph.n_states, units.graph.n_states)
    p[random] += (uniform - p[random]) * rng.random((random.sum(), 1))
    cold = np.flatnonzero(kinds == 2)[-1:]
    p[cold] = _annealed(units, p[cold])
    messages = messages_of(units, np.maximum(p, MIN_START_PROBABILITY))
    messages = returned_messages(messages, units)
    return np.concatenate([np.zeros_like(messages, shape=(1, messages.shape[1])), messages])


def _annealed(units, beliefs):
    """States of large weight, or the given beliefs where none is found."""
    problem, n = units.problem()[0], len(beliefs)
    labels = np.zeros((n, len(units.graph.n_states)), np.int64)
    objective = np.full(n, -np.inf)
    forest_moves(problem, labels, objective, max_slots=MAX_START_SLOTS)
    states = np.zeros_like(beliefs)
    columns = units.first_state[units.layout.order] + labels
    states[np.arange(n)[:, None], columns] = 1
    return np.where(np.isfinite(objective)[:, None], states, beliefs)


def _random_beliefs(units, n, rng):
    """States at random, as probabilities of states of all units."""
    sizes = units.graph.n_states
    if two_values(units.model.prior) is not None:
        p = random_probabilities(n, len(sizes), rng)
        return np.stack([1 - p, p], -1).reshape(n, 2 * len(sizes))
    # Some starts prefer a label, so that phases are found that differ in all units.
    labels = np.arange(sizes.sum()) - np.repeat(units.first_state[:-1], sizes)
    preferred = rng.random((n, sizes.max())) * rng.integers(0, 2, (n, 1))
    noise = rng.random((n, len(labels))) + preferred[:, labels]
    top = np.maximum.reduceat(noise, units.first_state[:-1], axis=1)
    return (noise == np.repeat(top, sizes, axis=1)).astype(np.float64)


def messages_at(init, units):
    """Log-messages of units in the states of an assignment, or of the one of an earlier result."""
    init = getattr(init, "assignment", init)
    prior = units.model.prior
    values = np.atleast_2d(checked_clamp(prior, init, "init"))
    if np.isnan(values).any():
        raise ValueError("init must give a value to each unit, got NaN.")
    unit, value, _ = units.states
    beliefs = (values[:, unit] == value).astype(np.float64)
    messages = returned_messages(
        messages_of(units, np.maximum(beliefs, MIN_START_PROBABILITY)), units
    )
    return messages[0] if np.ndim(init) == 1 else messages


def messages_of(units, beliefs):
    """Log-messages that units with such probabilities send to all neighbours."""
    problem, edges = units.problem()[0], units.graph.edges
    sizes, counts = units.graph.n_states, np.diff(problem.first_value)
    edge = np.repeat(np.arange(len(edges)), counts)
    labels = np.divmod(np.arange(counts.sum()) - problem.first_value[edge], sizes[edges[edge, 1]])
    rows, columns = [], []
    for side in (0, 1):
        rows.append(units.first_state[edges[edge, side]] + labels[side])
        columns.append(problem.first_entry[units.layout.slots[edge, side]] + labels[1 - side])
    weights = np.tile(problem.exponentials, 2)
    shape = beliefs.shape[1], problem.first_entry[-1]
    sending = scipy.sparse.csr_array(
        (weights, tuple(map(np.concatenate, (rows, columns)))), shape=shape
    )
    with np.errstate(divide="ignore"):  # what no state allows
        return np.log(beliefs @ sending)


def couplings_of(units, smallest=-np.inf):
    """Couplings of all states, at least the given value, as a symmetric sparse array."""
    first, tables = units.tables
    tables = np.maximum(tables, smallest)
    edges, sizes = units.graph.edges, units.graph.n_states
    edge = np.repeat(np.arange(len(edges)), np.diff(first))
    a, b = np.divmod(np.arange(len(tables)) - first[edge], sizes[edges[edge, 1]])
    start = units.first_state[edges[edge]]
    n = units.first_state[-1]
    upper = scipy.sparse.csr_array((tables, (start[:, 0] + a, start[:, 1] + b)), shape=(n, n))
    return (upper + upper.T).tocsr()


def softmax(units, x):
    """Probabilities of states from their logarithms, of each row and unit."""
    starts, sizes = units.first_state[:-1], units.graph.n_states
    x = np.exp(x - np.repeat(np.maximum.reduceat(x, starts, axis=1), sizes, axis=1))
    return x / np.repeat(np.add.reduceat(x, starts, axis=1), sizes, axis=1)
