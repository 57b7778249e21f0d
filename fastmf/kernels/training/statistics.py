"""Kernels of learning: conditional moments of batches of rows, and sums of products of units.

Not by BLAS, so that all of a training step runs in one pool of threads: two pools that take turns
on the same cores cost each other more than the products themselves.
"""

from typing import NamedTuple

import numpy as np

from fastmf._common.memory import Scratch
from fastmf._jit.intrinsics import fetch_and_increment, row, smaller
from fastmf._jit.kernel import kernel
from fastmf._threads.interrupts import next_task
from fastmf.kernels.linear.copies import copy, set_to_zero
from fastmf.kernels.linear.product import TASK_ROWS, panel_width, product
from fastmf.kernels.linear.work import new_work
from fastmf.priors._compiled import tilted_moments


def work_of(packed, n_workers=1, scratch=None):
    """Work memory of `conditional_moments` for a number of threads."""
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


class Pairs(NamedTuple):
    """Products of units of two layers whose sum over rows is a gradient by their couplings."""

    n_second: int  # leading rows, whose products are multiplied by the couplings
    lefts: np.ndarray  # (n_rows, n_left)
    rights: np.ndarray  # (n_panels, n_rows, panel_width): packed, times the weights of the rows
    added: np.ndarray  # (n_left, n_right): a gradient to add; or (0, 0)


def pairs_work(shape, dtype, n_workers=1, scratch=None, name="sums"):
    """Work memory of `sum_of_pairs` for couplings of a shape."""
    width = panel_width(dtype)
    shape = n_workers, 2, width, -(-shape[1] // width) * width
    return new_work((scratch or Scratch()).take(name, shape, dtype))


@kernel(mode="merged")
def add_pairs(address, pairs, weights, first, n_units, memory):
    """Set rows of `memory[0]` to the gradient by the couplings of some units, given by `Pairs`."""
    (n_second, lefts, rights, added), (sums, products) = pairs, (memory[0], memory[1])
    n, start, units = weights.shape[1], np.int64(0), slice(first, first + n_units)
    if n_second < lefts.shape[0]:
        of_rows, packed = lefts[n_second:, units].T, rights[:, n_second:]
        product(address, of_rows, n_units, start, packed, sums, n)
    else:
        for r in range(n_units):
            set_to_zero(row(sums, (r, 0), n))
    if n_second > 0:
        of_rows, packed = lefts[:n_second, units].T, rights[:, :n_second]
        product(address, of_rows, n_units, start, packed, products, n)
        for r in range(n_units):
            w, p = row(weights, (first + r, 0), n), row(products, (r, 0), n)
            total = row(sums, (r, 0), n)
            for j in range(n):
                total[j] += w[j] * p[j]
    if added.shape[0] > 0:
        for r in range(n_units):
            total, more = row(sums, (r, 0), n), row(added, (first + r, 0), n)
            for j in range(n):
                total[j] += more[j]


@kernel(views=True)
def sum_of_pairs(address, pairs, weights, work, out):
    """Compute the gradient by the couplings that `Pairs` have."""
    (scratch, queue), (n_left, n) = work, weights.shape
    w = fetch_and_increment(row(queue, (1,), 1))
    if w >= scratch.shape[0]:
        return
    memory, width = scratch[w], scratch.shape[2]
    first = next_task(queue) * width
    while first < n_left:
        n_units = smaller(width, n_left - first)
        add_pairs(address, pairs, weights, first, n_units, memory)
        for r in range(n_units):
            copy(row(memory, (0, r, 0), n), row(out, (first + r, 0), n))
        first = next_task(queue) * width
