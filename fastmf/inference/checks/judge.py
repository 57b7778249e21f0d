"""The checks of `fastmf.inference.checks`: exact sums, and answers of alternative methods.

Exact sums are over the states of all units, or of the smaller side of a bipartite machine; larger
fully visible machines are summed by variable elimination. Sums are skipped if they would take more
than some tenths of a second for all rows together.

Held units: with a unit x_i clamped to each of its values s, belief propagation has log-partitions
log Z_s. If they were exact, they would add up to log Z = log sum_s Z_s, and the means would be
averages with weights Z_s / Z. Clamping cuts the cycles through the unit, and reaches every phase in
which it has another value (Weller & Jebara, 2014, clamp units to improve answers).
"""

from enum import StrEnum
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from fastmf._common.arguments import generator
from fastmf.inference.bp.graphs.units import GraphUnits
from fastmf.inference.bp.solutions import MAX_CHECK_SWEEPS
from fastmf.inference.mean_field.lower_bound import sides_of, terms_of_units
from fastmf.inference.mean_field.solutions import N_CHECKED_STARTS, mixture, moved_from
from fastmf.models import RBM, BoltzmannMachine
from fastmf.models._couplings import entries, has_forbidden, with_entries
from fastmf.models._graph_sums import MAX_ENTRIES, is_small
from fastmf.models.boltzmann import machine_of_layers
from fastmf.models.exact import normalized, states_of
from fastmf.models.layered import Layered
from fastmf.priors._groups import column_sizes, has_groups, only_groups
from fastmf.priors._protocol import by_parts, can_sample, has_log_prob
from fastmf.priors._queries import columns_of_values, is_discrete, number_of_states, widths
from fastmf.priors.concatenated import concatenate

# Share of the total weight above which a row solved from `init` must be right for the whole model.
LARGEST_SHARE = 0.75


def reasons_of(solved, question, exact_sums=True):
    """Return the reason why each row is not reliable, "" if it is; None if nothing is known.

    Without `exact_sums`, only other methods are compared.
    """
    reasons = np.full(np.size(solved.converged), "", object)
    if solved.log_partition is None:
        return None
    values, ended = np.atleast_1d(solved.log_partition), np.atleast_1d(solved.converged)
    rows = np.flatnonzero(ended & np.isfinite(values))
    if not len(rows):
        return list(reasons)
    model, tilt = question.model, question.tilt
    mean, var = (joined(model, part)[rows] for part in (solved.mean, solved.var))
    tilt = tilt._make(part[rows] if len(part) > 1 else part for part in tilt)
    reasons[rows] = _by_exact_sums(question, tilt, mean, values[rows]) if exact_sums else None
    undecided = np.array([reason is None for reason in reasons[rows]])
    if undecided.any():
        if are_too_large(model, undecided.sum(), question.whole):
            return None
        tilt = [np.broadcast_to(part, mean.shape)[undecided] for part in tilt]
        numbers = rows[undecided]
        log_partition = values[numbers].astype(np.float64)
        judged = JudgedRows(
            machine_of(model), mean[undecided], var[undecided], log_partition, *tilt
        )
        by_methods = by_other_answers(question, judged, numbers)
        if by_methods is None:
            return None
        reasons[numbers] = by_methods
    return list(reasons)


def _by_exact_sums(question, tilt, mean, values):
    """Return the reason why each row is wrong, "" if it is right, None if sums cannot decide.

    A row solved from `init` may be one solution of several. If its log-partition is d nats too low,
    it has a share w = exp(-d) of the weight, so that means may differ by a further 1 - w; sums
    cannot decide whether it is a good approximation of this solution.
    """
    sums = exact_rows(question.model, tilt, mean)
    if sums is None:
        return [None] * len(values)
    decided = []
    for k, value in enumerate(values):
        exact, width = sums.log_partition[k], sums.width[min(k, len(sums.width) - 1)]
        answer, share = Answer(value, mean[k]), np.exp(-max(exact - value, 0.0))
        one_of_several = not question.whole and share <= LARGEST_SHARE
        same_value = Answer(value, sums.mean[k])
        if exact == -np.inf:
            decided.append(Reason.IMPOSSIBLE)
        elif agree(answer, Answer(exact, sums.mean[k]), width):
            decided.append("")
        elif np.isnan(exact) or (one_of_several and agree(answer, same_value, width, 1 - share)):
            decided.append(None)
        else:
            decided.append(Reason.EXACT)
    return decided


# Largest differences of answers that agree: nats; fractions of ranges, on average and of one unit.
MAX_NATS, MAX_MEAN, MAX_ONE_MEAN = 1.0, 0.05, 0.2
# Minimum number of held units. It limits the time: the tests have the same verdicts with 2 and 8.
MIN_HELD = 4
# Maximum duration of a check of all rows, estimated from the seconds per message of belief
# propagation and per multiplication of adaptive TAP. Results do not depend on measured times.
MAX_SECONDS, MESSAGE_SECONDS, PRODUCT_SECONDS = 0.5, 1e-6, 2e-8


class Reason(StrEnum):
    """Reason why a row is not reliable, as stated in its `message`."""

    EXACT = (
        "exact sums, which are quick, give another log-partition or other means; take "
        "fastmf.exact, or belief_propagation with algorithm='auto'"
    )
    IMPOSSIBLE = "exact sums show that no state is possible: the log-partition is -inf"
    UNSTABLE = "no start leads to a stable solution, and this is the solution of the first start"
    STARTS = (
        "the mixture of the fixed points from other starts has another log-partition or other "
        "means: take fastmf.mixture, or `init` for one fixed point"
    )
    HELD_UNITS = (
        "belief propagation with single units held at each of their values has another "
        "log-partition or other means"
    )
    ADAPTIVE_TAP = "adaptive_tap has another log-partition or other means"
    MESSAGES = "belief propagation from its means has another log-partition or other means"


class Answer(NamedTuple):
    """Log-partition and means (n_units,) of one row."""

    log_partition: float
    mean: np.ndarray


def agree(answer, other, width, slack=0.0):
    """Whether two answers agree, given the ranges of units; means may differ by `slack` more."""
    off = np.maximum(abs(other.mean - answer.mean) / width - slack, 0)
    means = off.mean() <= MAX_MEAN and off.max() <= MAX_ONE_MEAN if off.size else True
    return bool(abs(other.log_partition - answer.log_partition) <= MAX_NATS and means)


class JudgedRows(NamedTuple):
    """Rows to be judged: answers, and the tilts for which they were solved."""

    machine: object  # RBM or BoltzmannMachine, in double precision; a DBM as `bipartite()`
    mean: np.ndarray  # (n_rows, n_units): units are in the order of the machine's layers
    var: np.ndarray  # (n_rows, n_units)
    log_partition: np.ndarray  # (n_rows,)
    field: np.ndarray  # (n_rows, n_units)
    precision: np.ndarray  # (n_rows, n_units)
    clamped: np.ndarray  # bool (n_rows, n_units): units clamped to their means

    def chosen(self, rows):
        """Select some rows."""
        return JudgedRows(self.machine, *(part[rows] for part in self[1:]))

    @property
    def prior(self):
        """Prior of all units, concatenated."""
        return concatenate(list(self.machine.layers))

    @property
    def clamp(self):
        """Values of clamped units, NaN where free; None without any."""
        return np.where(self.clamped, self.mean, np.nan) if self.clamped.any() else None

    def tilts(self):
        """Keyword arguments of solvers, by layers."""
        parts = {"field": self.field, "precision": self.precision, "clamp": self.clamp}
        used = {k: x for k, x in parts.items() if x is not None and np.any(x != 0)}
        return {k: split(self.machine, x) for k, x in used.items()}


def machine_of(model):
    """Convert a model to an RBM or BoltzmannMachine in double precision."""
    sides = sides_of(model)
    kind = BoltzmannMachine if len(sides.priors) == 1 else RBM
    return kind(sides.couplings, *sides.priors)


def joined(model, parts):
    """Concatenate arrays of the layers of a model, in the order of `machine_of`."""
    if isinstance(parts, tuple):
        order = (*parts[::2], *parts[1::2]) if isinstance(model, Layered) else parts
        parts = np.concatenate([np.atleast_2d(part) for part in order], axis=1)
    return np.atleast_2d(parts).astype(np.float64)


def split(machine, x):
    """Split an array of all units into a tuple of the layers of an RBM."""
    return tuple(np.split(x, [len(machine.weights)], axis=-1)) if isinstance(machine, RBM) else x


def are_too_large(model, n_rows, whole):
    """Whether all methods would take too long, as estimated from the sizes of a model."""
    layered = isinstance(model, Layered)
    parts = model.couplings if layered else (model.couplings,)
    sizes = [sum(model.sizes[k::2]) for k in (0, 1)] if layered else model.couplings.shape
    n_messages = sum(map(count_couplings, parts)) * (2 if layered else 1)
    n_solves = n_rows * (2 * MIN_HELD if whole else 1)
    messages = n_solves * n_messages * MESSAGE_SECONDS
    products = n_rows * float(np.prod(sizes)) * min(sizes) * PRODUCT_SECONDS
    return min(messages, products) > MAX_SECONDS


def couplings_of(machine):
    """Couplings of an RBM or a BoltzmannMachine."""
    return machine.weights if isinstance(machine, RBM) else machine.couplings


def count_couplings(couplings):
    """Number of entries that are not zero."""
    return int(np.count_nonzero(entries(couplings)))


# Maximum number of entries of the arrays of an enumeration for all rows.
MAX_NUMBERS = 2**21
# Range of a unit with unbounded values, in standard deviations.
DEVIATIONS = 4.0


class ExactRows(NamedTuple):
    """Log-partitions (n_rows,), means (n_rows, n_units) and ranges (n_rows or 1, n_units) of units.

    The log-partition is NaN where units have no moments, and -inf where no state is possible.
    """

    log_partition: np.ndarray
    mean: np.ndarray
    width: np.ndarray


def exact_rows(model, tilt, values):
    """Compute the `ExactRows` of a model, tilts in the order of `sides_of`; None if too slow."""
    sides, n_rows = sides_of(model), len(values)
    values = values.astype(np.float64)
    tilt = tilt._make(
        part.astype(part.dtype if part.dtype == bool else np.float64) for part in tilt
    )
    n_tilts = n_rows if tilt.clamped.any() else max(map(len, tilt))
    summed = _enumerated_side(sides, n_tilts)
    if summed is not None:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # units without moments
            sums = _enumerated(sides, summed, tilt, values[:n_tilts])
    elif len(sides.priors) == 1:
        sums = _eliminated(sides, tilt, values[:n_tilts])
    else:
        sums = None
    if sums is None or n_tilts == n_rows:
        return sums
    return ExactRows(*(np.repeat(part, n_rows, axis=0) for part in sums[:2]), sums.width)


def _enumerated_side(sides, n_rows):
    """Return the side with few enough states for all rows, or None."""
    bipartite, shape = len(sides.priors) == 2, sides.couplings.shape
    width = sum(shape) * n_rows if bipartite else shape[0] + n_rows
    if has_forbidden(sides.couplings):
        return None
    counts = [number_of_states(x) if has_log_prob(x) else np.inf for x in sides.priors]
    best = int(np.argmin(counts))
    return best if counts[best] * width <= MAX_NUMBERS else None


def _enumerated(sides, summed, tilt, values):
    """Compute `ExactRows` over the states of one side; sum the other, if any, analytically."""
    prior, of_side = sides.priors[summed], sides.slices[summed]
    x = np.vstack(list(states_of(prior, 1)))
    fields = x @ (sides.couplings.T if summed else sides.couplings)
    tilt = [np.broadcast_to(part, values.shape) for part in tilt]
    field, precision, clamped = (part[:, of_side] for part in tilt)
    logs = prior.log_prob(x).sum(1) + field @ x.T - precision @ (x**2).T / 2
    for k in np.flatnonzero(clamped.any(0)):
        logs[clamped[:, [k]] & (x[:, k] != values[:, of_side][:, [k]])] = -np.inf
    mean, width = np.empty(values.shape), np.empty(values.shape)
    if len(sides.priors) == 1:
        log_partition, w = normalized(logs + (fields * x).sum(1) / 2)
    else:
        other, of_other = sides.priors[1 - summed], sides.slices[1 - summed]
        field, *more = (part[:, None, of_other] for part in (*tilt, values))
        parts = np.broadcast_arrays(fields + field, *more)
        shape, (b, *more) = parts[0].shape, [part.reshape(-1, part.shape[2]) for part in parts]
        means, terms = terms_of_units(other, b, b, *more)
        log_partition, w = normalized(logs + terms.sum(1).reshape(logs.shape))
        average = (w[:, None] @ means.reshape(shape))[:, 0]
        mean[:, of_other], width[:, of_other] = average, widths(other)
        if not is_discrete(other):
            squares = (other.moments(b, more[0])[1] + means**2).reshape(shape)
            var = np.maximum((w[:, None] @ squares)[:, 0] - average**2, 0)
            width[:, of_other] = ranges(other, var)
    mean[:, of_side], width[:, of_side] = w @ x, widths(prior)
    unknown = ~np.isfinite(log_partition)  # no state is possible, or units have no moments
    log_partition[unknown], mean[unknown], width[unknown] = np.nan, 0, 1
    return ExactRows(log_partition, mean, width)


def ranges(prior, var):
    """Return ranges of discrete units, and `DEVIATIONS` standard deviations of all other units."""
    deviations = np.maximum(DEVIATIONS * np.sqrt(var), 1e-300)
    return np.hstack([
        np.broadcast_to(widths(part), of_part.shape) if is_discrete(part) else of_part
        for part, of_part in by_parts(prior, deviations)
    ])  # fmt: skip


def _eliminated(sides, tilt, values):
    """Compute the `ExactRows` of a fully visible machine, None if its tables are large."""
    prior, n_rows = sides.priors[0], len(values)
    if not is_discrete(prior) or not has_log_prob(prior):
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


# Maximum number of held units. It limits the time: the tests have the same verdicts with 6 and 24.
MAX_HELD = 12
# Tolerance of alternative methods, and iterations from each start of a mixture. They limit the
# time: the tests have the same verdicts with half and twice these values.
METHOD_TOL, MAX_ITERATIONS = 1e-5, 100


def by_other_answers(question, rows, numbers):
    """Return the reason why each row is not reliable, "" if it is; None if that takes too long."""
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
    """Return the reasons for rows solved without `init`."""
    reasons, held, undecided = [""] * len(numbers), HeldUnits(rows), []
    for k, row in enumerate(numbers):
        if question.stable is not None and not question.stable[row]:
            reasons[k] = Reason.UNSTABLE
            continue
        alternatives, converged = held.answers(k) if held.seconds <= MAX_SECONDS else ([], False)
        answer = Answer(rows.log_partition[k], rows.mean[k])
        if not all(agree(answer, alternative, _widths(rows, k)) for alternative in alternatives):
            reasons[k] = Reason.HELD_UNITS
        elif not converged:
            undecided.append(k)
    if not undecided:
        return reasons
    more = _of_starts_and_adaptive_tap(question, rows.chosen(undecided))
    if more is None:
        return None
    for k, reason in zip(undecided, more, strict=True):
        reasons[k] = reason
    return reasons


def _of_starts_and_adaptive_tap(question, rows):
    """Return the reasons if units are not discrete, or messages with held units do not converge."""
    adaptive, reasons = AdaptiveTap(rows), [""] * len(rows.mean)
    if adaptive.seconds > MAX_SECONDS:
        return None
    if question.mixed is not None:
        reasons = _contradictions(rows, adaptive.answers(), Reason.ADAPTIVE_TAP)
    if can_sample(rows.machine.layers[0]):
        mixtures = 2 * N_CHECKED_STARTS * adaptive.seconds
        if question.mixed is not None:
            # Some starts take several times as many sweeps as a typical row.
            n_solves = 5 * 2 * N_CHECKED_STARTS * len(rows.mean)
            mixtures = n_solves * count_couplings(couplings_of(rows.machine)) * PRODUCT_SECONDS
        if mixtures > MAX_SECONDS:
            return None
        mixed = question.mixed or adaptive_mixture
        alternatives = answers_of(asked(mixed, rows.machine, **rows.tilts()), rows)
        more = _contradictions(rows, alternatives, Reason.STARTS)
        reasons = [x or y for x, y in zip(reasons, more, strict=True)]
    return reasons


def _contradictions(rows, alternatives, reason):
    """Return `reason` for each row that differs from its alternative answer, "" otherwise."""
    out = []
    for k, alternative in enumerate(alternatives):
        answer = Answer(rows.log_partition[k], rows.mean[k])
        right = alternative is None or agree(answer, alternative, _widths(rows, k))
        out.append("" if right else reason)
    return out


def _widths(rows, k):
    """Return the ranges of the units of a row."""
    return ranges(rows.prior, rows.var[[k]])[0]


class HeldUnits:
    """Belief propagation with single units held at each of their values.

    The number of held units depends on `MAX_SECONDS`; `seconds` is the estimate for the minimum
    number in all rows, infinite if belief propagation does not support the units.
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
        """Return the answers of row k, one for each held unit, and whether all have converged."""
        # Solvers are imported when they are needed: exact sums decide most small machines.
        from fastmf.inference.bp.belief_propagation import belief_propagation

        row = self.rows.chosen([k])
        units = self._units(row)
        if not len(units):  # without couplings there is no error
            return [], True
        held_units = np.repeat(units, [len(self.values[unit]) for unit in units])
        clamp = np.tile(np.where(row.clamped[0], row.mean[0], np.nan), (len(held_units), 1))
        for unit in units:
            columns = slice(self.starts[unit], self.ends[unit])
            clamp[held_units == unit, columns] = self.values[unit]
        options = {"tol": METHOD_TOL, "max_iter": MAX_CHECK_SWEEPS}
        solved = asked(belief_propagation, self.graph, field=row.field[0], clamp=clamp, **options)
        if solved is None:
            return [], False
        answers = []
        for unit in units:
            held = np.flatnonzero(held_units == unit)
            values = solved.log_partition[held]
            # States that are impossible have log-partitions of -inf, and count as converged.
            ended = solved.converged[held] | np.isneginf(values)
            if ended.all() and np.isfinite(values).any():
                total = logsumexp(values)
                weights, means = np.exp(values - total), solved.mean[held]
                answers.append(Answer(total, weights @ np.where(weights[:, None] > 0, means, 0)))
        return answers, len(answers) == len(units)

    def _units(self, row):
        """Return the free units with the largest couplings, weighted by variances."""
        largest = np.finfo(float).max ** 0.25  # sums of products of squares stay finite
        squares = with_entries(self.graph.couplings, lambda w: np.minimum(abs(w), largest) ** 2)
        # Not 0, so that units that seem certain are held if no other units are free.
        var = np.where(row.clamped[0], 0, np.maximum(row.var[0], np.finfo(float).eps ** 2))
        strength = np.add.reduceat(var * (squares @ var), self.starts)
        order = np.argsort(-strength, kind="stable")[: max(self.n_held, MIN_HELD)]
        return order[strength[order] > 0]


class AdaptiveTap:
    """Adaptive TAP, for machines without clamped units and groups."""

    def __init__(self, rows):
        self.rows, self.seconds, machine = rows, np.inf, rows.machine
        if not (rows.clamped.any() or any(map(has_groups, machine.layers))):
            shape = couplings_of(machine).shape
            products = float(np.prod(shape)) * min(shape)
            self.seconds = len(rows.mean) * products * PRODUCT_SECONDS

    def answers(self, init=None):
        """Return the answer for each row, None where it has not converged."""
        from fastmf.inference.ep.adaptive_tap import adaptive_tap

        solved = asked(adaptive_tap, self.rows.machine, init, **self.rows.tilts())
        return answers_of(solved, self.rows)


def adaptive_mixture(machine, **tilts):
    """Return the mixture of the fixed points of adaptive TAP from several starts."""
    from fastmf.inference.ep.adaptive_tap import adaptive_tap

    options = {"tol": METHOD_TOL, "max_iter": MAX_ITERATIONS, "schedule": "parallel"}
    return mixture(adaptive_tap, machine, N_CHECKED_STARTS, **options, **tilts)


class MessagesFromMeans:
    """Belief propagation from the messages that units send at the means of rows.

    The means of groups, and of two-valued units, determine the probabilities of their states.
    """

    def __init__(self, rows):
        self.rows, self.seconds, self.values = rows, np.inf, values_of(rows)
        if self.values is None:
            return
        if only_groups(rows.prior) or max(map(len, self.values)) == 2:
            self.graph = graph_of(rows.machine)
            self.seconds = len(rows.mean) * seconds_of_messages(self.graph, self.values)

    def answers(self, init):
        """Return the answer for each row, None where it has not converged."""
        from fastmf.inference.bp.belief_propagation import belief_propagation
        from fastmf.inference.bp.graphs.starts import messages_from

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
            tol=METHOD_TOL, max_iter=MAX_CHECK_SWEEPS,
        )  # fmt: skip
        return answers_of(solved, rows)


def asked(solve, *arguments, **options):
    """Return the result of a solver; None if it refuses the model, as for too large couplings."""
    try:
        return solve(*arguments, **options)
    except ValueError:
        return None


def answers_of(solved, rows):
    """Return the answer of a `FixedPoint` for each row, None where it has not converged."""
    if solved is None:
        return [None] * len(rows.mean)
    mean, n = np.broadcast_to(joined(rows.machine, solved.mean), rows.mean.shape), len(rows.mean)
    values = np.broadcast_to(solved.log_partition, n)
    known = np.isfinite(values) & solved.converged
    return [Answer(values[k], mean[k]) if known[k] else None for k in range(n)]


def graph_of(machine):
    """Convert an RBM to a BoltzmannMachine, in which any unit can be held."""
    if isinstance(machine, RBM):
        return machine_of_layers(machine.weights, machine.layers)
    return machine


def seconds_of_messages(graph, values):
    """Estimate the time of belief propagation for one row, given the values of all units."""
    groups = [x.shape[1] for x in values]
    n_values = max((len(x) for x, size in zip(values, groups, strict=True) if size == 1), default=2)
    # Groups have a coupling for each pair of states; two-valued units send one number an edge.
    n_numbers = count_couplings(graph.couplings) * (n_values**2 if n_values > 2 else 1)
    return n_numbers * MESSAGE_SECONDS


def values_of(rows):
    """Return the values of each unit or group; None if belief propagation does not apply."""
    if rows.precision.any() or not has_log_prob(rows.prior):
        return None
    return columns_of_values(rows.prior) or None
