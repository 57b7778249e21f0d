"""Schedules of belief propagation on graphs: which units send their messages when.

Parallel and sequential sweeps differ in what they read: the messages of the last sweep, by blocks
of units that threads share, or the newest ones, unit after unit.
"""

from fastmf._jit.intrinsics import fetch_and_increment, row, smaller
from fastmf._jit.kernel import call, kernel
from fastmf._threads.interrupts import next_task
from fastmf.kernels.bp.graph_arguments import GRAPH_BLOCK_UNITS


@kernel(views=True)
def graph_sweep(send, problem, state, rows, step, queue):
    """One sweep of some rows."""
    n_units, n_blocks = problem.starts.shape[0] - 1, state.residual.shape[1]
    size = GRAPH_BLOCK_UNITS if n_blocks > 1 else n_units
    worker = fetch_and_increment(row(queue, (1,), 1))
    task = next_task(queue)
    while task < rows.shape[0] * n_blocks:
        index, block = rows[task // n_blocks], task % n_blocks
        first = block * size
        n = smaller(size, n_units - first)
        start = first if step > 0 else first + n - 1
        call(send, (problem, state, (index, worker, block, start, n), step))
        task = next_task(queue)
