"""A fixed number of iterations of belief propagation for rows of fields that share couplings."""

from typing import NamedTuple

import numpy as np
from scipy.special import expit

from fastmf._threads import in_parallel, workers_for
from fastmf.kernels import messages as kernels

ALGORITHMS = {"sum": kernels.SUM, "max": kernels.MAX, "mixed": kernels.MIXED}
GROUPS = 4
# Above this, products of float32 odds and weights would come near the end of their range.
LARGEST_SINGLE = 15.0
LARGEST = 300.0


class Beliefs(NamedTuple):
    """What `messages` returns; the log-odds decide where beliefs round to 0 or 1.

    Parameters
    ----------
    visible, hidden : array of shape (n_rows, n_units)
        Log-odds of the beliefs.
    log_partition : array of shape (n_rows,)
        Bethe's, by sum-product; 0 otherwise.
    residual : array of shape (n_rows,)
        Largest change of a belief in the last iteration.
    pairs : array of shape (n_visible, n_hidden)
        Pairwise beliefs of (1, 1), averaged over rows, by sum-product; 0 otherwise.
    """

    visible: np.ndarray
    hidden: np.ndarray
    log_partition: np.ndarray
    residual: np.ndarray
    pairs: np.ndarray

    @property
    def mean(self):
        """Beliefs, (visible, hidden)."""
        return expit(self.visible), expit(self.hidden)


def messages(weights, visible_field, hidden_field, *, algorithm="sum", n_iter=10, n_threads=None):
    """Iterate belief propagation so many times, without damping, from uniform messages.

    Parameters
    ----------
    weights : array of shape (n_visible, n_hidden)
    visible_field, hidden_field : array of shape (n_rows, n_units)
    algorithm : {"sum", "max", "mixed"}
    n_iter : int
    n_threads : int or None
        The result does not depend on it.

    Returns
    -------
    Beliefs

    Raises
    ------
    ValueError
        If a coupling is beyond 300 in size.
    """
    largest = float(abs(weights).max())
    if largest > LARGEST:
        raise ValueError(f"belief propagation needs weights of at most {LARGEST:g}, got {largest}.")
    single = weights.dtype == np.float32 and largest <= LARGEST_SINGLE
    dtype = np.dtype(np.float32 if single else np.float64)
    (n, m), n_rows = weights.shape, len(visible_field)
    n_groups = min(GROUPS, n_rows)
    record = Beliefs(
        np.zeros((n_rows, n)),
        np.zeros((n_rows, m)),
        np.zeros(n_rows),
        np.zeros(n_rows),
        np.zeros((n_groups, n, m)),
    )
    arguments = (
        np.exp(weights.astype(dtype, copy=False)),
        np.ascontiguousarray(visible_field, dtype),
        np.ascontiguousarray(hidden_field, dtype),
        ALGORITHMS[algorithm],
        n_iter,
        max(1, int(600 / max(largest, 0.1))),
        30.0 if single else 150.0,
        n_groups,
        np.zeros(1, np.int64),
        *record,
    )
    n_workers = workers_for(n_groups, n_rows * n_iter * weights.size, n_threads)
    in_parallel(kernels.messages, arguments, n_workers)
    return record._replace(pairs=record.pairs.sum(0) / n_rows)
