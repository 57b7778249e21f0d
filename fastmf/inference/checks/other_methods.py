"""Whether rows that are too large for exact sums agree with the answers of other methods.

Held units: with a unit x_i held at each of its values s, belief propagation has the log-partitions
log Z_s; without an error they add up to log Z = log sum_s Z_s, and the means are their averages
with weights Z_s / Z. That takes other ways around cycles, and reaches every phase in which the
values of the unit differ (Weller & Jebara 2014 clamp units for better answers).
"""

from functools import partial

import numpy as np
from scipy.special import logsumexp

from fastmf._common.arguments import generator
from fastmf.inference.bp.belief_propagation import belief_propagation
from fastmf.inference.bp.graphs.layers import machine_of_layers
from fastmf.inference.bp.graphs.starts import messages_from
from fastmf.inference.bp.graphs.units import GraphUnits
from fastmf.inference.checks.exact_sums import ranges
from fastmf.inference.checks.rows import (
    MAX_SECONDS,
    MESSAGE_SECONDS,
    MIN_HELD,
    PRODUCT_SECONDS,
    Answer,
    Reason,
    agree,
    couplings_of,
    joined,
    n_couplings,
    split,
)
from fastmf.inference.ep.adaptive_tap import adaptive_tap, parallel_sweeps_alone
from fastmf.inference.mean_field.mixture import N_CHECKED_STARTS, mixture, moved_from
from fastmf.models import RBM
from fastmf.models._couplings import with_entries
from fastmf.priors._groups import column_sizes, has_groups, only_groups
from fastmf.priors._protocol import can_sample, has_log_prob, parts_of
from fastmf.priors._queries import columns_of_values

# Units that are held at most.
MAX_HELD = 12
# Tolerance, sweeps of belief propagation, and iterations from the starts of a mixture.
METHOD_TOL, MAX_SWEEPS, MAX_ITERATIONS = 1e-5, 400, 100


def by_other_answers(question, rows, numbers):
    """Reason why each row is not reliable, "" if it is; None if methods would take too long."""
    if question.whole:
        return _of_whole_model(question, rows, numbers)
    for method, reason in (
        (AdaptiveTap, Reason.ADAPTIVE_TAP),
        (MessagesFromMeans, Reason.MESSAGES),
    ):
        alternative = method(rows)
        if alternative.seconds <= MAX_SECONDS:
            start = moved_from(rows.mean, np.where(rows.clamped, 0, rows.var), generator(0))
            init = split(rows.machine, start), split(rows.machine, rows.var)
            return _contradictions(rows, alternative.answers(init), reason)
    return None


def _of_whole_model(question, rows, numbers):
    """The same of rows without starts of their own."""
    reasons, held, unsettled = [""] * len(numbers), HeldUnits(rows), []
    for k, row in enumerate(numbers):
        if question.stable is not None and not question.stable[row]:
            reasons[k] = Reason.UNSTABLE
            continue
        alternatives, settled = held.answers(k) if held.seconds <= MAX_SECONDS else ([], False)
        answer = Answer(rows.log_partition[k], rows.mean[k])
        if not all(agree(answer, alternative, _widths(rows, k)) for alternative in alternatives):
            reasons[k] = Reason.HELD_UNITS
        elif not settled:
            unsettled.append(k)
    if not unsettled:
        return reasons
    more = _of_starts_and_adaptive_tap(question, rows.chosen(unsettled))
    if more is None:
        return None
    for k, reason in zip(unsettled, more, strict=True):
        reasons[k] = reason
    return reasons


def _of_starts_and_adaptive_tap(question, rows):
    """The same where units are not discrete, or messages with held units do not settle."""
    adaptive, reasons = AdaptiveTap(rows), [""] * len(rows.mean)
    if adaptive.seconds > MAX_SECONDS:
        return None
    if question.mixed is not None:
        reasons = _contradictions(rows, adaptive.answers(), Reason.ADAPTIVE_TAP)
    if can_sample(rows.machine.layers[0]):
        mixtures = 2 * N_CHECKED_STARTS * adaptive.seconds
        if question.mixed is not None:
            mixtures = seconds_of_starts(rows)
        if mixtures > MAX_SECONDS:
            return None
        mixed = question.mixed or adaptive_mixture
        alternatives = answers_of(asked(mixed, rows.machine, **rows.tilts()), rows)
        more = _contradictions(rows, alternatives, Reason.STARTS)
        reasons = [x or y for x, y in zip(reasons, more, strict=True)]
    return reasons


def _contradictions(rows, alternatives, reason):
    """The reason for each row that does not agree with another answer, "" where there is none."""
    out = []
    for k, alternative in enumerate(alternatives):
        answer = Answer(rows.log_partition[k], rows.mean[k])
        right = alternative is None or agree(answer, alternative, _widths(rows, k))
        out.append("" if right else reason)
    return out


def _widths(rows, k):
    """Ranges of the units of a row."""
    return ranges(rows.prior, rows.var[[k]])[0]


class HeldUnits:
    """Belief propagation with single units held at each of their values.

    Units are held as time allows; `seconds` is the time for the fewest in all rows,
    infinite where belief propagation does not solve them.
    """

    def __init__(self, rows):
        self.rows, self.seconds, self.values = rows, np.inf, values_of(rows)
        if self.values is None:
            return
        self.graph = graph_of(rows.machine)
        sizes = np.array(column_sizes(rows.prior), dtype=int)
        self.ends = np.cumsum(sizes)
        self.starts = self.ends - sizes
        counts = np.sort([len(values) for values in self.values])[::-1]
        seconds = len(rows.mean) * seconds_of_messages(self.graph, self.values)
        self.seconds = seconds * counts[:MIN_HELD].sum()
        self.n_held = min(MAX_HELD, int(MAX_SECONDS / (seconds * counts.max(initial=1) + 1e-300)))

    def answers(self, k):
        """Answers of a row by each unit that is held, and whether all of them have converged."""
        row = self.rows.chosen([k])
        units = self._units(row)
        if not len(units):  # without couplings there is no error
            return [], True
        clamps, owners = [], []
        base = np.where(row.clamped[0], row.mean[0], np.nan)
        for unit in units:
            for value in self.values[unit]:
                clamp = base.copy()
                clamp[self.starts[unit] : self.ends[unit]] = value
                clamps.append(clamp)
                owners.append(unit)
        solved = asked(
            belief_propagation, self.graph, field=row.field[0], clamp=np.array(clamps),
            tol=METHOD_TOL, max_iter=MAX_SWEEPS,
        )  # fmt: skip
        if solved is None:
            return [], False
        answers, owners = [], np.array(owners)
        for unit in units:
            held = np.flatnonzero(owners == unit)
            values = solved.log_partition[held]
            # States that are impossible have log-partitions of -inf, and count as converged.
            ended = solved.converged[held] | np.isneginf(values)
            if ended.all() and np.isfinite(values).any():
                total = logsumexp(values)
                weights, means = np.exp(values - total), solved.mean[held]
                answers.append(Answer(total, weights @ np.where(weights[:, None] > 0, means, 0)))
        return answers, len(answers) == len(units)

    def _units(self, row):
        """The free units that are coupled most strongly, by variances."""
        squares = with_entries(self.graph.couplings, _finite_square)
        # Units that seem certain are held where no unit does not.
        var = np.where(row.clamped[0], 0, np.maximum(row.var[0], np.finfo(float).eps ** 2))
        strength = np.add.reduceat(var * (squares @ var), self.starts)
        order = np.argsort(-strength, kind="stable")[: max(self.n_held, MIN_HELD)]
        return order[strength[order] > 0]


def _finite_square(w):
    largest = np.finfo(float).max ** 0.25
    return np.square(np.clip(w, -largest, largest))


class AdaptiveTap:
    """Adaptive TAP, of machines without clamped units and groups."""

    def __init__(self, rows):
        self.rows, self.seconds, machine = rows, np.inf, rows.machine
        if not (rows.clamped.any() or any(map(has_groups, machine.layers))):
            shape = couplings_of(machine).shape
            products = float(np.prod(shape)) * min(shape)
            self.seconds = len(rows.mean) * products * PRODUCT_SECONDS

    def answers(self, init=None):
        """The answer of each row, None where it has not converged."""
        solved = asked(adaptive_tap, self.rows.machine, init, **self.rows.tilts())
        return answers_of(solved, self.rows)


def adaptive_mixture(machine, **tilts):
    """The mixture of the fixed points of adaptive TAP from several starts."""
    solve = partial(parallel_sweeps_alone, tol=METHOD_TOL, max_iter=MAX_ITERATIONS)
    return mixture(solve, machine, N_CHECKED_STARTS, **tilts)


class MessagesFromMeans:
    """Belief propagation from the messages that units send at the means of rows.

    Probabilities of their states are known from the means of groups, and of two values.
    """

    def __init__(self, rows):
        self.rows, self.seconds, self.values = rows, np.inf, values_of(rows)
        if self.values is None:
            return
        if only_groups(rows.prior) or max(map(len, self.values)) == 2:
            self.graph = graph_of(rows.machine)
            self.seconds = len(rows.mean) * seconds_of_messages(self.graph, self.values)

    def answers(self, init):
        """The answer of each row, None where it has not converged."""
        rows, parts, first = self.rows, [], 0
        start = joined(rows.machine, init[0])
        for values, size in zip(self.values, column_sizes(rows.prior), strict=True):
            mean = start[:, first : first + size]
            first += size
            if size == 1:
                low, high = values.min(), values.max()
                p = (mean - low) / (high - low)
                mean = np.hstack([1 - p, p])
            parts.append(np.clip(mean, 0, 1))
        units = GraphUnits(self.graph)
        messages = messages_from(units, np.hstack(parts))
        solved = asked(
            belief_propagation, self.graph, init=messages, field=rows.field, clamp=rows.clamp,
            tol=METHOD_TOL, max_iter=MAX_SWEEPS,
        )  # fmt: skip
        return answers_of(solved, rows)


def asked(solve, *arguments, **options):
    """The result of a solver; None if it refuses couplings, as too large ones."""
    try:
        return solve(*arguments, **options)
    except ValueError:
        return None


def answers_of(solved, rows):
    """The answers of a `FixedPoint` of the machine of rows, None where it has not converged."""
    if solved is None:
        return [None] * len(rows.mean)
    mean = joined(rows.machine, solved.mean)
    values, ended = np.atleast_1d(solved.log_partition), np.atleast_1d(solved.converged)
    n = len(rows.mean)
    ends = zip(
        np.broadcast_to(values, n), np.broadcast_to(mean, rows.mean.shape),
        np.broadcast_to(ended, n), strict=True,
    )  # fmt: skip
    return [Answer(x, m) if ok and np.isfinite(x) else None for x, m, ok in ends]


def graph_of(machine):
    """An RBM as a BoltzmannMachine, as which its units can be held."""
    if isinstance(machine, RBM):
        return machine_of_layers(machine.weights, machine.layers)
    return machine


def seconds_of_messages(graph, values):
    """Estimated time of belief propagation of one row, with these values of all units."""
    groups = [x.shape[1] for x in values]
    n_values = max((len(x) for x, size in zip(values, groups, strict=True) if size == 1), default=2)
    # Groups have a coupling for each pair of states, and two-valued units one message an edge.
    n_numbers = n_couplings(graph) * (n_values**2 if n_values > 2 else 1)
    return n_numbers * MESSAGE_SECONDS


def seconds_of_starts(rows):
    """Estimated time of the mixtures of a mean-field solver."""
    # Some starts take several times as many sweeps as a typical row.
    n_solves = 5 * 2 * N_CHECKED_STARTS * len(rows.mean)
    return n_solves * n_couplings(rows.machine) * PRODUCT_SECONDS


def values_of(rows):
    """Values of each unit or group; None where belief propagation does not solve the rows."""
    if rows.precision.any() or not all(map(has_log_prob, parts_of(rows.prior))):
        return None
    return columns_of_values(rows.prior) or None
