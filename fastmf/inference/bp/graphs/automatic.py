"""The most accurate sums of a graph that take no more than some seconds."""

from dataclasses import replace

import numpy as np

from fastmf._outcomes import CONVERGED, INFEASIBLE
from fastmf._threads.workers import one_blas_thread
from fastmf.inference.bp.graphs.propagation import propagate_units
from fastmf.inference.bp.graphs.results import Solved, all_right, graph_beliefs
from fastmf.inference.bp.graphs.units import GraphUnits
from fastmf.inference.bp.solutions import MAX_CHECK_SWEEPS
from fastmf.inference.fixed_point import with_changes, with_check
from fastmf.inference.mean_field.mixture import N_CHECKED_STARTS
from fastmf.models._graph_sums import MAX_ENTRIES, is_small


@one_blas_thread()
def automatic(options, model, field, clamp, init=None):
    """The `GraphBeliefs` of algorithm="auto"."""
    units = GraphUnits(model, field, clamp)
    if not units.is_forest:
        exact = _exact(units, units.n_rows or 1)
        if exact is not None:
            return _certain(graph_beliefs(options, units, exact, None, units.n_rows is None))
    one = propagate_units(options, units)
    if one.reliable is None or np.all(one.reliable):  # None: too large for checks, and more starts
        return one
    sweeps = min(options.max_iter, MAX_CHECK_SWEEPS)
    options = replace(options, n_starts=N_CHECKED_STARTS, rng=0, max_iter=sweeps, messages=False)
    several = propagate_units(options, units)
    if not np.any(several.converged & ~np.atleast_1d(one.reliable)):
        return one
    several.__dict__["method"] = "several starts"
    return several


def _exact(units, n_rows):
    """The `Solved` rows by elimination, in some seconds; None if their tables are large."""
    if not is_small(units.graph):
        return None
    rows = units.marginals(range(n_rows), 8 * MAX_ENTRIES / n_rows)
    if rows is None:
        return None
    zeros, values = np.zeros(n_rows), [row.log_partition for row in rows]
    record = {
        "status": np.where(np.isneginf(values), INFEASIBLE, CONVERGED),
        "n_iter": zeros.astype(np.int64), "residual": zeros, "damping": zeros,
        "history": np.zeros((0, 0)),
    }  # fmt: skip
    values, beliefs, pairs = map(np.array, zip(*rows, strict=True))
    return Solved(record, beliefs, values, pairs, None, None, None, None)


def _certain(result):
    """The same beliefs, which need no check."""
    message = np.where(result.converged, "exact, by elimination", result.message)
    return with_check(with_changes(result, method="elimination", message=message[()]), all_right)
