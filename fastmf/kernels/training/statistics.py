"""Conditional moments of batches of rows.

Not by BLAS, so that all of a training step runs in one pool of threads: two pools that take turns
on the same cores cost each other more than the products themselves.
"""

import numpy as np

from fastmf._common.memory import Scratch
from fastmf._jit.intrinsics import fetch_and_increment, row, smaller
from fastmf._jit.kernel import kernel
from fastmf._threads.interrupts import next_task
from fastmf.kernels.linear.copies import copy
from fastmf.kernels.linear.product import TASK_ROWS, product
from fastmf.kernels.linear.work import new_work
from fastmf.priors._compiled import tilted_moments


def work_of(packed, n_workers=1, scratch=None):
    """Work memory for a number of threads."""
    n_panels, _, width = packed.shape
    shape = n_workers, TASK_ROWS + 1, n_panels * width
    memory = (scratch or Scratch()).take("work", shape, packed.dtype)
    memory[:, TASK_ROWS] = 0
    return new_work(memory)


@kernel(views=True)
def conditional_moments(units, address, couplings, states, work, b, mean, var):
    """Moments of the units of one layer, given the states of the other."""
    n_rows, n_units = mean.shape
    scratch, queue = work
    w, start = fetch_and_increment(row(queue, (1,), 1)), np.int64(0)
    if w >= scratch.shape[0]:
        return
    products, zero = scratch[w, :TASK_ROWS], row(scratch, (w, TASK_ROWS, 0), n_units)
    first = next_task(queue) * TASK_ROWS
    while first < n_rows:
        n_here = smaller(TASK_ROWS, n_rows - first)
        product(address, states[first:], n_here, start, couplings, products, n_units)
        for r in range(n_here):
            b_r = row(b, (first + r, 0), n_units)
            copy(row(products, (r, 0), n_units), b_r)
            mean_r, var_r = row(mean, (first + r, 0), n_units), row(var, (first + r, 0), n_units)
            tilted_moments(units, start, b_r, zero, mean_r, var_r)
        first = next_task(queue) * TASK_ROWS
