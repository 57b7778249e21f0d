"""Sweeps of belief propagation on a graph until all rows have ended."""

from typing import NamedTuple

import numpy as np

from fastmf._outcomes import CONFIRMING, CONVERGED, CYCLING, INFEASIBLE, RUNNING
from fastmf._threads.workers import in_parallel, workers_for
from fastmf.kernels.bp import convergence
from fastmf.kernels.bp.arguments import MAX_DAMPING
from fastmf.kernels.bp.graph_arguments import ALL, FOLLOWING, NO_RECEIVERS, GraphState
from fastmf.kernels.bp.graph_schedules import graph_sweep


class SweepSettings(NamedTuple):
    """Options of the iteration.

    Parameters
    ----------
    exact : bool
        Whether two sweeps are exact: those of a forest.
    tol, rounding_error : float
        Largest change of a row that has converged, and change that rounding may cause.
    max_iter : int
    damping : float or None
        None: rows are damped when their residuals no longer fall.
    history : int
        Number of residuals to keep.
    patience : int
        Sweeps without a new smallest residual after which damping is raised.
    gives_up : bool
        Whether rows end that have no new smallest residual at the largest damping.
    n_threads : int or None
    """

    exact: bool
    tol: float
    rounding_error: float
    max_iter: int
    damping: float | None
    history: int
    patience: int
    gives_up: bool
    n_threads: int | None

    def convergence(self):
        """When rows end, and are damped."""
        return convergence.ConvergenceSettings(
            self.tol, self.rounding_error, self.max_iter, self.damping is None
        )


class SweepRecord(convergence.ConvergenceRecord):
    """How the rows go on."""

    __slots__ = ()

    @classmethod
    def of_rows(cls, n_rows, settings):
        """The record of rows before their first sweep."""
        return cls(
            status=np.full(n_rows, RUNNING),
            n_iter=np.zeros(n_rows, np.int64),
            residual=np.full(n_rows, np.inf),
            damping=np.full(n_rows, settings.damping or 0.0),
            min_residual=np.full(n_rows, np.inf),
            n_stalled=np.zeros(n_rows, np.int64),
            limit=np.full(n_rows, np.inf),
            history=np.zeros((n_rows, settings.history) if settings.history else (0, 0)),
        )

    def assess(self, rows, change, damping, settings):
        """Status and damping of rows after a sweep with such a largest change and damping."""
        strongest = (damping == MAX_DAMPING) & (self.damping[rows] == MAX_DAMPING)
        convergence.assess_rows(
            settings.convergence(), self, rows, change, damping, settings.patience,
            np.zeros(1, np.int64),
        )  # fmt: skip
        if settings.gives_up:
            # Their damping would have been raised: what counts sweeps has been set back.
            stalled = (self.status[rows] == RUNNING) & (self.min_residual[rows] == np.inf)
            self.status[rows[strongest & stalled]] = CYCLING


class Sweeps:
    """Messages of rows and the kernels that change them.

    Parameters
    ----------
    send : int
        Address of the function that sends messages.
    problem : BinaryProblem or StatesProblem
    messages : float64 array of shape (n_rows, n_slots or n_entries)
        Changed in place.
    n_beliefs, max_states : int
        Numbers of a row's beliefs, and of the states of a unit.
    settings : SweepSettings
    """

    def __init__(self, send, problem, messages, n_beliefs, max_states, settings):
        self.send, self.problem, self.settings = send, problem, settings
        n_rows = len(messages)
        self.n_workers = self._workers(n_rows)
        self.state = GraphState(
            messages=messages,
            beliefs=np.ones((n_rows, n_beliefs)),
            damping=np.zeros(n_rows),
            residual=np.zeros(n_rows),
            receivers=FOLLOWING if settings.exact else ALL,
            scratch=np.zeros((max(self.n_workers, 1), 3, max_states)),
        )

    def _workers(self, n_rows):
        work = n_rows * len(self.problem.edges) * 10
        return workers_for(max(n_rows, 1), work, self.settings.n_threads)

    def sweep(self, state, rows, step):
        """One sweep of some rows; returns the largest change of each."""
        arguments = self.send, self.problem, state, rows, step, np.zeros(2, np.int64)
        n_workers = min(self._workers(len(rows)), self.n_workers)
        in_parallel(graph_sweep, arguments, n_workers)
        return state.residual[rows]

    def run(self, after=None):
        """Sweep until all rows have ended; returns the `SweepRecord`.

        Sweeps go from the last unit to the first and back: two are exact for trees.
        """
        state, settings = self.state, self.settings
        record = SweepRecord.of_rows(len(state.messages), settings)
        rows = np.arange(len(state.messages))
        if settings.exact:
            for step in (-1, 1):
                change = self.sweep(state, rows, step)
                record.status[rows[change == np.inf]] = INFEASIBLE
                record.n_iter[:] += 1
                rows = np.flatnonzero(record.status == RUNNING)
            record.residual[:] = 0
            record.status[rows] = CONVERGED
        step, n_done = -1, 0
        while not settings.exact and len(rows):
            damping = np.where(record.status[rows] == CONFIRMING, 0.0, record.damping[rows])
            # The first two sweeps are undamped, so that components that are trees are exact.
            state.damping[rows] = damping if n_done > 1 else 0.0
            change = self.sweep(state, rows, step)
            record.assess(rows, change, state.damping[rows], settings)
            n_done += 1
            if after is not None and n_done > 2:
                after(state, n_done - 2)
            step = -step
            rows = np.flatnonzero(record.status <= RUNNING)
        if not settings.exact:
            # Beliefs of the last messages.
            unchanged = state._replace(receivers=NO_RECEIVERS)
            self.sweep(unchanged, np.arange(len(state.messages)), 1)
        if after is not None:
            after(state, 0)
        return record
