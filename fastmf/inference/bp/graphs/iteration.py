"""Sweeps of belief propagation on a graph until all rows have ended."""

import numpy as np

from fastmf._outcomes import (
    ALL,
    CONFIRMING,
    CONVERGED,
    CYCLING,
    FOLLOWING,
    INFEASIBLE,
    MAX_DAMPING,
    NO_RECEIVERS,
    RUNNING,
    WINDOW_SWEEPS,
)
from fastmf._threads.workers import in_parallel, workers_for
from fastmf.inference.bp._kernel_arguments import record_of
from fastmf.kernels.bp.convergence import assess_rows
from fastmf.kernels.bp.graph_arguments import GraphState
from fastmf.kernels.bp.graph_states import graph_sweep


def first_state(options, problem, messages, n_beliefs, max_states, *, is_forest):
    """The `GraphState` before the first sweep."""
    n_rows = len(messages)
    return GraphState(
        messages=messages,
        beliefs=np.ones((n_rows, n_beliefs)),
        damping=np.zeros(n_rows),
        residual=np.zeros(n_rows),
        receivers=FOLLOWING if is_forest else ALL,
        scratch=np.zeros((_workers(options, problem, n_rows), 3, max_states)),
    )


def _workers(options, problem, n_rows):
    return workers_for(max(n_rows, 1), n_rows * len(problem.edges) * 10, options.n_threads)


def sweep_to_the_end(options, settings, send, problem, state, after=None):
    """Sweep from the last unit to the first and back until all rows have ended; their record.

    `send` is the address of the function that sends messages; after(state, n) is called after
    sweep n, and with n = 0 at the end.
    """
    record, rows = record_of(len(state.messages), options), np.arange(len(state.messages))

    def sweep(state, rows, step):
        arguments = send, problem, state, rows, step, np.zeros(2, np.int64)
        n_workers = min(_workers(options, problem, len(rows)), len(state.scratch))
        in_parallel(graph_sweep, arguments, n_workers)
        return state.residual[rows]

    is_forest = state.receivers == FOLLOWING
    if is_forest:  # two sweeps are exact
        for step in (-1, 1):
            change = sweep(state, rows, step)
            record.status[rows[change == np.inf]] = INFEASIBLE
            record.n_iter[:] += 1
            rows = np.flatnonzero(record.status == RUNNING)
        record.status[rows] = CONVERGED
    step, n_done = -1, 0
    while not is_forest and len(rows):
        damping = np.where(record.status[rows] == CONFIRMING, 0.0, record.damping[rows])
        # The first two sweeps are undamped, so that components that are trees are exact.
        state.damping[rows] = damping if n_done > 1 else 0.0
        change = sweep(state, rows, step)
        assess(options, settings, record, rows, change, state.damping[rows])
        n_done += 1
        if after is not None and n_done > 2:
            after(state, n_done - 2)
        step = -step
        rows = np.flatnonzero(record.status <= RUNNING)
    if not is_forest:  # beliefs of the last messages
        sweep(state._replace(receivers=NO_RECEIVERS), np.arange(len(state.messages)), 1)
    if after is not None:
        after(state, 0)
    return record


def assess(options, settings, record, rows, change, damping):
    """Set status and damping of rows after a sweep with such largest changes and damping."""
    strongest = (damping == MAX_DAMPING) & (record.damping[rows] == MAX_DAMPING)
    # Tree-reweighted messages converge undamped, but slowly where couplings are strong.
    patience = WINDOW_SWEEPS * (8 if options.algorithm == "tree_reweighted" else 1)
    assess_rows(settings, record, rows, change, damping, patience, np.zeros(1, np.int64))
    if options.decodes and options.search:
        # Moves of forests find better states than more sweeps. Rows whose damping would have been
        # raised have stalled: their smallest residual has been set back.
        stalled = (record.status[rows] == RUNNING) & (record.min_residual[rows] == np.inf)
        record.status[rows[strongest & stalled]] = CYCLING
