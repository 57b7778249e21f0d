"""NumPy twin of `kernels.bp.graph_schedules`, with a search for the largest change."""

import numpy as np

from fastmf.reference.bp import graph_binary, graph_states

GRAPH_BLOCK_UNITS = 4096


def _sender(problem):
    return (graph_binary if hasattr(problem, "odds") else graph_states).send


def graph_sweep(send, problem, state, rows, step, queue):
    """One sweep of some rows."""
    n_units, n_blocks = len(problem.starts) - 1, state.residual.shape[1]
    size = GRAPH_BLOCK_UNITS if n_blocks > 1 else n_units
    for index in rows:
        for block in range(n_blocks):
            n = min(size, n_units - block * size)
            start = block * size if step > 0 else block * size + n - 1
            _sender(problem)(problem, state, (index, 0, block, start, n), step)


def residual_sweep(send, problem, state, rows, units, queue):
    """As many updates of units as a sweep has, the largest received change first."""
    for index in rows:
        change, largest = units.change[index], 0.0
        for _ in change:
            i = change.argmax()
            if change[i] == 0:
                break
            _sender(problem)(problem, state, (index, 0, 0, i, 1), 1)
            largest = max(largest, state.residual[index, 0])
            change[i] = state.damping[index] * state.residual[index, 0]
            slots = np.arange(problem.starts[i], problem.starts[i + 1])
            receivers = problem.neighbours[slots]
            change[receivers] = np.maximum(change[receivers], state.changes[index, slots])
        state.residual[index, 0] = change.max() if largest < np.inf else largest
