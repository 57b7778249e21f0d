"""Checks of beliefs on graphs that have cycles."""

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from fastmf.inference.bp.reliability import (
    BOUND_MARGIN,
    NO_STABLE,
    REASON,
    RELATIVE_MARGIN,
    reason_elsewhere,
)

# Starts of naive mean field for each row, sweeps from each, and products with all of these.
N_STARTS, MAX_SWEEPS, MAX_PRODUCTS = 10, 60, 20_000_000
# Largest number of values of tables of graphs that naive mean field checks.
MAX_VALUES = 2_000_000
DAMPED = (
    "its messages settle with damping only, as where cycles are frustrated, and the marginals may "
    "be far off"
)


class GraphCheck(NamedTuple):
    """What is needed to check rows of sum-product on a graph.

    Parameters
    ----------
    units : GraphUnits
    damping : array of shape (n_rows,)
        At the end of each row.
    beliefs : list of arrays of shape (n_solutions, n_states)
        Probabilities of states at the fixed points of each row, largest weight first.
    stable : list of bool, optional
        Whether a row with several starts has a stable fixed point.
    """

    units: object
    damping: np.ndarray
    beliefs: list
    stable: list | None = None

    def __call__(self, found):
        """Reason why each row is not reliable, "" if it is.

        Parameters
        ----------
        found : GraphBeliefs

        Returns
        -------
        list of str, one a row
        """
        reasons = [DAMPED if damping else "" for damping in self.damping]
        if self.stable is not None:
            pairs = zip(reasons, self.stable, strict=True)
            reasons = [why if stable else NO_STABLE for why, stable in pairs]
        if self.units.is_forest or found.log_partition is None:
            return reasons if not self.units.is_forest else [""] * len(reasons)
        couplings = _checked_couplings(self.units)
        if couplings is None:
            return reasons
        (problem, _), order = self.units.problem(), self.units.state_order
        field = np.empty_like(problem.field)
        field[:, order] = problem.field
        values, converged = np.atleast_1d(found.log_partition), np.atleast_1d(found.converged)
        for row in np.flatnonzero(converged & np.isfinite(values)):
            if not reasons[row]:
                own = field[min(row, len(field) - 1)]
                reasons[row] = _reason(self.units, couplings, own, self.beliefs[row], values[row])
        return reasons


def _checked_couplings(units):
    """Couplings of all states; None if some are -inf, or they are many."""
    if (units.graph.n_states[units.graph.edges].prod(1)).sum() > MAX_VALUES:
        return None
    return None if np.isneginf(units.tables[1]).any() else couplings_of(units)


def couplings_of(units, smallest=-np.inf):
    """Couplings of all states, at least the given value, as a symmetric sparse array."""
    first, tables = units.tables
    tables = np.maximum(tables, smallest)
    edges, sizes = units.graph.edges, units.graph.n_states
    edge = np.repeat(np.arange(len(edges)), np.diff(first))
    a, b = np.divmod(np.arange(len(tables)) - first[edge], sizes[edges[edge, 1]])
    start = units.first_state[edges[edge]]
    n = units.first_state[-1]
    upper = csr_array((tables, (start[:, 0] + a, start[:, 1] + b)), shape=(n, n))
    return (upper + upper.T).tocsr()


def _reason(units, couplings, field, beliefs, value):
    """Why a row is not reliable, "" if it is."""
    sweeps = MAX_PRODUCTS // max(couplings.nnz, 1)
    n_starts = min(N_STARTS, max(sweeps // MAX_SWEEPS, 1))
    starts, rng = np.empty((n_starts, len(field))), np.random.default_rng(0)
    starts[0] = beliefs[0]
    for k in range(1, n_starts):
        starts[k] = _random_states(units, field, rng)
    found = starts
    for _ in range(min(MAX_SWEEPS, max(sweeps // n_starts, 1))):
        found = (found + softmax(units, field + found @ couplings)) / 2
    both = np.vstack([starts[:1], found])
    bounds, sizes = _bounds(couplings, field, both)
    best = bounds.argmax()
    if bounds[best] - value > BOUND_MARGIN + RELATIVE_MARGIN * sizes[best]:
        return REASON.format(bounds[best] - value)
    return reason_elsewhere(value, both, bounds, beliefs)


def _random_states(units, field, rng):
    """One-hot states at random, among those that the field allows."""
    noise = np.where(field > -np.inf, rng.random(len(field)), -1)
    top = np.maximum.reduceat(noise, units.first_state[:-1])
    return (noise == np.repeat(top, units.graph.n_states)).astype(np.float64)


def softmax(units, x):
    """Probabilities of states from their logarithms, of each row and unit."""
    starts, sizes = units.first_state[:-1], units.graph.n_states
    x = np.exp(x - np.repeat(np.maximum.reduceat(x, starts, axis=1), sizes, axis=1))
    return x / np.repeat(np.add.reduceat(x, starts, axis=1), sizes, axis=1)


def _bounds(couplings, field, q):
    """Variational bounds of products of units, and the sums of the sizes of their terms."""
    with np.errstate(divide="ignore", invalid="ignore"):
        own = np.where(q > 0, q * (field - np.log(q)), 0)
    pairs = (q @ couplings) * q / 2
    return own.sum(1) + pairs.sum(1), 1 + abs(own).sum(1) + abs(pairs).sum(1)
