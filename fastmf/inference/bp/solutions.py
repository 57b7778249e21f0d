"""Distinct fixed points of sum-product from many starts, and their mixture.

Fixed points s with Bethe log-partitions B_s are weighted by w_s = exp(B_s) / sum_t exp(B_t), as
phases that hardly overlap: the log-partition is log sum_s exp(B_s), and marginals are averages.

Starts are messages without preference and messages of states: of random probabilities, of naive
mean-field solutions and of states of low energy, each with its opposite where units have two
values. Fixed points that are reached are left by a small distance and solved again: a point that is
no minimum of the Bethe free energy does not come back, and is no answer.
"""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import scipy

from fastmf._common import arguments as check
from fastmf.inference.bp._options import BPOptions
from fastmf.inference.fixed_point import ending_of, with_changes, with_solutions
from fastmf.inference.mean_field.mixture import N_CHECKED_STARTS, SPREAD
from fastmf.inference.mean_field.solutions import Solutions, distinct
from fastmf.special import sigmoid

# Sweeps from each of the starts with which one start is compared.
MAX_CHECK_SWEEPS = 200
# Smallest probability of a state from which messages start.
MIN_START_PROBABILITY = 1e-6
# Sweeps to naive mean-field solutions and to states of low energy, which have a low temperature.
N_SWEEPS, COLD = 50, 1e-3
# Fields of `Beliefs` that a mixture has for each row.
MIXED_FIELDS = (
    "mean", "var", "b", "a", "log_partition", "converged", "n_iter", "residual", "assignment",
    "pairwise", "damping",
)  # fmt: skip


def options_of_checks(options):
    """Options of the mixtures with which one start is compared."""
    return BPOptions(
        n_starts=N_CHECKED_STARTS, rng=0, max_iter=MAX_CHECK_SWEEPS, tol=options.tol,
        n_threads=options.n_threads,
    )  # fmt: skip


def mixtures(options, n_rows, of_row):
    """The `Beliefs` of mixtures of fixed points, and whether each row has a stable one.

    of_row(k) gives functions solve(options, messages), which solves row k from several messages,
    and starts(n, rng), which draws them.
    """
    rng, rows = check.generator(options.rng), []
    last = replace(options, n_starts=None, messages=False, pairwise=bool(options.pairwise))
    first = replace(last, messages=True, pairwise=False)
    for k in range(n_rows or 1):
        solve, starts = of_row(k)
        rows.append(_mixture_of(solve, first, last, starts(options.n_starts, rng), rng))
    parts, solutions, stable = zip(*rows, strict=True)
    result = _joined(parts, n_rows is None)
    if options.pairwise == "mean" and n_rows is not None:
        result = with_changes(result, pairwise=result.pairwise.mean(0))
    with_solutions(result, list(solutions), n_rows is None)
    result.__dict__["_radius"] = parts[0].__dict__.get("_radius")
    return result, list(stable)


def _mixture_of(solve, first, last, starts, rng):
    """The mixture of the fixed points of a row, its `Solutions`, and whether one is stable."""
    reached = solve(first, starts)
    rows, members = _distinct(reached, reached.converged & np.isfinite(reached.log_partition))
    if len(rows):
        messages = reached.messages[rows]
        moved = messages + SPREAD * rng.standard_normal(messages.shape)
        ends = solve(last, moved.astype(messages.dtype))
        usable = ends.converged & np.isfinite(ends.log_partition)
        # Messages that leave a fixed point without damping make it one that is hardly a state.
        undamped = usable & (ends.damping == 0)
        rows, then = _distinct(ends, undamped if undamped.any() else usable)
        if len(rows):
            return *_mixed(ends, rows, np.where(members < 0, -1, then[members])), True
    ends = solve(last, starts[:1])
    return *_mixed(ends, np.zeros(1, int), np.full(len(starts), -1)), False


def _distinct(ends, usable):
    """The distinct rows among the usable ones, and the number of each row among these, or -1."""
    rows, members = np.flatnonzero(usable), np.full(len(usable), -1)
    if len(rows):
        mean, var = (np.hstack(_layers(x))[rows] for x in (ends.mean, ends.var))
        log_partition = ends.log_partition[rows]
        reached = SimpleNamespace(mean=mean, var=var, log_partition=log_partition)
        distinct_rows, members[rows] = distinct(reached)
        rows = rows[distinct_rows]
    return rows, members


def _mixed(ends, rows, members):
    """The mixture of some rows as `Beliefs` with one row, and its `Solutions`."""
    points = ends.log_partition[rows]
    weights = np.exp(points - scipy.special.logsumexp(points)) if len(rows) > 1 else np.ones(1)

    def average(x):
        if x is None:
            return None
        # Equal values have exactly this average.
        first = x[rows[:1]]
        return (first + np.tensordot(weights, x[rows] - first, 1)).astype(x.dtype)

    def variance(mean, var):
        return average(var + (mean - average(mean)) ** 2)

    def alone(x):
        # A mixture of several is no tilt of a unit.
        return None if x is None or len(rows) > 1 else _by_layers(lambda y: y[rows], x)

    visible, *hidden = _layers(ends.mean)
    solutions = Solutions(
        visible=visible[rows],
        hidden=hidden[0][rows] if hidden else None,
        free_energy=-points,
        log_partition=points,
        converged=ends.converged[rows],
        members=members,
    )
    result = with_changes(
        ends,
        mean=_by_layers(average, ends.mean),
        var=_by_layers(variance, ends.mean, ends.var),
        b=alone(ends.b),
        a=alone(ends.a),
        log_partition=np.array([np.logaddexp.reduce(points)]),
        converged=ends.converged[rows[:1]],
        n_iter=ends.n_iter[rows].max(keepdims=True),
        residual=ends.residual[rows].max(keepdims=True),
        damping=ends.damping[rows].max(keepdims=True),
        message=ending_of(ends)[rows[:1]],
        assignment=ends.__dict__["_decode"](weights, rows),
        pairwise=average(ends.pairwise),
        messages=None,
        history=None,
    )
    result.__dict__["_radius"] = ends.__dict__.get("_radius")
    return result, solutions


def _layers(x):
    return x if isinstance(x, tuple) else (x,)


def _by_layers(function, *parts):
    """A function of arrays, or of each layer."""
    return tuple(map(function, *parts)) if isinstance(parts[0], tuple) else function(*parts)


def _joined(parts, single):
    """The rows of several `Beliefs`, one after another; without their axis if `single`."""

    def joined(*x):
        if any(part is None for part in x):
            return None
        if isinstance(x[0], tuple):
            return tuple(map(joined, *x))
        return x[0][0] if single else np.concatenate(x)

    rows = {name: joined(*(getattr(part, name) for part in parts)) for name in MIXED_FIELDS}
    return with_changes(parts[0], message=joined(*map(ending_of, parts)), **rows)


def random_probabilities(n_starts, n_units, rng):
    """Probabilities of 1 of two-valued units to start from: states, each with its opposite.

    Some starts have few units that are 1 and some have many, so that phases are found that differ
    in the sum of all units.
    """
    half = -(-n_starts // 2)
    states = rng.random((half, n_units)) < rng.random((half, 1))
    return np.stack([states, ~states], 1).reshape(-1, n_units)[:n_starts].astype(np.float64)


def relaxed(p, middle, step, rng):
    """Probabilities to start from: a third nearer to the middle, a third each at solutions.

    step(p, temperature) is a sweep of naive mean field.
    """
    # Opposites are one after another, and so are of the same kind.
    kinds = np.arange(len(p)) // 2 % 3
    for kind, temperature in ((1, 1.0), (2, COLD)):
        x = p[kinds == kind]
        for _ in range(N_SWEEPS):
            x = step(x, temperature)
        p[kinds == kind] = x
    random = kinds == 0
    p[random] += (middle - p[random]) * rng.random((random.sum(), 1))
    return p, kinds


def starts_of_layers(units, n_starts, rng):
    """Log-messages from visible to hidden `BinaryUnits`, the first without preference."""
    weights, (b, c) = units.weights(), units.fields

    def step(x, temperature):
        hidden = sigmoid((c + x @ weights) / temperature)
        return sigmoid((b + hidden @ weights.T) / temperature)

    p = random_probabilities(n_starts - 1, len(weights), rng)
    p, _ = relaxed(p, 0.5, step, rng)
    p = np.clip(p, MIN_START_PROBABILITY, 1 - MIN_START_PROBABILITY)[:, :, None]
    messages = np.logaddexp(np.log(1 - p), np.log(p) + weights)
    return np.concatenate([weights[None] / 2, messages])
