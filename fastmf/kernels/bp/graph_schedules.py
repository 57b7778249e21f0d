"""Schedules of belief propagation on graphs: which units send their messages when.

Parallel and sequential sweeps differ in what they read: the messages of the last sweep, by blocks
of units that threads share, or the newest ones, unit after unit. The residual schedule sends the
messages of the unit first whose received messages have changed most (Elidan, McGraw & Koller 2006).
"""

from typing import NamedTuple

import numpy as np

from fastmf._jit.argument_types import Float64, Int32
from fastmf._jit.intrinsics import fetch_and_increment, larger, row, smaller
from fastmf._jit.kernel import call, kernel
from fastmf._threads.interrupts import next_task, stopped
from fastmf.kernels.bp.graph_arguments import GRAPH_BLOCK_UNITS


class UnitQueue(NamedTuple):
    """Units of each row in the order of the changes they have received: binary heaps.

    Parameters
    ----------
    heap, position : int32 array of shape (n_rows, n_units)
        Units, the largest change first, and where each unit is.
    change : float64 array of shape (n_rows, n_units)
    """

    heap: Int32[2]
    position: Int32[2]
    change: Float64[2]


@kernel(views=True)
def graph_sweep(send, problem, state, rows, step, queue):
    """One sweep of some rows.

    Parameters
    ----------
    send : int
        Address of the function that sends the messages of some units.
    problem : BinaryProblem or StatesProblem
    state : GraphState
    rows : int64 array
    step : int
        -1 to begin with the last unit.
    queue : int64 array of shape (2,)
        Next block of a row, next worker.
    """
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


@kernel(mode="merged")
def _place(heap, position, at, unit):
    heap[at] = unit
    position[unit] = at


@kernel(mode="inner")
def _raise(heap, position, change, unit):
    """Move a unit forward whose change has grown."""
    at = np.int64(position[unit])
    while at > 0:
        above = (at - 1) // 2
        if change[heap[above]] >= change[unit]:
            break
        _place(heap, position, at, heap[above])
        at = above
    _place(heap, position, at, unit)


@kernel(mode="inner")
def _lower(heap, position, change, unit):
    """Move a unit back whose change is smaller than it was."""
    at, n = np.int64(position[unit]), heap.shape[0]
    while 2 * at + 1 < n:
        below = 2 * at + 1
        if below + 1 < n and change[heap[below + 1]] > change[heap[below]]:
            below += 1
        if change[heap[below]] <= change[unit]:
            break
        _place(heap, position, at, heap[below])
        at = below
    _place(heap, position, at, unit)


@kernel(mode="inner")
def _pass_on(problem, changes, i, heap, position, change):
    """Move the receivers of the messages of a unit forward by how these have changed."""
    for k in range(problem.starts[i], problem.starts[i + 1]):
        j = np.int64(problem.neighbours[k])
        if changes[k] > change[j]:
            change[j] = changes[k]
            _raise(heap, position, change, j)


@kernel(views=True)
def residual_sweep(send, problem, state, rows, units, queue):
    """As many updates of units as a sweep has, the largest received change first.

    Parameters
    ----------
    send, problem, state, rows
        As for `graph_sweep`, with one block; `old` and `new` are the same.
    units : UnitQueue
    queue : int64 array of shape (2,)
        Next row, next worker.
    """
    n = problem.starts.shape[0] - 1
    worker = fetch_and_increment(row(queue, (1,), 1))
    task = next_task(queue)
    while task < rows.shape[0]:
        index, largest = rows[task], 0.0
        heap, position = row(units.heap, (index, 0), n), row(units.position, (index, 0), n)
        change = row(units.change, (index, 0), n)
        changes = row(state.changes, (index, 0), state.changes.shape[1])
        for done in range(n):
            i = np.int64(heap[0])
            if change[i] == 0 or (done % GRAPH_BLOCK_UNITS == 0 and stopped(queue)):
                break
            call(send, (problem, state, (index, worker, np.int64(0), i, np.int64(1)), 1))
            largest = larger(largest, state.residual[index, 0])
            change[i] = state.damping[index] * state.residual[index, 0]
            _lower(heap, position, change, i)
            _pass_on(problem, changes, i, heap, position, change)
        state.residual[index, 0] = change[heap[0]] if largest < np.inf else largest
        task = next_task(queue)
