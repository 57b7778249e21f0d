"""The log-pseudo-likelihood of a fully visible machine of categorical units, and its derivatives.

With the local fields eta_sia = h_ia + sum_j J_ij(a, x_sj) of state a of position i in row s, of
weight w_s, and the conditional probabilities p_sia = exp(eta_sia) / sum_b exp(eta_sib),

    P      = sum_s w_s sum_i ln p_{s i x_si}
    r_sia  = w_s (x_sia - p_sia),   dP/dh = sum_s r_s,   G_{jb, ia} = sum_s x_sjb r_sia

where G is the derivative by J_ij(a, b) of the fields of position i only. A position that is absent
from a row has x = 0 and r = 0.

*Blocks of positions.* The local fields of n positions, a divisor of `LANES`, are computed together:
state a of the i-th position of a block is at a * n + i, so that each vector of `LANES` fields has
the positions in the same lanes. States that a position does not have are padded by a field that is
very low. Couplings to a block are a table with a row for each state of all positions.

*Trees of rows.* The fields of a row are the fields of its parent in a spanning tree under Hamming
distance, less the table rows of states that only the parent has, plus the table rows of states that
only the row has. The gradient is the adjoint: from the leaves to the roots, residuals are added,
with the same signs, to these rows of the table of G, and to the residuals of the parent.
"""

import math
from typing import NamedTuple

import numpy as np

from fastmf._common.memory import aligned
from fastmf._jit.intrinsics import fetch_and_increment, row, widest_vectors
from fastmf._jit.kernel import kernel
from fastmf._outcomes import ABSENT
from fastmf._threads.workers import next_task, stopped
from fastmf.kernels.linear.product import set_to_zero
from fastmf.kernels.linear.rows import LANES, add_rows, add_to_rows, scale_to_sum, subtract_largest
from fastmf.special import exp, widen

# Field of states that a position does not have.
LOW_FIELD = -1e30


class PottsRows(NamedTuple):
    """Weighted rows of labels, each after its parent."""

    # uint8 (n_rows, n_columns): labels of the positions of all blocks; `ABSENT` for absent ones
    labels: np.ndarray
    # int64 (n_blocks + 1, 2): the first column of labels and the first field of each block, and the
    # numbers of columns and fields
    bounds: np.ndarray
    weights: np.ndarray  # (n_rows,)
    parents: np.ndarray  # int64 (n_rows,): -1 for roots
    # int64 (n_rows + 1, 2): bounds. changes[spans[s, 0]:spans[s, 1]] are the states that the parent
    # of row s has and row s has not, changes[spans[s, 1]:spans[s + 1, 0]] the states that row s has
    # and its parent has not
    spans: np.ndarray
    changes: np.ndarray  # int32 array: rows of the tables of couplings
    # int64 (n_forests + 1,): the first row of each forest, which consists of whole trees, and the
    # number of rows
    forests: np.ndarray


def workspaces(n_workers, forest_rows, width, dtype):
    """Return memory of some workers, for forests of at most this many rows."""
    return aligned((n_workers, LANES + forest_rows * width), dtype)


@kernel(mode="merged")
def _set_fields(rows, table, field, memory, first, last):
    """Compute the local fields of the rows of a forest, each from the fields of its parent."""
    width = field.shape[0]
    for s in range(first, last):
        parent = rows.parents[s]
        start = field if parent < 0 else row(memory, ((parent - first) * width,), width)
        out = row(memory, ((s - first) * width,), width)
        begin, middle, end = rows.spans[s, 0], rows.spans[s, 1], rows.spans[s + 1, 0]
        add_rows(start, table, rows.changes, begin, middle, end, out)


@kernel(mode="merged")
def _add_gradient(rows, residuals, table, field, first, last):
    """Add the gradient of a forest, from the residuals of its rows, which are overwritten."""
    width = field.shape[0]
    for t in range(last - first):
        s = last - 1 - t
        of_row = row(residuals, ((s - first) * width,), width)
        parent = rows.parents[s]
        target = field if parent < 0 else row(residuals, ((parent - first) * width,), width)
        begin, middle, end = rows.spans[s, 0], rows.spans[s, 1], rows.spans[s + 1, 0]
        add_to_rows(of_row, table, rows.changes, begin, middle, end, target)


@kernel(mode="merged")
def _centre(labels, fields, largest):
    """Subtract the largest local field of each position; return the sum of the observed states."""
    n, total = labels.shape[0], 0.0
    subtract_largest(fields, n, largest, LOW_FIELD)
    for i in range(n):
        if labels[i] != ABSENT:
            total += widen(fields[np.int64(labels[i]) * n + i])
    return total


@kernel(mode="merged")
def _to_residuals(labels, weight, exponentials, sums):
    """Replace exponentials of fields by residuals, and return the logarithm of their sums."""
    n, product, zero = labels.shape[0], 1.0, weight * 0
    scale_to_sum(exponentials, n, sums, -weight)
    for i in range(n):
        if labels[i] != ABSENT:
            product *= widen(sums[i])
            exponentials[np.int64(labels[i]) * n + i] += weight
        else:
            for c in range(i, exponentials.shape[0], n):
                exponentials[c] = zero
    return math.log(product)


@kernel(views=True)
def value_and_gradient(rows, couplings, field, workspaces, queue, gradient, field_gradient, values):
    """Compute the log-pseudo-likelihood of rows, and derivatives by the fields of each position."""
    widest_vectors()
    n_blocks, n_sources = values.shape[1], couplings.shape[0] // field.shape[0]
    worker = fetch_and_increment(row(queue, (1,), 1))
    sums = row(workspaces, (worker, 0), LANES)
    memory = row(workspaces, (worker, LANES), workspaces.shape[1] - LANES)
    block = next_task(queue)
    while block < n_blocks:
        column, start = rows.bounds[block, 0], rows.bounds[block, 1]
        n, width = rows.bounds[block + 1, 0] - column, rows.bounds[block + 1, 1] - start
        h, of_h = row(field, (start,), width), row(field_gradient, (start,), width)
        table = row(couplings, (n_sources * start,), n_sources * width)
        of_table = row(gradient, (n_sources * start,), n_sources * width)
        set_to_zero(of_h)
        set_to_zero(of_table)
        for g in range(rows.forests.shape[0] - 1):
            if stopped(queue):
                return
            first, last = rows.forests[g], rows.forests[g + 1]
            _set_fields(rows, table, h, memory, first, last)
            for s in range(first, last):
                labels = row(rows.labels, (s, column), n)
                fields = row(memory, ((s - first) * width,), width)
                values[s, block] = _centre(labels, fields, sums)
            for c in range((last - first) * width):
                memory[c] = exp(memory[c])
            for s in range(first, last):
                labels, weight = row(rows.labels, (s, column), n), rows.weights[s]
                fields = row(memory, ((s - first) * width,), width)
                values[s, block] -= _to_residuals(labels, weight, fields, sums)
                values[s, block] *= widen(weight)
            _add_gradient(rows, memory, of_table, of_h, first, last)
        block = next_task(queue)
