"""The log-pseudo-likelihood of a fully visible machine of categorical units, and its derivatives.

With the local fields eta_sia = h_ia + sum_j J_ij(a, x_sj) of state a of position i in row s, of
weight w_s, and the conditional probabilities p_sia = exp(eta_sia) / sum_b exp(eta_sib),

    P      = sum_s w_s sum_i ln p_{s i x_si}
    r_sia  = w_s (x_sia - p_sia),   dP/dh = sum_s r_s,   G_{jb, ia} = sum_s x_sjb r_sia

where G is the derivative by J_ij(a, b) through the fields of position i only. A position that is
absent from a row has x = 0 and r = 0.

*Blocks of positions.* The local fields of `POSITIONS` positions are computed together: state a of
the i-th position of a block is at a * POSITIONS + i, so that inner loops have a constant length and
vectorise. Positions with fewer states are padded by states with a very low field. Couplings to a
block are a table with a row for each state of all positions.

*Trees of rows.* The fields of a row are the fields of a similar row, its parent in a spanning tree
under Hamming distance, plus the differences of the rows of the table for the states that differ.
The gradient is the adjoint: from the leaves to the roots, residuals are added (with their signs) to
the rows of the table of G for the states that differ, and to the residuals of the parent.
"""

import math
from typing import NamedTuple

import numpy as np

from fastmf._common.memory import aligned
from fastmf._jit.intrinsics import fetch_and_increment, larger, row, smaller
from fastmf._jit.kernel import kernel
from fastmf._outcomes import ABSENT
from fastmf._threads.workers import next_task, stopped
from fastmf.kernels.linear.product import copy, set_to_zero
from fastmf.special import exp, widen

# Number of positions of a block: more of them need more of the cache, fewer need more passes.
POSITIONS = 8
# Field of padding states.
LOW_FIELD = -1e30


class PottsRows(NamedTuple):
    """Weighted rows of labels, each after its parent."""

    # uint8 (n_rows, n_blocks * POSITIONS): `ABSENT` for absent positions and, at the end, for
    # padding
    labels: np.ndarray
    weights: np.ndarray  # (n_rows,)
    parents: np.ndarray  # int64 (n_rows,): -1 for roots
    # int64 (n_rows + 1, 2): bounds: changes[spans[s, 0]:spans[s, 1]] are the states of the parent
    # that row s does not have, and changes[spans[s, 1]:spans[s + 1, 0]] the states of row s that
    # its parent does not have
    spans: np.ndarray
    changes: np.ndarray  # int32 array: rows of the tables of couplings
    # int64 (n_forests + 1,): the first row of each forest, a number of whole trees, and the number
    # of rows
    forests: np.ndarray


def workspaces(n_workers, forest_rows, width, dtype):
    """Allocate memory of some threads, for forests of at most `forest_rows` rows."""
    return aligned((n_workers, 2 * POSITIONS + forest_rows * width), dtype)


@kernel(mode="merged")
def _set_fields(rows, table, field, memory, first, last):
    """Compute local fields of the rows of a forest, each from the fields of its parent."""
    width = table.shape[1]
    for s in range(first, last):
        parent = rows.parents[s]
        start = field if parent < 0 else row(memory, ((parent - first) * width,), width)
        out = row(memory, ((s - first) * width,), width)
        copy(start, out)
        begin, middle, end = rows.spans[s, 0], rows.spans[s, 1], rows.spans[s + 1, 0]
        # Most removed states are replaced by another one: change both in one pass over `out`.
        n_replaced = smaller(middle - begin, end - middle)
        for k in range(n_replaced):
            less = row(table, (rows.changes[begin + k], 0), width)
            more = row(table, (rows.changes[middle + k], 0), width)
            for c in range(width):
                out[c] += more[c] - less[c]
        for k in range(begin + n_replaced, middle):
            less = row(table, (rows.changes[k], 0), width)
            for c in range(width):
                out[c] -= less[c]
        for k in range(middle + n_replaced, end):
            more = row(table, (rows.changes[k], 0), width)
            for c in range(width):
                out[c] += more[c]


@kernel(mode="merged")
def _add_gradient(rows, residuals, table, field, first, last):
    """Add the gradient from the residuals of the rows of a forest, which are changed."""
    width = table.shape[1]
    for t in range(last - first):
        s = last - 1 - t
        of_row = row(residuals, ((s - first) * width,), width)
        for k in range(rows.spans[s, 0], rows.spans[s, 1]):
            less = row(table, (rows.changes[k], 0), width)
            for c in range(width):
                less[c] -= of_row[c]
        for k in range(rows.spans[s, 1], rows.spans[s + 1, 0]):
            more = row(table, (rows.changes[k], 0), width)
            for c in range(width):
                more[c] += of_row[c]
        parent = rows.parents[s]
        target = field if parent < 0 else row(residuals, ((parent - first) * width,), width)
        for c in range(width):
            target[c] += of_row[c]


@kernel(mode="merged")
def _exponentiate(fields, largest, sums):
    """Replace fields by exponentials of their differences from the largest of each position."""
    n_states = fields.shape[0] // POSITIONS
    for i in range(POSITIONS):
        largest[i], sums[i] = fields[i], fields.dtype.type(0)
    for a in range(1, n_states):
        of_state = row(fields, (a * POSITIONS,), POSITIONS)
        for i in range(POSITIONS):
            largest[i] = larger(largest[i], of_state[i])
    for a in range(n_states):
        of_state = row(fields, (a * POSITIONS,), POSITIONS)
        for i in range(POSITIONS):
            of_state[i] -= largest[i]
    for c in range(fields.shape[0]):
        fields[c] = exp(fields[c])
    for a in range(n_states):
        of_state = row(fields, (a * POSITIONS,), POSITIONS)
        for i in range(POSITIONS):
            sums[i] += of_state[i]


@kernel(mode="merged")
def _scale(exponentials, labels, scale, sums):
    """Multiply probabilities of present positions by a scale, and of absent ones by zero."""
    for i in range(POSITIONS):
        sums[i] = scale / sums[i] if labels[i] != ABSENT else sums.dtype.type(0)
    for a in range(exponentials.shape[0] // POSITIONS):
        of_state = row(exponentials, (a * POSITIONS,), POSITIONS)
        for i in range(POSITIONS):
            of_state[i] *= sums[i]


@kernel(mode="merged")
def _to_residuals(labels, weight, fields, largest, sums):
    """Replace local fields of a row by residuals; return its log-pseudo-likelihood."""
    total, product = 0.0, 1.0
    for i in range(POSITIONS):
        if labels[i] != ABSENT:
            total += widen(fields[np.int64(labels[i]) * POSITIONS + i])
    _exponentiate(fields, largest, sums)
    for i in range(POSITIONS):
        if labels[i] != ABSENT:
            total -= widen(largest[i])
            product *= widen(sums[i])
    _scale(fields, labels, -weight, sums)
    for i in range(POSITIONS):
        if labels[i] != ABSENT:
            fields[np.int64(labels[i]) * POSITIONS + i] += weight
    return widen(weight) * (total - math.log(product))


@kernel(views=True)
def value_and_gradient(rows, couplings, field, workspaces, queue, gradient, field_gradient, values):
    """Compute the log-pseudo-likelihood of rows, and its derivatives by couplings and fields."""
    n_blocks, n_sources, width = couplings.shape
    worker = fetch_and_increment(row(queue, (1,), 1))
    largest = row(workspaces, (worker, 0), POSITIONS)
    sums = row(workspaces, (worker, POSITIONS), POSITIONS)
    memory = row(workspaces, (worker, 2 * POSITIONS), workspaces.shape[1] - 2 * POSITIONS)
    block = next_task(queue)
    while block < n_blocks:
        h, of_h = row(field, (block, 0), width), row(field_gradient, (block, 0), width)
        set_to_zero(of_h)
        for source in range(n_sources):
            set_to_zero(row(gradient, (block, source, 0), width))
        for g in range(rows.forests.shape[0] - 1):
            if stopped(queue):
                return
            first, last = rows.forests[g], rows.forests[g + 1]
            _set_fields(rows, couplings[block], h, memory, first, last)
            for s in range(first, last):
                labels = row(rows.labels, (s, block * POSITIONS), POSITIONS)
                fields = row(memory, ((s - first) * width,), width)
                values[s, block] = _to_residuals(labels, rows.weights[s], fields, largest, sums)
            _add_gradient(rows, memory, gradient[block], of_h, first, last)
        block = next_task(queue)


@kernel(views=True)
def gather_gradient(tables, vectors, l2, scale, places, queue, tiles):
    """Compute derivatives by tiles of centred couplings from the tables of both sides.

    A tile of blocks p, r is scale * (G_pr + G_rp' - f_r g_p' - g_r f_p' - l2 J_pr), where G and J
    are tables of the gradient and of couplings, f the frequencies of states, by which couplings are
    centred, and g the gradient by the field.
    """
    width = vectors.shape[2]
    size = width * width
    l2 = tables.dtype.type(l2)
    t = next_task(queue)
    while t < tiles.shape[0]:
        p, r = places[t, 0], places[t, 1]
        of_row, factors = row(tiles, (t, 0), size), row(scale, (t, 0), size)
        for a in range(width):
            of_source = row(tables, (1, r, p, a * width), width)
            for b in range(width):
                of_row[b * width + a] = of_source[b]
        f, g = row(vectors, (0, p, 0), width), row(vectors, (1, p, 0), width)
        for b in range(width):
            f_b, g_b = vectors[0, r, b], vectors[1, r, b]
            gradient = row(tables, (1, p, r, b * width), width)
            J = row(tables, (0, p, r, b * width), width)
            factor, out = row(factors, (b * width,), width), row(of_row, (b * width,), width)
            for a in range(width):
                total = out[a] + gradient[a] - f_b * g[a] - g_b * f[a] - l2 * J[a]
                out[a] = factor[a] * total
        t = next_task(queue)
