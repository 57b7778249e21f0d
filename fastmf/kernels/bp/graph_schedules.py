"""Sweeps of belief propagation on graphs: rows are shared between threads."""

from fastmf._jit.intrinsics import fetch_and_increment, row
from fastmf._jit.kernel import call, kernel
from fastmf._threads.interrupts import next_task


@kernel(views=True)
def graph_sweep(send, problem, state, rows, step, queue):
    """One sweep of some rows, unit after unit, forwards or backwards."""
    worker = fetch_and_increment(row(queue, (1,), 1))
    k = next_task(queue)
    while k < rows.shape[0]:
        call(send, (problem, state, (rows[k], worker), step))
        k = next_task(queue)
