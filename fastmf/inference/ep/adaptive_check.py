"""Checks of fixed points of adaptive TAP where no exact sums are quick.

A row is not reliable if

- it stands for the machine, and the mixture of the fixed points that adaptive TAP finds from other
  starts contradicts it: a good solution in one of several phases is no answer;
- pairs of discrete units, each corrected alone (`fastmf.inference.ep.pair_corrections`), change its
  log-partition or its means.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

from fastmf.inference.ep.pair_corrections import pair_corrections, value_table
from fastmf.inference.gaussian.bipartite import Bipartite
from fastmf.inference.mean_field.exact_check import ranges, reason_of_sums
from fastmf.inference.mean_field.naive_bound import (
    layout_of_checks,
    solutions_from,
    starts_elsewhere,
)
from fastmf.inference.mean_field.reliability import joined
from fastmf.inference.mean_field.second_solutions import extreme_starts, is_discrete
from fastmf.inference.mean_field.solutions import distinct
from fastmf.priors._protocol import can_sample

# Numbers of the tables of all pairs, and of the matrices of all starts, of all rows together, up to
# which rows are checked.
MAX_PAIR_TABLE_NUMBERS, MAX_STARTED_NUMBERS = 1 << 24, 1 << 27
# Iterations and tolerance of other fixed points, and residual of those that do not quite converge,
# as the parallel schedule leaves them.
MAX_OTHER_ITERATIONS, OTHER_TOL, MAX_OTHER_RESIDUAL = 100, 1e-5, 1e-2
# Nats, and means in the range of a unit, of one and on average, by which pairs may change a row.
MAX_PAIR_NATS, MAX_PAIR_CHANGE, MAX_AVERAGE_PAIR_CHANGE = 1.0, 0.15, 0.03
OTHER_POINTS = (
    "from other starts the log-partition is {:+.2g} nats away and means differ by up to {:.2g} of "
    "their range: other fixed points have a share of the weight, and `init` leads to one of them"
)
PAIRS = (
    "single pairs of its units change its log-partition by {:+.2g} nats, and means by up to {:.2g} "
    "of their range"
)


class AdaptiveCheck(NamedTuple):
    """Arguments of checks of rows of adaptive TAP.

    Parameters
    ----------
    solve : callable
        `fastmf.adaptive_tap`.
    model : RBM, DBM or BoltzmannMachine
    problem : EPProblem
    tilts : array of shape (n_rows, 2, n_units)
        Tilts from outside.
    whole : bool
        Whether rows stand for the whole machine, having no starts of their own.
    """

    solve: Callable
    model: object
    problem: tuple
    tilts: np.ndarray
    whole: bool

    def has_pairs(self, n_rows):
        """Whether pairs of units of so many rows are corrected."""
        table = value_table(self.problem.prior)
        return 0 < n_rows * table.values.size**2 <= MAX_PAIR_TABLE_NUMBERS

    def __call__(self, found, rows, state, tilt):
        """Pairs of whether some rows fail a check, and the reasons."""
        checks, n_rows = [], len(rows)
        if self.whole and self._is_searched(n_rows):
            values = np.atleast_1d(found.log_partition)[rows]
            tilts = [tilt._make(p[[min(k, len(p) - 1)]] for p in tilt) for k in range(n_rows)]
            points = zip(*state[:2], values, tilts, strict=True)
            checks.append([self._of_other_points(*point) for point in points])
        if self.has_pairs(n_rows):
            sites = np.reshape(found.sites, (-1, 2, state.shape[2]))[rows]
            points = zip(state.swapaxes(0, 1), sites, self.tilts[rows], strict=True)
            table = value_table(self.problem.prior)
            checks.append([self._of_pairs(table, *point) for point in points])
        return [(np.array([why != "" for why in reasons]), reasons) for reasons in checks]

    def _is_searched(self, n_rows):
        if not can_sample(self.model.layers[0]):
            return False
        side = self.problem.side
        shape = side.weights.shape if isinstance(side, Bipartite) else (side.n_units,) * 2
        return n_rows * shape[0] * shape[1] * min(shape) <= MAX_STARTED_NUMBERS

    def _of_other_points(self, mean, var, value, tilt):
        """Reason by the fixed points that other starts lead to, "" if they agree."""
        model, layout = self.model, layout_of_checks(self.model)
        starts = starts_elsewhere(model, mean[layout.bounds[0]])
        if is_discrete(model.layers[0]):
            starts = np.vstack([starts, extreme_starts(model.layers[0])])
        found = solutions_from(
            self.solve, model, layout, ((starts,), (np.zeros_like(starts),)), tilt, mean[None],
            schedule="parallel", tol=OTHER_TOL, max_iter=MAX_OTHER_ITERATIONS,
        )  # fmt: skip
        ended = found.converged | (found.residual <= MAX_OTHER_RESIDUAL)
        usable = np.flatnonzero(ended & np.isfinite(found.log_partition))
        points = SimpleNamespace(
            mean=np.vstack([mean, joined(layout, found.mean)[usable]]),
            var=np.vstack([var, joined(layout, found.var)[usable]]),
            log_partition=np.append(value, found.log_partition[usable]),
        )
        rows, _ = distinct(points)
        total = np.logaddexp.reduce(points.log_partition[rows])
        w = np.exp(points.log_partition[rows] - total)
        mixed = w @ points.mean[rows]
        spread = w @ (points.var[rows] + (points.mean[rows] - mixed) ** 2)
        lacking = (mixed - mean) / ranges(self.problem.prior, spread[None])[0]
        return reason_of_sums(total - value, lacking, OTHER_POINTS)

    def _of_pairs(self, table, state, site, tilt):
        """Reason by corrections of single pairs, "" if they are small."""
        mean, _, *cavity = state.astype(np.float64)
        covariance = self.problem.side.tilted(tilt).covariance(site)
        if covariance is None:
            return ""
        with np.errstate(all="ignore"):
            found = pair_corrections(table, mean, np.stack(cavity), covariance)
        sizes, nats = abs(found.changes), found.log_partition
        # Written so that NaN counts as large.
        small = sizes.max() <= MAX_PAIR_CHANGE and sizes.mean() <= MAX_AVERAGE_PAIR_CHANGE
        return "" if small and abs(nats) <= MAX_PAIR_NATS else PAIRS.format(nats, sizes.max())
