"""The distinct mean-field solutions of a model, and which starts lead to which."""

from typing import NamedTuple

import numpy as np
from scipy.spatial import cKDTree

from fastmf._common.arguments import number
from fastmf.inference.mean_field.tap import tap

# Units, and means over groups of units, by which rows are compared first.
_TELLING_UNITS, _GROUP = 8, 32
# Where the line between two solutions is looked at; the barrier, in nats, of the order of which
# they begin to count as two; the log-weight, relative to the largest, below which no barrier is
# looked for.
_ON_LINE, _BARRIER, _NEGLIGIBLE = (0.25, 0.5, 0.75), 0.1, -10.0


class Solutions(NamedTuple):
    """Distinct mean-field solutions, lowest free energy first.

    Parameters
    ----------
    visible : array of shape (n_solutions, n_visible)
        Means; of a fully visible machine, those of all units.
    hidden : array of shape (n_solutions, n_hidden), or None
        Of a deep machine, all hidden layers side by side.
    free_energy, log_partition : array of shape (n_solutions,)
    converged : array of shape (n_solutions,)
    members : array of shape (n_starts,)
        For each start the solution that it led to.
    """

    visible: np.ndarray
    hidden: np.ndarray | None
    free_energy: np.ndarray
    log_partition: np.ndarray
    converged: np.ndarray
    members: np.ndarray

    @property
    def counts(self):
        """How many starts led to each solution, (n_solutions,)."""
        return np.bincount(self.members, minlength=len(self.visible))

    @property
    def shares(self):
        """The weight of each solution as a phase of its own, exp(log_partition), normalised.

        Zeros if none of them exists.
        """
        top = self.log_partition.max()
        if top == -np.inf:
            return np.zeros(len(self.log_partition))
        shares = np.exp(self.log_partition - top)
        return shares / shares.sum()


def solutions(model, starts=1000, *, merge_tol=1e-2, **options):
    """The distinct mean-field solutions of a model that are reached from many starts.

    Parameters
    ----------
    model : RBM, DBM or BoltzmannMachine
    starts : int or array of shape (n_starts, n_units)
        Data, or so many draws of the uncoupled units of the first layer (by `rng`, or from seed 0).
    merge_tol : float, default 1e-2
        Solutions whose means of the first layer differ nowhere by more are the same.
    **options
        Of `fastmf.tap`: order, tol, max_iter, n_threads, rng and so on.

    Returns
    -------
    Solutions

    Raises
    ------
    ValueError, TypeError
        For arguments of wrong shapes, types or ranges.
    """
    if isinstance(starts, int | np.integer) and "rng" not in options:
        options["rng"] = 0
    if not isinstance(starts, int | np.integer):
        starts = np.atleast_2d(starts)
    return merged(tap(model, starts, **options), merge_tol)


def merged(reached, merge_tol=1e-2):
    """The `Solutions` among fixed points.

    Parameters
    ----------
    reached : FixedPoint
        One row a start, with `log_partition`.
    merge_tol : float

    Returns
    -------
    Solutions
    """
    rows, members = distinct(reached, merge_tol)
    log_partition = np.asarray(reached.log_partition)[rows]
    layered = isinstance(reached.mean, tuple)
    visible, *hidden = reached.mean if layered else (reached.mean,)
    return Solutions(
        visible=visible[rows],
        hidden=np.concatenate(hidden, axis=1)[rows] if layered else None,
        free_energy=-log_partition,
        log_partition=log_partition,
        converged=np.asarray(reached.converged)[rows],
        members=members,
    )


def distinct(reached, merge_tol=1e-2):
    """The distinct ones among mean-field solutions, those of largest log-partition first.

    Parameters
    ----------
    reached : FixedPoint
        One row a start, with `log_partition`.
    merge_tol : float
        Solutions whose visible means differ nowhere by more than this are the same.

    Returns
    -------
    rows, members : arrays
        As for `merge`.
    """
    order = np.argsort(-np.asarray(reached.log_partition), kind="stable")
    means = reached.mean[0] if isinstance(reached.mean, tuple) else reached.mean
    return merge(means, order, merge_tol)


def phases(model, reached, order=2, merge_tol=1e-2):
    """Log-weights of the distinct mean-field solutions as phases of their own.

    Parameters
    ----------
    model : RBM or DBM
    reached : FixedPoint
        One row a start, with `log_partition`.
    order : {1, 2, 3}, default 2
        Of the mean-field equations that were solved; barriers leave out terms of third order.
    merge_tol : float, default 1e-2
        See `distinct`.

    Returns
    -------
    rows : array of shape (n_distinct,)
        The distinct solutions of finite log-partition, largest first.
    log_weights : array of shape (n_distinct,)
        Their log-partitions, plus log(1 - exp(-barrier / 0.1)) where a barrier has been computed:
        how far, in nats, the log-partition falls below that of the solution on the way to the
        nearest one that is heavier. -inf where it does not fall at all.

    Notes
    -----
    While a machine learns, a solution may split into two of nearly the same log-partition, between
    which it falls by some hundredths of a nat, and be one again an epoch later. Iterations that
    have not quite converged look the same. Counted in full, two instead of one change the
    log-partition by log 2; so a solution counts in full only where there is a barrier. The way is
    the straight line between the tilts of the two: the lowest barrier of all ways may be lower.
    """
    rows, _ = distinct(reached, merge_tol)
    log_weights = np.asarray(reached.log_partition, dtype=np.float64)[rows]
    finite = np.isfinite(log_weights)
    rows, log_weights = rows[finite], log_weights[finite]
    worth = int((log_weights > log_weights.max(initial=-np.inf) + _NEGLIGIBLE).sum())
    if worth < 2:
        return rows, log_weights
    means = reached.mean[0][rows[:worth]]
    nearest = [((means[:k] - means[k]) ** 2).sum(1).argmin() for k in range(1, worth)]
    ends = rows[1:worth], rows[nearest]
    with np.errstate(divide="ignore"):  # without a barrier: a log-weight of -inf
        log_weights[1:worth] += np.log(
            -np.expm1(-_barriers(model, reached, *ends, order) / _BARRIER)
        )
    return rows, log_weights


def _barriers(model, reached, here, there, order):
    """How far the log-partition falls on the line from some solutions to others, in nats."""
    values = []
    for t in (np.float64(0), *_ON_LINE):
        tilts = (
            [(1 - t) * part[here] + t * part[there] for part in parts]
            for parts in (reached.b, reached.a)
        )
        values.append(_log_partition_at(model, *tilts, order))
    return np.maximum(values[0] - np.min(values[1:], 0), 0)


def _log_partition_at(model, b, a, order):
    """Mean-field log-partition of units that are tilted like this, as a function of their moments.

    That is the entropy of such units less their energy, with the pair terms up to second order.
    """
    moments, total = [], 0.0
    for prior, b_, a_ in zip(model.layers, b, a, strict=True):
        mean, var = prior.moments(b_, a_)
        moments.append((mean, var))
        terms = prior.log_partition(b_, a_) - b_ * mean + a_ * (mean * mean + var) / 2
        total = total + terms.sum(1)
    for weights, below, above in zip(model.couplings, moments, moments[1:], strict=False):
        total += ((below[0] @ weights) * above[0]).sum(1)
        if order > 1:
            total += ((below[1] @ weights**2) * above[1]).sum(1) / 2
    return total


def merge(means, order=None, merge_tol=1e-2):
    """Merge rows that agree.

    Parameters
    ----------
    means : array of shape (n_rows, n_units)
    order : array of shape (n_rows,) or None
        The order in which rows are looked at; the first of its kind represents the others.
    merge_tol : float
        Rows that differ nowhere by more than this from a representative are merged with it.

    Returns
    -------
    rows : array of shape (n_distinct,)
        The representatives.
    members : array of shape (n_rows,)
        For every row, the position in `rows` of its representative.

    Notes
    -----
    Rows are looked up in a tree of a few numbers and compared in full only if they agree there, so
    that 10,000 rows of 784 units take a few seconds even if all are distinct.
    """
    members, rows = np.full(len(means), -1), []
    merge_tol = number("merge_tol", merge_tol, 0, np.inf)
    clues = _clues(means)
    # Sliding midpoints, as a median would not part rows that agree.
    tree = cKDTree(clues, balanced_tree=False)
    # A little wider, against the rounding of float32.
    radius = merge_tol * (1 + 1e-5) + 1e-6
    for row in range(len(means)) if order is None else order:
        if members[row] < 0:
            near = np.array(tree.query_ball_point(clues[row], radius, p=np.inf))
            near = near[members[near] < 0]
            same = abs(means[near] - means[row]).max(1) <= merge_tol
            members[near[same]] = len(rows)
            members[row] = len(rows)
            rows.append(row)
    return np.array(rows, dtype=int), members


def _clues(means):
    """A few numbers for each row that differ by no more than the rows themselves do."""
    n_units = means.shape[1]
    telling = np.argsort(-means.var(0), kind="stable")[:_TELLING_UNITS]
    firsts = np.arange(0, n_units, _GROUP)
    sizes = np.diff(np.append(firsts, n_units))
    groups = np.add.reduceat(means, firsts, axis=1, dtype=np.float64) / sizes
    return np.hstack([means[:, telling], groups])
