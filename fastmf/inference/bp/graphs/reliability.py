"""Checks of beliefs on graphs that have cycles."""

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.special import logsumexp

from fastmf.inference.bp._assignments import margin_of
from fastmf.inference.bp.graphs.elimination import best_states, eliminated_units
from fastmf.inference.bp.graphs.moves import likely_state
from fastmf.inference.bp.loop_series import loop_correction, spin_correlations, state_covariances
from fastmf.inference.bp.reliability import (
    MAX_EDGES,
    NO_STABLE,
    OTHERS,
    REASON,
    reason_of_loops,
    solution_elsewhere,
)
from fastmf.inference.mean_field.exact_check import MAX_ENTRIES, is_small, reason_of_sums
from fastmf.inference.mean_field.reliability import BOUND_MARGIN, RELATIVE_MARGIN
from fastmf.priors._queries import two_values

# Starts of naive mean field for each row, sweeps from each, and products with all of these.
N_NAIVE_STARTS, MAX_NAIVE_SWEEPS, MAX_PRODUCTS = 10, 60, 20_000_000
# Largest number of values of tables of graphs that naive mean field checks.
MAX_VALUES = 2_000_000
# Nats of the loop correction up to which a naive mean-field solution elsewhere is no reason, if no
# start leads elsewhere: such solutions are common where phases overlap.
SMALL_LOOPS = 0.05
MORE_PROBABLE = "another assignment is more probable, by {:.3g} nats; take polish=None"
IMPOSSIBLE = "no state is possible, as exact sums say: the log-partition is -inf"
DAMPED = (
    "its messages settle with damping only, as where cycles are frustrated, and the marginals may "
    "be far off"
)


class GraphCheck(NamedTuple):
    """Arguments of checks of rows of sum-product on a graph.

    Parameters
    ----------
    units : GraphUnits
    damping : array of shape (n_rows,)
        At the end of each row.
    beliefs : list of arrays of shape (n_solutions, n_states)
        Probabilities of states at the fixed points of each row, largest weight first.
    pairs : list of arrays of shape (n_solutions, n_values), or None
        Probabilities of pairs of states; None if they are many, or units two-valued.
    stable : list of bool, optional
        Whether a row with several starts has a stable fixed point.
    several : callable, optional
        several(row, beliefs) returns the log-partition of a row from several starts, and from
        these beliefs, if they are not None; probabilities of states, and whether a fixed point is
        stable.
    """

    units: object
    damping: np.ndarray
    beliefs: list
    pairs: list | None
    stable: list | None = None
    several: object = None

    def __call__(self, found):
        """Reason why each row is not reliable, "" if it is.

        Parameters
        ----------
        found : Beliefs

        Returns
        -------
        list of str, one a row; or None if the graph is too large for all checks
        """
        reasons = [DAMPED if damping else "" for damping in self.damping]
        if self.units.is_forest or found.log_partition is None:
            return [""] * len(reasons) if self.units.is_forest else reasons
        values, converged = np.atleast_1d(found.log_partition), np.atleast_1d(found.converged)
        rows = np.flatnonzero(converged & np.isfinite(values))
        exact = self._exact(rows)
        loops = found.loop_correction if exact is None else None
        couplings = _checked_couplings(self.units)
        large = len(self.units.graph.edges) > MAX_EDGES
        if large and exact is loops is couplings is None and not (found.unique or any(reasons)):
            return None
        for row in rows:
            wrong = None
            if exact is not None and exact[row].log_partition == -np.inf:
                reasons[row] = IMPOSSIBLE
                continue
            if exact is not None:
                beliefs = np.exp(_log_weights(found, row)) @ self.beliefs[row]
                sums = exact[row].log_partition - values[row], exact[row].beliefs - beliefs
                wrong = reason_of_sums(*sums)
            if wrong == "":
                reasons[row] = ""
                continue
            why, doubt, elsewhere = self._of_bounds(row, values[row], couplings)
            doubt = reasons[row] or doubt
            if wrong is not None:
                reasons[row] = "; ".join(filter(None, (wrong, why or doubt)))
                continue
            loop = np.nan if loops is None else np.atleast_1d(loops)[row]
            if not why and loops is not None:
                why = reason_of_loops(loop, self._spins(row))
            others = why or self._of_others(row, values[row], found, elsewhere)
            if others == "" and doubt != DAMPED and abs(loop) <= SMALL_LOOPS:
                doubt = ""
            reasons[row] = others or doubt
        return reasons

    def _of_bounds(self, row, value, couplings):
        """Result of `_reasons`, or that a row has no stable fixed point."""
        if self.stable is not None and not self.stable[row]:
            return NO_STABLE, "", None
        if couplings is None:
            return "", "", None
        return _reasons(self.units.row(row), couplings, self.beliefs[row], value)

    def _of_others(self, row, value, found, elsewhere):
        """Reason why a row is not reliable by more starts, "" if they agree; None if not known."""
        if self.several is None or len(self.units.graph.edges) > MAX_EDGES:
            return None
        if found.unique:
            return ""
        log_partition, beliefs, stable = self.several(row, elsewhere)
        if not stable:
            return None
        return reason_of_sums(log_partition - value, beliefs - self.beliefs[row][0], OTHERS)

    def _exact(self, rows):
        """The `Eliminated` sums of some rows by their numbers; None if they take long."""
        found, plans = {}, {}
        if not is_small(self.units.graph, len(rows)):
            return None
        for row in rows:
            found[row] = eliminated_units(self.units.row(row), MAX_ENTRIES / len(rows), plans)
            if found[row] is None:
                return None
        return found

    def corrections(self, found):
        """Next term of the loop series for the log-partition of each row.

        Returns
        -------
        array of shape (n_rows,), or None
            NaN where no fixed point is stable.
        """
        if self.units.is_forest:
            return np.zeros(len(self.damping))
        out = np.full(len(self.damping), np.nan)
        for row in np.flatnonzero(np.atleast_1d(found.converged)):
            n = len(self.beliefs[row])
            terms = [self._correction(row, k) for k in range(n)]
            if None in terms:
                return None
            out[row] = logsumexp(_log_weights(found, row) + terms)
        return out

    def _correction(self, row, k):
        """The correction of one fixed point of a row."""
        sizes, edges = self.units.graph.n_states, self.units.graph.edges
        if self.units.binary is not None:
            correlations = spin_correlations(*self._spins(row)[k])
            return loop_correction(np.ones_like(sizes), edges, correlations)
        if self.pairs is None:
            return None
        covariances = state_covariances(self.beliefs[row][k], self.pairs[row][k], edges, sizes)
        return loop_correction(sizes, edges, covariances)

    def _spins(self, row):
        """Arguments of `spin_correlations` at each fixed point; none of units of more values."""
        if self.units.binary is None:
            return []
        graph, (low, high) = self.units.graph, two_values(self.units.model.prior)
        exponents = graph.values * (high - low) ** 2
        return [(b[1::2], b[::2], exponents, graph.edges) for b in self.beliefs[row]]


class ModeCheck(NamedTuple):
    """A comparison of assignments with most probable ones, where elimination is quick."""

    units: object
    is_best: np.ndarray | None

    def __call__(self, found):
        """Reason why each row is not reliable, "" if it is; None if elimination takes long."""
        objective = np.atleast_1d(found.objective)
        best = objective
        if not self.units.is_forest and (self.is_best is None or not self.is_best.all()):
            states = best_states(self.units, range(len(objective)), MAX_ENTRIES)
            if states is None:
                return None
            best = np.array([state.objective for state in states])
        return [self._reason(*pair) for pair in zip(objective, best, strict=True)]

    @staticmethod
    def _reason(objective, best):
        if best == -np.inf:
            return IMPOSSIBLE
        rise = best - objective
        return MORE_PROBABLE.format(rise) if rise > margin_of(best) else ""


def _log_weights(found, row):
    """Logarithms of the weights of the fixed points of a row."""
    if found.solutions is None:
        return np.zeros(1)
    several = found.solutions[row] if np.ndim(found.converged) else found.solutions
    return np.log(several.weights)


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


def _reasons(units, couplings, beliefs, value):
    """Why a row is not reliable, why it may not be, and the beliefs of which it is not known."""
    problem, field = units.problem()[0], np.empty(units.first_state[-1])
    field[units.state_order] = problem.field[0]
    sweeps = MAX_PRODUCTS // max(couplings.nnz, 1)
    n_starts = min(N_NAIVE_STARTS, max(sweeps // MAX_NAIVE_SWEEPS, 1))
    starts, rng = np.empty((n_starts, len(field))), np.random.default_rng(0)
    starts[0] = beliefs[0]
    for k in range(1, n_starts):
        starts[k] = _random_states(units, field, rng)
    labels = likely_state(problem)
    if labels is not None:
        state = np.zeros(len(field))
        state[units.first_state[units.layout.order] + labels] = 1
        starts = np.vstack([state, starts])
    found = starts
    for _ in range(min(MAX_NAIVE_SWEEPS, max(sweeps // n_starts, 1))):
        found = (found + softmax(units, field + found @ couplings)) / 2
    both = np.vstack([starts[: len(starts) - n_starts + 1], found])
    bounds, sizes = _bounds(couplings, field, both)
    best = bounds.argmax()
    if bounds[best] - value > BOUND_MARGIN + RELATIVE_MARGIN * sizes[best]:
        return REASON.format(bounds[best] - value), "", None
    other, doubt = solution_elsewhere(value, both, bounds, beliefs)
    return "", doubt, None if other is None else both[[other]]


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
