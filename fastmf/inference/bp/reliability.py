"""Checks of beliefs: the Bethe log-partition against bounds of the whole machine."""

from typing import NamedTuple

import numpy as np

from fastmf.inference.mean_field.naive_bound import best_bound, starts_elsewhere
from fastmf.inference.mean_field.tap import tap
from fastmf.kernels.mean_field.arguments import Tilt

# Nats by which a bound must exceed a log-partition: rounding, and the tolerance of the solver.
BOUND_MARGIN, RELATIVE_MARGIN = 1e-2, 1e-6
REASON = (
    "its log-partition is {:.3g} nats below a naive mean-field bound, so that other fixed points "
    "weigh more; start from other messages (init)"
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
        Of rows with several starts, whether one has led to a stable fixed point.
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
            bound, size = best_bound(tap, model, starts, tilt, np.zeros(tilt.field.shape))
            if bound - values[row] > BOUND_MARGIN + RELATIVE_MARGIN * size:
                reasons[row] = REASON.format(bound - values[row])
            if self.stable is not None and not self.stable[row]:
                reasons[row] = NO_STABLE
        return reasons

    def _tilt_of_row(self, row):
        parts = []
        for field, n in zip(self.fields, self.model.weights.shape, strict=True):
            field = np.zeros((1, n)) if field is None else np.atleast_2d(field)
            parts.append(field[[min(row, len(field) - 1)]])
        field = np.hstack(parts).astype(np.float64)
        return Tilt(field, np.zeros(field.shape), np.zeros(field.shape, bool))
