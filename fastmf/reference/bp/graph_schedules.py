"""NumPy twin of `kernels.bp.graph_schedules`."""

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
