"""Checks of beliefs: the Bethe log-partition against bounds of the whole machine."""

from typing import NamedTuple

import numpy as np

from fastmf.inference.mean_field.naive_bound import bounds_from, starts_elsewhere
from fastmf.inference.mean_field.tap import tap
from fastmf.kernels.mean_field.arguments import Tilt
from fastmf.priors._queries import two_values

# Nats by which a bound must exceed a log-partition: rounding, and the tolerance of the solver.
BOUND_MARGIN, RELATIVE_MARGIN = 1e-2, 1e-6
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
NO_STABLE = "no start leads to a stable fixed point, and this one is that without preference"


class BeliefsCheck(NamedTuple):
    """What is needed to check the rows of sum-product belief propagation.

    Parameters
    ----------
    model : RBM
    fields : pair of arrays or None
        Extra fields of the visible and hidden units, (n_units,) or (n_rows, n_units).
    stable : list of bool, optional
        Whether a row with several starts has a stable fixed point.
    """

    model: object
    fields: tuple
    stable: list | None = None

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
        for row in np.flatnonzero(np.atleast_1d(found.converged) & np.isfinite(values)):
            starts = np.vstack([means[row], starts_elsewhere(model, means[row])])
            tilt = self._tilt_of_row(row)
            naive, bounds, sizes = bounds_from(tap, model, starts, tilt, np.zeros(tilt.field.shape))
            best = bounds.argmax()
            if bounds[best] - values[row] > BOUND_MARGIN + RELATIVE_MARGIN * sizes[best]:
                reasons[row] = REASON.format(bounds[best] - values[row])
            elif self.stable is not None:
                reasons[row] = self._of_starts(row, values[row], found, naive.mean[0], bounds)
        return reasons

    def _of_starts(self, row, value, found, means, bounds):
        """Reason why a row with several starts is not reliable, "" if it is."""
        if not self.stable[row]:
            return NO_STABLE
        solutions = found.solutions[row] if np.ndim(found.converged) else found.solutions
        low, high = two_values(self.model.visible)
        return reason_elsewhere(value, means, bounds, solutions.visible, high - low)

    def _tilt_of_row(self, row):
        parts = []
        for field, n in zip(self.fields, self.model.weights.shape, strict=True):
            field = np.zeros((1, n)) if field is None else np.atleast_2d(field)
            parts.append(field[[min(row, len(field) - 1)]])
        field = np.hstack(parts).astype(np.float64)
        return Tilt(field, np.zeros(field.shape), np.zeros(field.shape, bool))


def reason_elsewhere(value, means, bounds, known, scale=1.0):
    """`ELSEWHERE` if a naive mean-field solution of some weight is far from all known points.

    Parameters
    ----------
    value : float
        Log-partition.
    means : array of shape (n_solutions, n)
    bounds : array of shape (n_solutions,)
    known : array of shape (n_points, n)
    scale : float
        Distance of the two values of a unit.
    """
    others = np.full(len(means), True)
    for point in known:
        others &= abs(means - point).max(1) > OTHER * scale
    below = value - bounds[others].max(initial=-np.inf)
    return ELSEWHERE.format(max(below, 0.0)) if below < WEIGHTY else ""
