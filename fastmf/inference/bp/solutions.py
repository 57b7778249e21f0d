"""Distinct fixed points of sum-product from many starts, and their mixture.

Fixed points s with Bethe log-partitions B_s are weighted by w_s = exp(B_s) / sum_t exp(B_t), as
phases that hardly overlap: the log-partition is log sum_s exp(B_s), and marginals are averages.

Starts are messages without preference and messages of states: of random probabilities, of naive
mean-field solutions and of states of low energy, each with its opposite where units have two
values. Fixed points that are reached are left by a small distance and solved again: a point that is
no minimum of the Bethe free energy does not come back, and is no answer.
"""

from typing import NamedTuple

import numpy as np
import scipy

from fastmf.inference.mean_field.solutions import Solutions, merge
from fastmf.special import softplus

# Sweeps from each of the starts with which one start is compared.
MAX_CHECK_SWEEPS = 200
# Largest difference of a probability between equal fixed points.
MERGE_TOL = 1e-2
# Standard deviation of the changes of log-messages at fixed points that are solved again.
DISTANCE = 1e-2
# Smallest probability of a state from which messages start.
MIN_START_PROBABILITY = 1e-6


class EndsOfStarts(NamedTuple):
    """Where the starts of one row have ended.

    Parameters
    ----------
    beliefs : array of shape (n_starts, n)
        Probabilities.
    log_partition, converged, damping : array of shape (n_starts,)
    messages : array of shape (n_starts, ...)
        Logarithms.
    result : object
        All results of the starts.
    """

    beliefs: np.ndarray
    log_partition: np.ndarray
    converged: np.ndarray
    damping: np.ndarray
    messages: np.ndarray
    result: object


class Mixture(NamedTuple):
    """The distinct fixed points of a row.

    Parameters
    ----------
    ends : EndsOfStarts
    rows : int array of shape (n_solutions,)
        The distinct fixed points among the ends, largest log-partition first.
    members : int array of shape (n_starts,)
        Number of the fixed point to which each start led, -1 if to none.
    stable : bool
        False: there is none, and the row is the end of the first start.
    """

    ends: EndsOfStarts
    rows: np.ndarray
    members: np.ndarray
    stable: bool

    @property
    def log_partitions(self):
        """Log-partitions of the fixed points."""
        return self.ends.log_partition[self.rows]

    @property
    def log_weights(self):
        """Logarithms of the weights of the fixed points, which add up to 1."""
        values = self.log_partitions
        return values - scipy.special.logsumexp(values) if len(values) > 1 else np.zeros(1)

    def average(self, x):
        """Average of values of the ends, with one row; None of None."""
        if x is None:
            return None
        return np.tensordot(np.exp(self.log_weights), x[self.rows], 1)[None]

    def average_log_odds(self, x):
        """Log-odds of the averages of the probabilities that have log-odds x, with one row."""
        if len(self.rows) == 1:
            return x[self.rows]
        x, log_weights = x[self.rows], self.log_weights[:, None]
        upper, lower = (scipy.special.logsumexp(log_weights - softplus(y), axis=0) for y in (-x, x))
        return (upper - lower)[None]

    def solutions(self, visible, hidden=None):
        """The fixed points as `Solutions`, with means of all ends."""
        return Solutions(
            visible=visible[self.rows],
            hidden=None if hidden is None else hidden[self.rows],
            free_energy=-self.log_partitions,
            log_partition=self.log_partitions,
            converged=self.ends.converged[self.rows],
            members=self.members,
        )


def fixed_points(solve, starts, rng):
    """The `Mixture` of the fixed points that are reached from some messages."""
    first = solve(starts, False)
    rows, members = _distinct(first, np.isfinite(first.log_partition) & first.converged)
    if len(rows):
        messages = first.messages[rows]
        moved = messages + DISTANCE * rng.standard_normal(messages.shape)
        ends = solve(moved.astype(messages.dtype), True)
        usable = ends.converged & np.isfinite(ends.log_partition)
        # Messages that leave a fixed point without damping make it one that is hardly a state.
        undamped = usable & (ends.damping == 0)
        distinct_rows, then = _distinct(ends, undamped if undamped.any() else usable)
        if len(distinct_rows):
            return Mixture(ends, distinct_rows, np.where(members < 0, -1, then[members]), True)
    ends = solve(starts[:1], True)
    return Mixture(ends, np.zeros(1, int), np.full(len(starts), -1), False)


def _distinct(ends, usable):
    """The distinct ones among the ends that are usable, and the number of each end's own."""
    rows, members = np.flatnonzero(usable), np.full(len(usable), -1)
    if len(rows):
        order = np.argsort(-ends.log_partition[rows], kind="stable")
        distinct_rows, members[rows] = merge(ends.beliefs[rows], order, MERGE_TOL)
        rows = rows[distinct_rows]
    return rows, members


def random_probabilities(n_starts, n_units, rng):
    """Probabilities of 1 of two-valued units to start from: states, each with its opposite.

    Some starts have few units that are 1 and some have many, so that phases are found that differ
    in the sum of all units.
    """
    half = -(-n_starts // 2)
    states = rng.random((half, n_units)) < rng.random((half, 1))
    return np.stack([states, ~states], 1).reshape(-1, n_units)[:n_starts].astype(np.float64)
