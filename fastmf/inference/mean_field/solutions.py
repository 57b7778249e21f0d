"""The distinct mean-field solutions of a model, and which starts lead to which."""

from typing import NamedTuple

import numpy as np
import scipy

from fastmf._common.arguments import number
from fastmf._common.names import pandas
from fastmf.inference.fixed_point import some_rows
from fastmf.inference.mean_field.free_energy import log_partition_of_tilts

# Single units, and averages of units, by which rows are compared first.
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
        For each start the index of the solution that it reached, -1 if none that is here.
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

        A solution is judged as a solution, whatever its weight.
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
        """Probability of each solution as a phase of its own: exp(log_partition), normalised.

        Zeros if no log-partition is finite.
        """
        top = self.log_partition.max()
        if top == -np.inf:
            return np.zeros(len(self.log_partition))
        weights = np.exp(self.log_partition - top)
        return weights / weights.sum()

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


def distinct_solutions(reached, merge_tol=1e-2, usable=None):
    """Select the distinct fixed points, of the `usable` rows alone if given; None if none is."""
    members = np.full(len(reached.log_partition), -1)
    rows_used = slice(None)
    if usable is not None:
        rows_used = np.flatnonzero(usable)
        if not len(rows_used):
            return None
        reached = some_rows(reached, rows_used)
    rows, members[rows_used] = distinct(reached, merge_tol)
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


def distinct(reached, merge_tol=1e-2):
    """Indices of the distinct ones among fixed points, largest log-partition first."""
    order = np.argsort(-np.asarray(reached.log_partition), kind="stable")
    means, var = (
        part[0] if isinstance(part, tuple) else part for part in (reached.mean, reached.var)
    )
    rows, members = merge(means, order, merge_tol)
    # The variance of units of two values follows from the mean; of units symmetric about zero all
    # solutions may have the same means.
    scaled = np.nan_to_num(np.where(var > 1, 1 + np.log(np.maximum(var, 1)), var) / 2)
    if (abs(scaled - scaled[rows[members]]) > merge_tol).any():
        return merge(np.hstack([means, scaled]), order, merge_tol)
    return rows, members


def phases(model, reached, order=2, merge_tol=1e-2):
    """Log-weights of the distinct mean-field solutions as phases of their own.

    During learning a solution may split into two of nearly the same log-partition, with a barrier
    of some hundredths of a nat between them, and be one again an epoch later; iterations that have
    not quite converged give such pairs too. Counting two instead of one changes the log-partition
    by log 2; so a solution has its full weight only if there is a barrier. The line is straight in
    the tilts of the two solutions: along other paths the barrier may be lower.
    """
    rows, _ = distinct(reached, merge_tol)
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
    """Decrease of the log-partition, in nats, on the lines from some solutions to others."""
    values = []
    for t in (np.float64(0), *LINE_FRACTIONS):
        tilts = (
            [(1 - t) * part[first] + t * part[last] for part in parts]
            for parts in (reached.b, reached.a)
        )
        values.append(_log_partition_at(model, *tilts, order))
    return np.maximum(values[0] - np.min(values[1:], 0), 0)


def _log_partition_at(model, b, a, order):
    """Mean-field log-partition as a function of the moments that the tilts b and a give."""
    if not model.is_integrated:
        return log_partition_of_tilts(model, b, a, order)
    integrated = model.integrate_gaussians()
    if integrated.machine is None:
        return np.full(len(b[0]), integrated.log_partition)
    tilts = [[np.hstack([*part[::2], *part[1::2]])[:, integrated.rest]] for part in (b, a)]
    external = integrated.field, integrated.precision
    return integrated.log_partition + log_partition_of_tilts(
        integrated.machine, *tilts, order, *external
    )


def merge(means, order=None, merge_tol=1e-2):
    """Merge rows that agree within a tolerance.

    Rows are looked up in a k-d tree of a few numbers each, and compared in full only if these
    agree: 10,000 distinct rows of 784 units take a few seconds.
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
    """A few numbers per row: they differ between two rows by no more than the entries do."""
    n_units = means.shape[1]
    units = np.argsort(-means.var(0), kind="stable")[:KEY_UNITS]
    firsts = np.arange(0, n_units, -(-n_units // KEY_UNITS))
    sizes = np.diff(np.append(firsts, n_units))
    averages = np.add.reduceat(means, firsts, axis=1, dtype=np.float64) / sizes
    return np.hstack([means[:, units], averages])
