"""Checks of beliefs: the Bethe log-partition against bounds of the whole machine."""

from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from fastmf.inference.bp.loop_series import loop_correction, loops_of_spins, spin_correlations
from fastmf.inference.mean_field.exact_check import (
    MAX_MEAN,
    MAX_NATS,
    MAX_PROBABILITY,
    reason_of_sums,
    reasons_by_exact_sums,
)
from fastmf.inference.mean_field.naive_bound import bounds_from, starts_elsewhere
from fastmf.inference.mean_field.reliability import BOUND_MARGIN, RELATIVE_MARGIN
from fastmf.inference.mean_field.tap import tap
from fastmf.kernels.mean_field.arguments import Tilt
from fastmf.priors._queries import two_values

REASON = (
    "its log-partition is {:.3g} nats below a naive mean-field bound, so that other fixed points "
    "weigh more; start from other messages (init)"
)
# Solutions with a unit whose probabilities differ by so much are others; those not so many nats
# below the log-partition may have a fifth of the weight.
OTHER, WEIGHTY = 0.5, 1.5
ELSEWHERE = (
    "naive mean field finds a solution elsewhere whose bound is {:.2g} nats below its "
    "log-partition: both have a share of the weight"
)
LOOPS = (
    "the next term of the loop series (loop_correction) changes its log-partition by {:+.2g} nats"
)
BOTH_LOOPS = "two orders of the loop series change its log-partition by {:+.2g} nats"
LOOPS_OF_BELIEFS = (
    "two orders of the loop series change probabilities by {:.2g} on average and up to {:.2g}"
)
SPIN_GLASS = "random perturbations of its messages grow along cycles (spin glass)"
NO_MINIMUM = "the fixed point is no stable minimum of the Bethe free energy; try n_starts=20"
OTHERS = (
    "from 20 starts the log-partition is {:+.2g} nats away and probabilities differ by up to "
    "{:.2g}: other fixed points have a share of the weight; take n_starts=20"
)
# Starts with which one start is compared, sweeps from each, and coupled pairs up to which it is.
N_STARTS, MAX_SWEEPS, MAX_EDGES = 20, 200, 20_000
NO_STABLE = "no start leads to a stable fixed point, and this one is that without preference"


class BeliefsCheck(NamedTuple):
    """Arguments of checks of the rows of sum-product belief propagation.

    Parameters
    ----------
    model : RBM
    fields : pair of arrays or None
        Extra fields of the visible and hidden units, (n_units,) or (n_rows, n_units).
    stable : list of bool, optional
        Whether a row with several starts has a stable fixed point.
    several : callable, optional
        several(model, fields, None) returns the `Beliefs` of one row from several starts.
    """

    model: object
    fields: tuple
    stable: list | None = None
    several: object = None

    def __call__(self, found):
        """Reason why each row is not reliable, "" if it is; None if nothing can be checked.

        Parameters
        ----------
        found : Beliefs

        Returns
        -------
        list of str, one a row, or None
        """
        model = self.model
        if found.log_partition is None or not model.n_hidden:
            return None
        values, means = np.atleast_1d(found.log_partition), np.atleast_2d(found.mean[0])
        reasons = [""] * len(values)
        rows = np.flatnonzero(np.atleast_1d(found.converged) & np.isfinite(values))
        if not len(rows):
            return reasons
        joined = np.hstack([np.atleast_2d(mean)[rows] for mean in found.mean])
        known = reasons_by_exact_sums(model, self._tilt_of(rows), joined, values[rows])
        if not self._is_binary():
            return self._of_other_units(known, reasons, rows)
        loops = found.loop_correction if known is None else None
        for wrong, row in zip(known or [None] * len(rows), rows, strict=True):
            if wrong == "":
                continue
            starts = np.vstack([means[row], starts_elsewhere(model, means[row])])
            tilt = self._tilt_of([row])
            naive, bounds, sizes = bounds_from(tap, model, starts, tilt, np.zeros(tilt.field.shape))
            best = bounds.argmax()
            if bounds[best] - values[row] > BOUND_MARGIN + RELATIVE_MARGIN * sizes[best]:
                reasons[row] = REASON.format(bounds[best] - values[row])
            elif self.stable is not None:
                reasons[row] = self._of_starts(row, values[row], found, naive.mean[0], bounds)
            if wrong is not None:
                reasons[row] = "; ".join(filter(None, (wrong, reasons[row])))
                continue
            if not reasons[row] and loops is not None:
                reasons[row] = reason_of_loops(np.atleast_1d(loops)[row], self._spins(found, row))
            if not reasons[row] and self.several is not None:
                reasons[row] = self._of_others(row, values[row], found)
        return reasons

    @staticmethod
    def _of_other_units(known, reasons, rows):
        """The reasons by exact sums alone, None where some are not known."""
        if known is None or None in known:
            return None
        for wrong, row in zip(known, rows, strict=True):
            reasons[row] = wrong
        return reasons

    def _of_others(self, row, value, found):
        """Reason why a row with one start is not reliable, by more of them."""
        if np.count_nonzero(self.model.weights) > MAX_EDGES or found.unique:
            return ""
        tilt = self._tilt_of([row]).field[0]
        fields = np.split(tilt, self.model.weights.shape[:1])
        others = self.several(self.model, fields, None)
        if not others.converged or others.solutions is None:
            return ""
        own = self._probabilities([np.atleast_2d(mean)[row] for mean in found.mean])
        lacking = self._probabilities(others.mean) - own
        return reason_of_sums(others.log_partition - value, lacking, OTHERS)

    def _is_binary(self):
        return None not in map(two_values, self.model.layers)

    def _probabilities(self, means):
        """Probabilities of the values of both layers' units, (2, n_units), from their means."""
        parts = []
        for mean, prior in zip(means, self.model.layers, strict=True):
            low, high = two_values(prior)
            mean = mean.astype(np.float64)
            parts.append(np.stack([(mean - low), (high - mean)]) / (high - low))
        p = np.concatenate(parts, axis=1)
        # Smaller ones are the rounding errors of means.
        return np.where(p < 4 * np.finfo(self.model.dtype).eps, 0, p)

    def corrections(self, found):
        """Next term of the loop series for the log-partition of each row, or None."""
        if not self._is_binary():
            return None
        out = np.full(np.size(found.converged), np.nan)
        for row in np.flatnonzero(np.atleast_1d(found.converged)):
            terms = []
            for spins in self._spins(found, row):
                correlations, edges = spin_correlations(*spins), spins[-1]
                sizes = np.ones(len(spins[0]), int)
                terms.append(loop_correction(sizes, edges, correlations))
            if None in terms:
                return None
            out[row] = logsumexp(self._log_weights(found, row) + np.array(terms))
        return out

    def _spins(self, found, row):
        """Arguments of `spin_correlations` at each fixed point of a row."""
        model = self.model
        edges = np.stack(np.nonzero(model.weights), 1)
        scales = [high - low for low, high in map(two_values, model.layers)]
        exponents = model.weights[tuple(edges.T)].astype(np.float64) * scales[0] * scales[1]
        edges[:, 1] += len(model.weights)
        points = [[np.atleast_2d(mean)[row] for mean in found.mean]]
        if found.solutions is not None:
            several = found.solutions[row] if np.ndim(found.converged) else found.solutions
            points = zip(several.visible, several.hidden, strict=True)
        return [(*self._probabilities(point), exponents, edges) for point in points]

    @staticmethod
    def _log_weights(found, row):
        """Logarithms of the weights of the fixed points of a row."""
        if found.solutions is None:
            return np.zeros(1)
        several = found.solutions[row] if np.ndim(found.converged) else found.solutions
        return np.log(several.weights)

    def _of_starts(self, row, value, found, means, bounds):
        """Reason why a row with several starts is not reliable, "" if it is."""
        if not self.stable[row]:
            return NO_STABLE
        solutions = found.solutions[row] if np.ndim(found.converged) else found.solutions
        low, high = two_values(self.model.visible)
        return solution_elsewhere(value, means, bounds, solutions.visible, high - low)[1]

    def _tilt_of(self, rows):
        """The `Tilt` of some rows: one row if all have the same."""
        parts = []
        for field, n in zip(self.fields, self.model.weights.shape, strict=True):
            field = np.zeros((1, n)) if field is None else np.atleast_2d(field)
            parts.append(field[rows] if len(field) > 1 else field)
        n_rows = max(map(len, parts))
        field = np.hstack([np.broadcast_to(part, (n_rows, part.shape[1])) for part in parts])
        field = field.astype(np.float64)
        return Tilt(field, np.zeros(field.shape), np.zeros(field.shape, bool))


def solution_elsewhere(value, means, bounds, known, scale=1.0):
    """A naive mean-field solution of some weight that is far from all known points.

    Parameters
    ----------
    value : float
        Log-partition.
    means : array of shape (n_solutions, n)
    bounds : array of shape (n_solutions,)
    known : array of shape (n_points, n)
    scale : float
        Distance of the two values of a unit.

    Returns
    -------
    int or None
        Number of the one with the largest bound.
    str
        `ELSEWHERE`, "" if there is none.
    """
    others = np.full(len(means), True)
    for point in known:
        others &= abs(means - point).max(1) > OTHER * scale
    bounds = np.where(others, bounds, -np.inf)
    best = int(bounds.argmax())
    below = value - bounds[best]
    return (best, ELSEWHERE.format(max(below, 0.0))) if below < WEIGHTY else (None, "")


def reason_of_loops(correction, spins=()):
    """Reason by the next terms of the loop series, "" if they are small.

    Parameters
    ----------
    correction : float
    spins : list of tuples
        Arguments of `loops_of_spins` at each fixed point, where units are two-valued.
    """
    if np.isnan(correction):
        return NO_MINIMUM
    if abs(correction) > MAX_NATS:
        return LOOPS.format(correction)
    return next(filter(None, map(_reason_of_spins, spins)), "")


def _reason_of_spins(spins):
    """Reason by two orders of the loop series at one fixed point."""
    loops = loops_of_spins(*spins)
    if loops is None or np.isnan(loops.first):
        return ""
    if np.isnan(loops.both):
        return SPIN_GLASS
    if abs(loops.both) > MAX_NATS:
        return BOTH_LOOPS.format(loops.both)
    # Near a critical point, where the first order is positive, they exceed the changes by far.
    if loops.changes is None or loops.first > 0:
        return ""
    sizes = abs(loops.changes)
    average, largest = sizes.mean(), sizes.max(initial=0.0)
    if average <= MAX_MEAN and largest <= MAX_PROBABILITY:
        return ""
    return LOOPS_OF_BELIEFS.format(average, largest)
