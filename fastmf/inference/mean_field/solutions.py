"""The distinct mean-field solutions of a model, the starts that lead to each, and their mixture.

Two solutions are separate phases if there is a barrier between them: `phases` evaluates the
mean-field log-partition (minus the free energy) on the line between the tilts of both.
"""

from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import scipy

from fastmf._common import arguments as check
from fastmf._common.arguments import number
from fastmf._common.names import pandas
from fastmf.inference.fixed_point import (
    Question,
    average,
    ending_of,
    some_rows,
    stacked,
    with_changes,
    with_check,
)
from fastmf.inference.mean_field._layouts import drawn_starts, layout_of_checks, start_and_tilt
from fastmf.models.boltzmann import check_machine
from fastmf.models.exact import normalized
from fastmf.models.layered import Layered
from fastmf.priors._groups import column_is_group, column_sizes, groups, has_groups
from fastmf.priors._protocol import by_parts
from fastmf.priors._queries import bounds, extreme_starts, has_many_values, is_discrete

# Number of single units, and of averages over ranges of units, in the keys of `merge`.
KEY_UNITS = 8
# Points of the line between two solutions at which the log-partition is evaluated; the scale of
# barriers, in nats; the smallest log-weight, relative to the largest, of solutions with barriers.
LINE_FRACTIONS, BARRIER_SCALE, MIN_LOG_WEIGHT = (0.25, 0.5, 0.75), 0.1, -10.0


class Solutions(NamedTuple):
    """Distinct mean-field solutions, lowest free energy first.

    Parameters
    ----------
    visible : array of shape (n_solutions, n_visible)
        Means; of a fully visible machine, the means of all units.
    hidden : array of shape (n_solutions, n_hidden), or None
        Hidden means; all hidden layers of a deep machine are concatenated.
    free_energy, log_partition : array of shape (n_solutions,)
    converged : array of shape (n_solutions,)
    members : array of shape (n_starts,)
        For each start the index of the solution that it reached, -1 if it reached none of them.
    fixed_points : FixedPoint, optional
        The solver's results, a row for each solution, from which `reliable` and `message` are read.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> ferromagnet = mf.BoltzmannMachine(3 * (1 - np.eye(50)) / 50, mf.Ising(np.zeros(50)))
    >>> starts = np.where(np.arange(20)[:, None] < 15, 1.0, -1.0) * np.ones(50)
    >>> solutions = mf.evaluation.solutions(ferromagnet, starts)
    >>> abs(solutions.visible.mean(1)).round(2), solutions.weights.round(2)
    (array([0.99, 0.99]), array([0.5, 0.5]))
    >>> solutions
    Solutions(2 distinct ones from 20 starts, 2 converged, log-partitions 73.6422 to 73.6422)
    """

    visible: np.ndarray
    hidden: np.ndarray | None
    free_energy: np.ndarray
    log_partition: np.ndarray
    converged: np.ndarray
    members: np.ndarray
    fixed_points: object = None

    @property
    def reliable(self):
        """Whether each solution passes the checks of its solver, or None: see `FixedPoint`.

        A solution is checked as one of several, whatever its weight.
        """
        return None if self.fixed_points is None else self.fixed_points.reliable

    @property
    def message(self):
        """How the solver ended at each solution and, where it is not `reliable`, why; or None."""
        return None if self.fixed_points is None else self.fixed_points.message

    @property
    def counts(self):
        """Number of starts that reached each solution, (n_solutions,)."""
        return np.bincount(self.members[self.members >= 0], minlength=len(self.visible))

    @property
    def weights(self):
        """Normalised weights exp(log_partition) of phases; zeros if no log-partition is finite."""
        # `log_partition` loses digits if columns of data are far from zero.
        logs = (self.fixed_points or self).log_partition
        return normalized(logs)[1] if logs.max() > -np.inf else np.zeros(len(logs))

    def as_frame(self):
        """Return a row for each solution, with weights and counts of starts, as a data frame."""
        names = "free_energy", "converged", "reliable", "weights", "counts"
        return pandas().DataFrame({name: getattr(self, name) for name in names})

    def __repr__(self):
        low, high = self.log_partition.min(), self.log_partition.max()
        return (
            f"Solutions({len(self.visible)} distinct ones from {len(self.members)} starts, "
            f"{self.converged.sum()} converged, log-partitions {low:.6g} to {high:.6g})"
        )


def distinct_solutions(prior, reached, merge_tol=1e-2, usable=None):
    """Select the distinct fixed points among all, or the `usable`, rows; None without any."""
    members = np.full(len(reached.log_partition), -1)
    rows_used = slice(None)
    if usable is not None:
        rows_used = np.flatnonzero(usable)
        if not len(rows_used):
            return None
        reached = some_rows(reached, rows_used)
    rows, members[rows_used] = distinct(prior, reached, merge_tol)
    points = some_rows(reached, rows)
    visible, *hidden = points.mean if isinstance(points.mean, tuple) else (points.mean,)
    return Solutions(
        visible=visible,
        hidden=np.concatenate(hidden, axis=1) if hidden else None,
        free_energy=-points.log_partition,
        log_partition=points.log_partition,
        converged=points.converged,
        members=members,
        fixed_points=points,
    )


def without_dimension(prior, mean, var):
    """Divide moments of real units by the range, or largest standard deviation, of each unit."""
    if is_discrete(prior):
        return mean, var
    width = np.diff(bounds(prior), axis=0)[0]
    deviation = np.sqrt(np.max(var, axis=0, initial=0, where=np.isfinite(var)))
    parts = by_parts(prior, np.where(np.isfinite(width), width, deviation))
    unit = np.concatenate([0 * x if is_discrete(part) else x for part, x in parts])
    unit[unit == 0] = 1
    return mean / unit, var / unit**2


def distinct(prior, reached, merge_tol=1e-2):
    """Return the rows of distinct fixed points, largest log-partition first, and all members."""
    order = np.argsort(-np.asarray(reached.log_partition), kind="stable")
    first = (part[0] if isinstance(part, tuple) else part for part in (reached.mean, reached.var))
    means, var = without_dimension(prior, *first)
    rows, members = merge(means, order, merge_tol)
    # The mean of a two-valued unit determines its variance. Solutions with other units, such as
    # those symmetric about zero, may have equal means and different variances.
    scaled = np.nan_to_num(np.where(var > 1, 1 + np.log(np.maximum(var, 1)), var) / 2)
    if (abs(scaled - scaled[rows[members]]) > merge_tol).any():
        return merge(np.hstack([means, scaled]), order, merge_tol)
    return rows, members


def phases(model, reached, order=2, merge_tol=1e-2):
    """Return the rows of the distinct mean-field solutions, and their log-weights as phases.

    During learning a solution may split into two of nearly the same log-partition, with a barrier
    of some hundredths of a nat between them, and be one again an epoch later; iterations that have
    not quite converged give such pairs too. Counting two instead of one changes the log-partition
    by log 2; so a solution has its full weight only if there is a barrier. It is measured on the
    straight line between the tilts of two solutions: other paths may have lower barriers.
    """
    rows, _ = distinct(model.layers[0], reached, merge_tol)
    log_weights = np.asarray(reached.log_partition, dtype=np.float64)[rows]
    finite = np.isfinite(log_weights)
    rows, log_weights = rows[finite], log_weights[finite]
    n_compared = int((log_weights > log_weights.max(initial=-np.inf) + MIN_LOG_WEIGHT).sum())
    if n_compared < 2:
        return rows, log_weights
    means = reached.mean[0][rows[:n_compared]]
    nearest = [((means[:k] - means[k]) ** 2).sum(1).argmin() for k in range(1, n_compared)]
    ends = rows[1:n_compared], rows[nearest]
    with np.errstate(divide="ignore"):  # without a barrier: a log-weight of -inf
        log_weights[1:n_compared] += np.log(
            -np.expm1(-_barriers(model, reached, *ends, order) / BARRIER_SCALE)
        )
    return rows, log_weights


def _barriers(model, reached, first, last, order):
    """Compute barriers: how much, in nats, the log-partition decreases between two solutions."""
    values = []
    for t in (np.float64(0), *LINE_FRACTIONS):
        tilts = (
            [(1 - t) * part[first] + t * part[last] for part in parts]
            for parts in (reached.b, reached.a)
        )
        values.append(_log_partition_at(model, *tilts, order))
    return np.maximum(values[0] - np.min(values[1:], 0), 0)


def _log_partition_at(model, b, a, order):
    """Compute the mean-field log-partition at the moments that the tilts b and a give."""
    if not model.is_integrated:
        return log_partition_of_tilts(model, b, a, order)
    integrated = model.integrate_gaussians()
    tilts = [[np.hstack([*part[::2], *part[1::2]])[:, integrated.rest]] for part in (b, a)]
    external = integrated.field, integrated.precision
    return integrated.log_partition + log_partition_of_tilts(
        integrated.machine, *tilts, order, *external
    )


def merge(means, order=None, merge_tol=1e-2):
    """Merge rows that agree within a tolerance.

    A k-d tree of short keys finds the candidates, which are then compared in full: 10,000 distinct
    rows of 784 units take a few seconds.
    """
    members, rows = np.full(len(means), -1), []
    merge_tol = number("merge_tol", merge_tol, 0, np.inf)
    keys = _keys(means)
    # Split at midpoints: splits at the median cost time where many rows are equal.
    tree = scipy.spatial.cKDTree(keys, balanced_tree=False)
    # A little wider, against the rounding of float32.
    radius = merge_tol * (1 + 1e-5) + 1e-6
    for row in range(len(means)) if order is None else order:
        if members[row] < 0:
            near = np.array(tree.query_ball_point(keys[row], radius, p=np.inf))
            near = near[members[near] < 0]
            is_equal = abs(means[near] - means[row]).max(1) <= merge_tol
            members[near[is_equal]] = len(rows)
            members[row] = len(rows)
            rows.append(row)
    return np.array(rows, dtype=int), members


def _keys(means):
    """Return a short key of each row; keys differ by no more than the entries of the rows do."""
    n_units = means.shape[1]
    units = np.argsort(-means.var(0), kind="stable")[:KEY_UNITS]
    firsts = np.arange(0, n_units, -(-n_units // KEY_UNITS))
    sizes = np.diff(np.append(firsts, n_units))
    averages = np.add.reduceat(means, firsts, axis=1, dtype=np.float64) / sizes
    return np.hstack([means[:, units], averages])


def second_moments(prior, mean, var):
    """Return the variances; in a group of states the means, which are v + m^2 there."""
    if not has_groups(prior):
        return var
    return np.where(np.repeat(column_is_group(prior), column_sizes(prior)), mean, var)


def log_partition_of_tilts(model, b, a, order, field=0.0, precision=0.0):
    """Compute the log-partition at the moments that tilts of the units, by layer, give.

    It is the entropy of the units minus their energy, with pair terms up to second order.
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
    """Return tr(C W C' W') / 2 of each row, for two layers given as (prior, mean, variance)."""
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


# Perturbation of means, in standard deviations, that tests whether a solution is stable.
SPREAD = 1e-2
# Number of starts of the mixtures with which the checks compare answers.
N_CHECKED_STARTS = 20
# Options that may have a row for each row of the result.
TILTS = "field", "precision", "clamp"


def mixture(solver, model, n_starts=20, *, rng=0, **options):
    """Mix the distinct stable solutions that a solver reaches from random starts.

    Parameters
    ----------
    solver : callable
        `tap`, `relaxed_bp`, `adaptive_tap` or `belief_propagation`.
    model : RBM, DBM or BoltzmannMachine
    n_starts : int, default 20
        Number of random starts, drawn from the uncoupled units of the first layer; if units have
        more than two values, states with all units at their lowest or highest values are added.
        `belief_propagation` starts from messages of random states.
    rng : numpy.random.Generator or int, default 0
        None: a generator with a random seed.
    **options
        Options of the solver, without `init`.

    Returns
    -------
    FixedPoint
        `solutions` has the distinct stable solutions and their weights, exp(log_partition); means
        and variances are moments of their mixture, and `log_partition` is the log of the sum of the
        weights. `b` and `a` are None if there are several solutions.

    Raises
    ------
    ValueError, TypeError
        If arguments have wrong shapes, types or ranges.

    Notes
    -----
    The solver runs again from each solution, with its means moved by a hundredth of a standard
    deviation; unstable solutions are left out. Weights are accurate if phases hardly overlap.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> ferromagnet = mf.BoltzmannMachine(3 * (1 - np.eye(50)) / 50, mf.Ising(np.zeros(50)))
    >>> result = mf.mixture(mf.tap, ferromagnet)
    >>> result.solutions.weights.round(3), bool(abs(result.mean).max() < 1e-6)
    (array([0.5, 0.5]), True)
    """
    check_machine(model)
    n_starts, rng = check.count("n_starts", n_starts), check.generator(rng, optional=True)
    if hasattr(solver, "mixture"):  # `belief_propagation`, which starts from messages
        return solver.mixture(model, n_starts, rng, **options)
    if not options.get("log_partition", True) or options.get("history"):
        raise ValueError("mixture: needs log_partition=True and history=False.")
    if options.get("init") is not None:
        raise ValueError("init: not available in mixtures.")
    tilts = {name: options[name] for name in TILTS if options.get(name) is not None}
    parts = [p for x in tilts.values() for p in (x if isinstance(x, tuple) else (x,))]
    n_rows = max((len(p) for p in parts if np.ndim(p) == 2), default=None)
    rows, move = [], partial(_moved, rng)
    for k in range(n_rows or 1):
        solve = partial(solver, model, **options | {name: _row(x, k) for name, x in tilts.items()})
        rows.append(mixed_row(model.layers[0], solve, solve, _starts(model, n_starts, rng), move))
    answer, stable = joined_rows(rows, n_rows is None)
    layout = layout_of_checks(model)
    tilt = start_and_tilt(model, layout, None, *(tilts.get(name) for name in TILTS))[1]
    return with_check(answer, Question(model, tilt, True, stable=stable))


def _starts(model, n_starts, rng):
    """Draw random starts; add extreme states if units have more than two values."""
    draws = drawn_starts(model, n_starts, rng)
    if not has_many_values(model.layers):
        return draws
    return np.vstack([draws, extreme_starts(model.layers[0])]).astype(model.dtype)


def _row(x, k):
    if isinstance(x, tuple):
        return tuple(_row(part, k) for part in x)
    return x if np.ndim(x) < 2 else x[min(k, len(x) - 1)]


def mixed_row(prior, solve, solve_again, starts, move):
    """Return the mixture of a row, its `Solutions`, and whether one of them is stable.

    The solutions reached from `starts` are perturbed by `move` and solved again.
    """
    reached = _stable(prior, solve(starts))
    if reached is not None:
        ends = solve_again(move(reached.fixed_points))
        # Prefer fixed points that are stable without damping.
        stable = _stable(prior, ends, getattr(ends, "damping", 0) == 0) or _stable(prior, ends)
        if stable is not None:
            members = np.where(reached.members < 0, -1, stable.members[reached.members])
            stable = stable._replace(members=members)
            return _mixture(stable), stable, True
    only = distinct_solutions(prior, solve_again(starts[:1]))
    only = only._replace(members=np.full(len(starts), -1))
    return _mixture(only), only, False


def joined_rows(rows, single):
    """Join rows of `mixed_row` to a `FixedPoint`, and list whether each has a stable solution."""
    parts, solutions, stable = zip(*rows, strict=True)
    answer = some_rows(stacked(*parts), 0 if single else slice(None))
    answer.__dict__["solutions"] = solutions[0] if single else list(solutions)
    return answer, list(stable)


def _moved(rng, points):
    """Return perturbed means of solutions, and their variances, as starts."""
    means = _by_layers(lambda mean, var: moved_from(mean, var, rng), points.mean, points.var)
    return means, points.var


def moved_from(mean, var, rng):
    """Perturb means by a hundredth of a standard deviation, which leaves unstable solutions."""
    noise = SPREAD * np.sqrt(np.maximum(var, 0)) * rng.standard_normal(mean.shape)
    return (mean + noise).astype(mean.dtype)


def _by_layers(function, *parts):
    """Apply a function to arrays, or to each layer of tuples of arrays."""
    return tuple(map(function, *parts)) if isinstance(parts[0], tuple) else function(*parts)


def _stable(prior, ends, usable=True):
    """Return the `Solutions` among converged, usable rows, None without any."""
    usable = usable & ends.converged & np.isfinite(ends.log_partition)
    return distinct_solutions(prior, ends, usable=usable)


def _mixture(solutions):
    """Return the mixture of some solutions as a `FixedPoint` with one row."""
    points, w, best = solutions.fixed_points, solutions.weights, slice(0, 1)
    is_single = len(w) == 1
    w = np.ones(1) if is_single else w

    def variance(mean, var):
        return average(w, var + (mean - average(w, mean)) ** 2)

    return with_changes(
        points,
        mean=_by_layers(partial(average, w), points.mean),
        var=_by_layers(variance, points.mean, points.var),
        # A mixture of several solutions is not a tilt of the units.
        b=points.b if is_single else None,
        a=points.a if is_single else None,
        log_partition=np.logaddexp.reduce(solutions.log_partition, keepdims=True),
        converged=points.converged[best],
        n_iter=points.n_iter.max(keepdims=True),
        residual=points.residual.max(keepdims=True),
        message=ending_of(points)[best],
        history=None,
        **points._mixed(w),
    )
