"""Belief propagation on the graph of a BoltzmannMachine of discrete units, and its results.

Equations are at the head of `fastmf.kernels.bp.graphs`.

The fixed point of sum-product is unique (Mooij and Kappen 2007, Corollary 3) if the spectral radius
of a matrix between directed edges is below 1: sum-product then converges to it from any messages,
whatever the fields.
"""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

from fastmf._outcomes import (
    ALL,
    CONFIRMING,
    CONVERGED,
    CYCLING,
    FOLLOWING,
    INFEASIBLE,
    MAX_DAMPING,
    MEAN_ROUNDING,
    NO_RECEIVERS,
    RUNNING,
    WINDOW_SWEEPS,
    is_converged,
    messages_of,
)
from fastmf._threads.workers import in_parallel, one_blas_thread, workers_for
from fastmf.inference.bp._options import MAX_BYTES, convergence_settings, record_of
from fastmf.inference.bp.beliefs import GraphBeliefs, margin_of, of_record, reasons
from fastmf.inference.bp.graphs.starts import (
    checked_messages,
    first_messages,
    forest_moves,
    messages_at,
    returned_messages,
    starts_of_graph,
)
from fastmf.inference.bp.graphs.trees import chunks_of_slots, random_trees, tree_bound, without
from fastmf.inference.bp.graphs.units import GraphUnits
from fastmf.inference.bp.solutions import mixture_of_checks, mixtures
from fastmf.inference.fixed_point import Question, with_check
from fastmf.kernels.bp import graphs as graph_kernels
from fastmf.kernels.bp.convergence import assess_rows
from fastmf.kernels.bp.graphs import GraphState
from fastmf.kernels.mean_field.units import Tilt
from fastmf.priors._queries import binary_field, two_values


@one_blas_thread()
def propagate_on_graph(options, model, field=None, clamp=None, init=None):
    """Solve a `BoltzmannMachine`, and return its `GraphBeliefs`."""
    return propagate_units(options, GraphUnits(model, field, clamp), init)


def propagate_units(options, units, init=None):
    """Solve checked `GraphUnits`, and return their `GraphBeliefs`."""
    n_rows, probability, is_sum = units.n_rows, None, options.algorithm == "sum"
    if is_sum and options.n_starts is not None:
        result, stable = mixtures(options, units.model.prior, n_rows, partial(_row_of, units))
        result.__dict__["_radius"] = partial(spectral_radius, units)
        return with_check(result, question_of(units, stable=stable))
    if init is not None:
        is_up = isinstance(init, str)
        init = units.values_of(units.graph.n_states - 1) if is_up else init
        messages = messages_at(init, units) if is_up or options.decodes else init
        init, n_rows = checked_messages(messages, units)
    if options.algorithm == "tree_reweighted":
        solved, probability = solve_trees(options, units, n_rows or 1, init)
    else:
        solved = _in_chunks(options, units, n_rows or 1, init)
    if options.bound:
        solved = _with_bound(options, units, solved)
    result = graph_beliefs(options, units, solved, probability, n_rows is None)
    mixed = partial(mixture_of_checks, propagate_on_graph, options)
    return with_check(result, question_of(units, mixed)) if is_sum else result


def _row_of(units, k):
    """Return functions that solve a row from several messages, and that draw such messages."""
    row = units.row(k)

    def solve(options, messages):
        return propagate_units(options, row, messages)

    return solve, partial(starts_of_graph, row)


def solve_trees(options, units, n_rows, init=None):
    """Solve rows by tree-reweighted propagation; return them and the edge probabilities."""
    trees = random_trees(units.graph.edges, len(units.graph.n_states))
    return _in_chunks(options, units, n_rows, init, trees), trees.probability


def _with_bound(options, units, solved):
    """Add the bound of reweighted max-product, and its assignment where that is better."""
    # Undamped reweighted messages oscillate. The bound is tight if they have converged.
    options = replace(options, damping=0.5, tol=np.finfo(np.float64).eps)
    reweighted, _ = solve_trees(options, units, len(solved.objective))
    better = reweighted.objective > solved.objective
    for part, new in zip(solved[5:8], reweighted[5:8], strict=True):
        part[better] = new[better]
    bounds = np.maximum(reweighted.log_partition, solved.objective)
    is_best = solved.is_best | (solved.objective >= bounds - margin_of(bounds))
    return solved._replace(bounds=bounds, is_best=is_best)


def _in_chunks(options, units, n_rows, init, trees=None):
    """Solve rows in chunks whose messages fit in memory."""
    options = replace(options, history=bool(options.history_length(n_rows)))
    if options.algorithm == "sum" and units.binary is not None:
        kind = _GraphSpins(options, units)
    else:
        kind = _GraphStates(options, units, trees)
    size = max(1, MAX_BYTES // (16 * max(kind.n_messages, 1)))
    parts = []
    for first in range(0, n_rows, size):
        rows = np.arange(first, min(first + size, n_rows))
        start = init if init is None or init.ndim == 1 or len(init) == 1 else init[rows]
        parts.append(kind.solve(rows, start))
    return joined(parts)


def _workers(options, problem, n_rows):
    return workers_for(max(n_rows, 1), n_rows * len(problem.edges) * 10, options.n_threads)


def _sweep_to_the_end(options, settings, send, problem, state, after=None):
    """Sweep from the last unit to the first and back until all rows have ended; return the record.

    `send` is the address of the function that sends messages; after(state, n) is called after
    sweep n, and with n = 0 at the end.
    """
    record, rows = record_of(len(state.messages), options), np.arange(len(state.messages))

    def sweep(state, rows, step):
        arguments = send, problem, state, rows, step, np.zeros(2, np.int64)
        n_workers = min(_workers(options, problem, len(rows)), len(state.scratch))
        in_parallel(graph_kernels.graph_sweep, arguments, n_workers)
        return state.residual[rows]

    is_forest = state.receivers == FOLLOWING
    if is_forest:  # two sweeps are exact
        for step in (-1, 1):
            change = sweep(state, rows, step)
            record.status[rows[change == np.inf]] = INFEASIBLE
            record.n_iter[:] += 1
            rows = np.flatnonzero(record.status == RUNNING)
        record.status[rows] = CONVERGED
    step, n_done = -1, 0
    while not is_forest and len(rows):
        damping = np.where(record.status[rows] == CONFIRMING, 0.0, record.damping[rows])
        # The first two sweeps are undamped, so that components that are trees are exact.
        state.damping[rows] = damping if n_done > 1 else 0.0
        change = sweep(state, rows, step)
        _assess(options, settings, record, rows, change, state.damping[rows])
        n_done += 1
        if after is not None and n_done > 2:
            after(state, n_done - 2)
        step = -step
        rows = np.flatnonzero(record.status <= RUNNING)
    if not is_forest:  # beliefs of the last messages
        sweep(state._replace(receivers=NO_RECEIVERS), np.arange(len(state.messages)), 1)
    if after is not None:
        after(state, 0)
    return record


def _assess(options, settings, record, rows, change, damping):
    """Set status and damping of rows after a sweep, given its largest changes and damping."""
    searches = options.decodes and options.search
    strongest = searches and (damping == MAX_DAMPING) & (record.damping[rows] == MAX_DAMPING)
    # Tree-reweighted messages converge undamped, but slowly where couplings are strong.
    patience = WINDOW_SWEEPS * (8 if options.algorithm == "tree_reweighted" else 1)
    assess_rows(settings, record, rows, change, damping, patience, np.zeros(1, np.int64))
    if searches:
        # Moves of forests find better states than more sweeps. Rows whose damping would have been
        # raised have stalled: their smallest residual has been reset.
        stalled = (record.status[rows] == RUNNING) & (record.min_residual[rows] == np.inf)
        record.status[rows[strongest & stalled]] = CYCLING


class _GraphRows:
    """Base class of both kinds of units: options of the sweeps, and the criteria to end."""

    def __init__(self, options, units, problem, scale):
        self.options, self.units, self.problem = options, units, problem
        self.n_messages = len(problem.edges)
        eps = np.finfo(np.float64).eps
        max_degree = np.diff(units.layout.starts).max(initial=0)
        rounding = eps * (MEAN_ROUNDING * np.sqrt(max_degree) + 2 * scale)
        self.settings = convergence_settings(options, float(rounding))

    def swept(self, send, problem, messages, n_beliefs, max_states, after=None):
        """Sweep rows to their end, with calls of `after`; return their state and record."""
        options, n_rows = self.options, len(messages)
        state = GraphState(
            messages=messages,
            beliefs=np.ones((n_rows, n_beliefs)),
            damping=np.zeros(n_rows),
            residual=np.zeros(n_rows),
            receivers=FOLLOWING if self.units.layout.is_forest else ALL,
            scratch=np.zeros((_workers(options, problem, n_rows), 3, max_states)),
        )
        return state, _sweep_to_the_end(options, self.settings, send, problem, state, after)


def _of_rows(parts, rows):
    """Select rows of arrays that have a single row for all rows, or one for each."""
    return [part if len(part) <= 1 else part[rows] for part in parts]


class _GraphSpins(_GraphRows):
    """Sum-product on graphs of two-valued units."""

    def __init__(self, options, units):
        problem, self.constant, scale = units.binary
        super().__init__(options, units, problem, scale)

    def solve(self, rows, init):
        """The `Solved` rows."""
        odds, constant = _of_rows((self.problem.odds, self.constant), rows)
        problem = self.problem._replace(odds=odds)
        messages = first_messages(init, self.units, None, (len(rows), self.n_messages))
        n_units = odds.shape[1]
        state, record = self.swept(graph_kernels.odds_address(), problem, messages, n_units, 1)
        terms, keeps = np.zeros((len(rows), n_units)), bool(self.options.pairwise)
        pairs = np.zeros((len(rows) * keeps, len(self.units.graph.edges)))
        arguments = problem, state, terms, pairs, np.zeros(2, np.int64)
        in_parallel(graph_kernels.binary_terms, arguments, len(state.scratch))
        beliefs = np.empty((*state.beliefs.shape, 2))
        q = 1 / (1 + state.beliefs)
        beliefs[:, self.units.layout.order] = np.stack([q, state.beliefs * q], -1)
        beliefs = beliefs.reshape(len(rows), -1)
        if self.units.clamp is not None:
            (clamp,) = _of_rows((self.units.clamp,), rows)
            unit, value, _ = self.units.states
            beliefs = np.where(np.isnan(clamp[:, unit]), beliefs, clamp[:, unit] == value)
        logs = np.log(messages) if self.options.messages else None
        values, pairs = terms.sum(1) + constant, pairs if keeps else None
        return Solved(record._asdict(), beliefs, values, pairs, logs, None, None, None)


class _GraphStates(_GraphRows):
    """All algorithms on graphs of units with any number of states."""

    def __init__(self, options, units, trees):
        problem, scale = units.problem(None if trees is None else trees.probability)
        problem = problem._replace(maximum=options.decodes)
        super().__init__(options, units, problem, scale)
        self.n_messages, self.trees = int(problem.first_entry[-1]), trees
        # With the tables of the model, to evaluate assignments.
        self.undivided = problem
        if trees is not None and options.decodes:
            self.undivided = units.problem()[0]._replace(probability=problem.probability)

    def solve(self, rows, init):
        """The `Solved` rows."""
        (field,) = _of_rows((self.problem.field,), rows)
        problem, units, options = self.problem._replace(field=field), self.units, self.options
        messages = first_messages(init, units, problem, (len(rows), self.n_messages))
        send = graph_kernels.send_address()
        max_states = int(units.graph.n_states.max())
        decodes = options.decodes
        undivided, best, after = self.undivided._replace(field=field), None, None
        if decodes:
            best = _Assignments(options, len(rows), units.layout.order)
            after = partial(best.decode, undivided)
        state, record = self.swept(send, problem, messages, field.shape[1], max_states, after)
        values = pairs = None
        if not decodes:
            values, pairs = _states_terms(problem, state, options.pairwise)
        if self.trees is not None:
            root = self.trees.root[units.layout.order]
            values = tree_bound(problem, self.trees.child, root, messages)
        if values is not None:
            values[record.status == INFEASIBLE] = -np.inf
        beliefs = units.beliefs(state.beliefs)
        beliefs[record.status == INFEASIBLE] = 0
        returned = messages if options.messages else None
        decoded = (None, None, None) if best is None else best.result()
        is_best = np.zeros(len(rows), bool)
        if best is not None and options.search:
            is_best = self._take_best(rows, decoded)
            unsettled = ~is_converged(record.status)
            if not units.layout.is_forest:
                unsettled |= _has_ties(units, beliefs)
            unsettled &= ~is_best & (record.status != INFEASIBLE)
            self._move_forests(undivided, np.flatnonzero(unsettled), decoded)
        return Solved(record._asdict(), beliefs, values, pairs, returned, *decoded, is_best)

    def _take_best(self, rows, decoded):
        """Replace assignments by the best ones if elimination is quick; return whether it was."""
        best = None if self.units.layout.is_forest else self.units.best_states(rows)
        if best is not None:
            better = best[1] - margin_of(best[1]) / 1000 > decoded[2]
            decoded[0][better], decoded[1][better] = best[0][better], True
            decoded[2][better] = best[1][better]
        return np.full(len(rows), best is not None)

    def _move_forests(self, problem, rows, decoded):
        """Improve the assignments of rows that have not converged, or have ties."""
        order = self.units.layout.order
        labels, objective = decoded[0][rows][:, order], decoded[2][rows]
        (field,) = _of_rows((problem.field,), rows)
        forest_moves(problem._replace(field=field), labels, objective, self.options.n_threads)
        decoded[0][np.ix_(rows, order)], decoded[2][rows] = labels, objective


def _states_terms(problem, state, pairwise):
    """Compute log-partitions of rows, and optionally probabilities of pairs of states."""
    h, u = state.beliefs, state.messages
    first, sizes = problem.first_state[:-1], np.diff(problem.first_state)
    pairs = np.zeros((len(h), len(problem.tables))) if pairwise else None
    with np.errstate(divide="ignore", invalid="ignore"):  # rows without a possible state
        top = np.maximum.reduceat(h, first, axis=1)
        weights = np.exp(h - np.repeat(top, sizes, axis=1))
        of_unit = top + np.log(np.add.reduceat(weights, first, axis=1))
        values = of_unit.sum(1)
        units = np.repeat(np.arange(len(first)), np.diff(problem.starts))
        slots = np.flatnonzero(problem.neighbours > units)
        for k, (a, back), (b, sent), tables in chunks_of_slots(problem, slots, len(h)):
            x = without(h[:, a], u[:, back])[..., None] + without(h[:, b], u[:, sent])[:, :, None]
            x += problem.tables[tables]
            top = x.max((2, 3), keepdims=True)
            x = np.exp(x - np.where(top > -np.inf, top, 0))
            total = x.sum((2, 3), keepdims=True)
            both = (top + np.log(total))[:, :, 0, 0]
            both -= of_unit[:, units[k]] + of_unit[:, problem.neighbours[k]]
            values += both @ problem.probability[problem.edges[k]]
            if pairwise:
                pairs[:, tables] = np.where(total > 0, x / total, 0)
    return values, pairs


def _has_ties(units, beliefs):
    """Whether a unit has two best states of equal belief, in each row: decoding is ambiguous."""
    starts, sizes = units.first_state[:-1], units.graph.n_states
    top = np.repeat(np.maximum.reduceat(beliefs, starts, axis=1), sizes, axis=1)
    equal = np.add.reduceat(beliefs >= top * (1 - 1e-9), starts, axis=1, dtype=np.int64)
    return (equal > 1).any(1)


class _Assignments:
    """The best assignments that have been decoded so far."""

    def __init__(self, options, n_rows, order):
        self.options, self.order = options, order
        self.labels = np.zeros((n_rows, len(order)), np.int64)
        self.optimal, self.objective = np.zeros(n_rows, bool), np.full(n_rows, -np.inf)

    def decode(self, problem, state, n_done):
        """Decode the beliefs of a state; after the first window, only once in a window."""
        if n_done > WINDOW_SWEEPS and n_done % WINDOW_SWEEPS:
            return
        labels = np.zeros_like(self.labels)
        optimal, objective = np.zeros_like(self.optimal), np.zeros_like(self.objective)
        n_rows, moves = len(labels), self.options.search
        n_workers = workers_for(n_rows, 20 * n_rows * len(problem.edges), self.options.n_threads)
        arguments = problem, state, moves, labels, optimal, objective, np.zeros(2, np.int64)
        in_parallel(graph_kernels.decode_graph, arguments, min(n_workers, len(state.scratch)))
        better = objective > self.objective
        self.labels[better], self.objective[better] = labels[better], objective[better]
        self.optimal[better] = optimal[better]

    def result(self):
        """Return assignments in the given order of units, if local maxima, and exponents."""
        labels = np.empty_like(self.labels)
        labels[:, self.order] = self.labels
        return labels, self.optimal, self.objective


NONE_FOUND = (
    "not converged: no assignment that is possible was found, and there may be none; "
    "algorithm='auto' says so of graphs that are not large"
)


def graph_beliefs(options, units, solved, probability, single):
    """Make the `GraphBeliefs` of rows; without the axis of rows if `single`."""
    dtype = units.model.dtype
    mean, var, tilts, labels = _units(units, solved.beliefs)
    labels = labels if solved.labels is None else solved.labels
    message, converged = _messages(solved)
    pairs = _pairs(units, solved) if options.pairwise else None
    if options.pairwise == "mean" and pairs is not None:
        pairs = pairs.mean(0)
    layers = {"mean": mean, "var": var, "b": tilts, "assignment": units.values_of(labels)}
    rows = {
        "log_partition": solved.log_partition if solved.objective is None else solved.objective,
        "score": solved.objective,
        "bound": solved.bounds,
        "local_maximum": solved.optimal if options.search else None,
        "messages": None if solved.messages is None else returned_messages(solved.messages, units),
        "converged": converged,
        "message": message,
    }
    edges, n_states = units.graph.edges.copy(), units.graph.n_states.copy()  # users may change them
    shared = {"edges": edges, "edge_probability": probability, "n_states": n_states}
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
    """Concatenate the rows of several `Solved`."""
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
    """Return why each assignment is not reliable, "" if it is; None if elimination takes long."""
    best = objective = np.atleast_1d(result.score)
    if not units.layout.is_forest and not is_best.all():
        states = units.best_states(range(len(objective)))
        if states is None:
            return None
        best = states[1]
    return reasons(objective, best, "search=True")


def all_right(answer):
    """Check exact rows: all are reliable."""
    return [""] * np.size(answer.converged)


def _most_probable(units, beliefs):
    """Return the values of the most probable state of each unit."""
    return units.values_of(units.labels(beliefs))


def question_of(units, mixed=None, stable=None):
    """Return the check behind `reliable` of sum-product."""
    if units.layout.is_forest:
        return all_right
    clamp = np.full((1, units.model.n_units), np.nan) if units.clamp is None else units.clamp
    tilt = Tilt(units.field, np.zeros((1, units.model.n_units)), ~np.isnan(clamp))
    return Question(units.model, tilt, True, mixed, stable)


def _messages(solved):
    """Return the messages of rows, and whether they have converged."""
    status = solved.record["status"]
    converged, message = is_converged(status), messages_of(status)
    if solved.objective is not None:
        none = np.isneginf(solved.objective) & (status != INFEASIBLE)
        message, converged = np.where(none, NONE_FOUND, message), converged & ~none
    return message, converged


def _units(units, beliefs):
    """Return means, variances, tilts and the most probable state of each unit."""
    prior, pair = units.model.prior, two_values(units.model.prior)
    if pair is None:
        mean, var = units.moments(beliefs)
        return mean, var, _tilts(units, beliefs), units.labels(beliefs)
    (low, high), q, p = pair, beliefs[:, ::2], beliefs[:, 1::2]
    with np.errstate(divide="ignore", invalid="ignore"):
        log_odds = np.log(p) - np.log(q)
    log_odds[np.isnan(log_odds)] = 0
    tilt = log_odds / (high - low) - binary_field(prior)[0].astype(np.float64)
    return low * q + high * p, (high - low) ** 2 * p * q, tilt, (p > q).astype(np.int64)


def _tilts(units, beliefs):
    """Return tilts of the units, or None if some are neither groups nor two-valued."""
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
    """Return expected products of two-valued units, or probabilities of pairs of states."""
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


# For speed: each iteration has a bound.
MAX_POWER_ITERATIONS = 200


def spectral_radius(units):
    """Compute an upper bound of the spectral radius; 0 on a forest.

    The matrix between directed edges is A_(i->j),(k->i) = tanh(strength_ij) for k != j. The
    strength is a quarter of the largest J(a,b) + J(c,d) - J(a,d) - J(c,b).
    """
    if units.layout.is_forest:
        return 0.0
    layout = units.layout
    strength = np.tanh(_strengths(units))[layout.edges]
    n_units = len(units.graph.n_states)
    senders = np.repeat(np.arange(n_units), np.diff(layout.starts))

    def product(x):
        received = np.bincount(layout.neighbours, x, n_units)
        return strength * (received[senders] - x[layout.reverse])

    return perron_bound(product, np.ones(len(strength)))


def radius_of_layers(weights):
    """Compute an upper bound of the spectral radius of two layers of {0, 1} units."""
    strength = np.tanh(abs(weights.astype(np.float64)) / 4)

    def twice(x):
        """Multiply by the square of the matrix on the edges that start at visible units."""
        back = strength * (x.sum(0) - x)
        return strength * (back.sum(1, keepdims=True) - back)

    return perron_bound(twice, np.ones_like(strength)) ** 0.5


def _strengths(units):
    """Compute the strength of each edge: atanh of its largest contraction of messages."""
    first, tables = units.tables
    sizes = units.graph.n_states[units.graph.edges]
    strengths = np.zeros(len(sizes))
    for shape in np.unique(sizes, axis=0):
        index = np.flatnonzero((sizes == shape).all(1))
        block = tables[first[index][:, None] + np.arange(shape.prod())].reshape(-1, *shape)
        with np.errstate(invalid="ignore"):
            # J(a, b) - J(c, b) - (J(a, d) - J(c, d)) is largest at two columns' extremes.
            rows = block[:, :, None, :] - block[:, None, :, :]
            extent = rows.max(3) - rows.min(3)
        strengths[index] = np.nan_to_num(extent, nan=np.inf).max((1, 2)) / 4
    return strengths


def perron_bound(product, x):
    """Compute an upper bound of the spectral radius of a matrix A without negative entries.

    By Collatz and Wielandt, max (A x)_i / x_i is an upper bound for every positive x, so that it
    holds after any number of power iterations. These tighten it, slowly on trees (whose radius is
    0).
    """
    bound = np.inf
    for _ in range(MAX_POWER_ITERATIONS):
        new = product(x)
        last, bound = bound, min(bound, (new / x).max())
        if bound >= last * (1 - 1e-9):
            break
        # The added multiple of x keeps it positive, and damps oscillations.
        x = new.clip(min=0) + 0.1 * bound * x + 1e-300
        x = (x / x.max()).clip(min=1e-250)
    return float(bound)
