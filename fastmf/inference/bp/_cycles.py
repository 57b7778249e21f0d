"""Rows of belief propagation that cycle."""

import numpy as np

from fastmf._outcomes import CYCLING, OUT_OF_ITERATIONS
from fastmf.kernels.bp.arguments import DAMPING_WINDOW


def mark_cycles(record, tol):
    """Tell rows that cycle from rows that approach a fixed point slowly.

    A row cycles if its residual has not halved in the second half of the sweeps, and did not fall
    in more than an eighth of them: in a slow approach it falls in all. Rows that are to make all
    sweeps (`tol` is 0) are left alone.
    """
    if not (tol and record.history.size):
        return
    for row in np.flatnonzero(record.status == OUT_OF_ITERATIONS):
        residuals = record.history[row, : record.n_iter[row]]
        if len(residuals) < 2 * DAMPING_WINDOW:
            continue
        early, late = np.array_split(residuals, 2)
        rises = late[1:] >= late[:-1] * (1 - 1e-9)
        if np.median(late) > np.median(early) / 2 and rises.mean() > 1 / 8:
            record.status[row] = CYCLING
