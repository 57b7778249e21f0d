"""Hamming distances between rows of labels: numbers of similar rows, and trees of similar rows.

Labels are bytes. Rows are padded to whole vectors with zeros, which are equal in all rows; a vector
of two rows is compared at once, and the bits of the result are counted.
"""

import numpy as np

from fastmf._jit.intrinsics import fetch_and_increment, row, smaller
from fastmf._jit.kernel import emitted, kernel
from fastmf._jit.lazily import ir, types
from fastmf._jit.vectors import VECTOR_BYTES, Vectors, integer, loop
from fastmf._threads.workers import next_task, stopped

# Rows of one task of a worker, and rows that they are compared with at a time: these stay in the
# second-level cache.
QUERY_ROWS, COMPARED_ROWS = 32, 256
# Columns after which a comparison ends if the rows are too different already.
_SEGMENT_BYTES = 4 * VECTOR_BYTES


def padded(labels):
    """Labels as rows of bytes of whole vectors: what these kernels take."""
    n_rows, n_columns = labels.shape
    rows = np.zeros((n_rows, -(-max(n_columns, 1) // VECTOR_BYTES) * VECTOR_BYTES), np.uint8)
    rows[:, :n_columns] = labels
    return rows


def n_different(one, i, other, j, first, last):
    """Number of bytes first, ..., last - 1 in which two rows differ; whole vectors."""
    return int(np.count_nonzero(one[i, first:last] != other[j, first:last]))


@emitted(n_different)
def _n_different(typing_context, one, i, other, j, first, last):
    def generate(context, builder, signature, values):
        vectors = Vectors(context, builder, types.uint8)
        starts = []
        for type_, k in ((one, 0), (other, 2)):
            array = vectors.array(type_, values[k])
            width = builder.extract_value(array.shape, 1)
            starts.append(builder.gep(array.data, [builder.mul(values[k + 1], width)]))

        def count(position, total):
            pair = [vectors.load(start, position) for start in starts]
            unequal = builder.icmp_unsigned("!=", *pair)
            n_here = builder.ctpop(builder.bitcast(unequal, ir.IntType(vectors.n_lanes)))
            if vectors.n_lanes < 64:
                n_here = builder.zext(n_here, ir.IntType(64))
            return [builder.add(*total, n_here)]

        step, zero = integer(vectors.n_lanes), integer(0)
        (total,) = loop(builder, *values[4:6], step, count, [zero])
        return total

    if one.layout != "C" or other.layout != "C":
        raise TypeError("n_different takes C-contiguous arrays")
    place = types.int64
    return types.int64(one, place, other, place, place, place), generate


@kernel(mode="merged")
def _are_similar(labels, i, j, most):
    """Whether two rows differ in at most this many columns."""
    n_bytes, n_unequal, first = labels.shape[1], np.int64(0), np.int64(0)
    while first < n_bytes and n_unequal <= most:
        last = smaller(first + _SEGMENT_BYTES, n_bytes)
        n_unequal += n_different(labels, i, labels, j, first, last)
        first = last
    return n_unequal <= most


@kernel(mode="merged")
def _compare_with_tile(labels, i, tile, most, counts):
    """Count the rows before row i in a tile that are similar, for both."""
    for j in range(tile, smaller(tile + COMPARED_ROWS, i)):
        if _are_similar(labels, i, j, most):
            counts[i] += 1
            counts[j] += 1


@kernel(views=True)
def count_similar(labels, most, queue, counts):
    """Numbers of rows that differ from each row in at most `most` columns, the row itself included.

    Each pair of rows is compared once, for both. The counts of the threads are to be added up.
    """
    n_rows = labels.shape[0]
    row_labels = row(counts, (fetch_and_increment(row(queue, (1,), 1)), 0), n_rows)
    begin = next_task(queue) * QUERY_ROWS
    while begin < n_rows:
        end = smaller(begin + QUERY_ROWS, n_rows)
        for tile in range(0, end, COMPARED_ROWS):
            if stopped(queue):
                return
            for i in range(begin, end):
                _compare_with_tile(labels, i, tile, most, row_labels)
        for i in range(begin, end):
            row_labels[i] += 1
        begin = next_task(queue) * QUERY_ROWS


@kernel(mode="merged")
def _visit(labels, chosen, rows, costs, parents, n_left):
    """Compare the remaining rows with a row that the tree has reached; return the nearest."""
    nearest = np.int64(0)
    for t in range(n_left):
        cost = 2 * n_different(labels, chosen, labels, rows[t], 0, labels.shape[1])
        if cost < costs[t]:
            costs[t] = cost
            parents[rows[t]] = chosen
        if costs[t] < costs[nearest]:
            nearest = t
    return nearest


@kernel(views=True)
def spanning_trees(labels, sizes, forest_rows, queue, order, parents, left):
    """A minimum spanning forest of each block of consecutive rows, by Prim's algorithm.

    From row to row costs two for each column that differs, from nothing to a row `sizes`.
    """
    n_rows = labels.shape[0]
    begin = next_task(queue) * forest_rows
    while begin < n_rows:
        n = smaller(forest_rows, n_rows - begin)
        rows, costs = row(left, (0, begin), n), row(left, (1, begin), n)
        nearest = np.int64(0)
        for k in range(n):
            rows[k], costs[k], parents[begin + k] = begin + k, sizes[begin + k], -1
            if costs[k] < costs[nearest]:
                nearest = k
        for k in range(n):
            if stopped(queue):
                return
            chosen = rows[nearest]
            order[begin + k] = chosen
            # The rows that are left are the first n - k - 1.
            n_left = n - k - 1
            rows[nearest], costs[nearest] = rows[n_left], costs[n_left]
            nearest = _visit(labels, chosen, rows, costs, parents, n_left)
        begin = next_task(queue) * forest_rows
