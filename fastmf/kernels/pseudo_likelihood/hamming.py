"""Hamming distances between rows of labels: numbers of similar rows, and trees of similar rows.

Labels are bytes. Rows are padded to whole segments with zeros, which are equal in all rows. Within
a segment differences are counted in a byte, so that many counts fit in a vector.
"""

import numpy as np

from fastmf._jit.intrinsics import fetch_and_increment, row, smaller
from fastmf._jit.kernel import kernel
from fastmf._threads.workers import next_task, stopped

# Rows of one task of a worker, and rows that they are compared with at a time: these stay in the
# second-level cache.
QUERY_ROWS, COMPARED_ROWS = 32, 256
# Columns after which a comparison ends if the rows already differ too much: at most 255.
SEGMENT = 128


def padded(labels):
    """Return labels as rows of bytes that are padded to whole segments."""
    n_rows, n_columns = labels.shape
    rows = np.zeros((n_rows, -(-max(n_columns, 1) // SEGMENT) * SEGMENT), np.uint8)
    rows[:, :n_columns] = labels
    return rows


@kernel(mode="merged")
def _n_different(labels, i, j, most):
    """Count the columns in which two rows differ, until the count exceeds `most`."""
    n_different = np.int64(0)
    for first in range(0, labels.shape[1], SEGMENT):
        one, other = row(labels, (i, first), SEGMENT), row(labels, (j, first), SEGMENT)
        in_segment = np.uint8(0)
        for c in range(SEGMENT):
            in_segment = np.uint8(in_segment + np.uint8(one[c] != other[c]))
        n_different += np.int64(in_segment)
        if n_different > most:
            break
    return n_different


@kernel(mode="merged")
def _compare_with_tile(labels, repeats, i, tile, most, counts):
    """Compare row i with the rows before it in a tile, and count similar pairs for both rows."""
    for j in range(tile, smaller(tile + COMPARED_ROWS, i)):
        if _n_different(labels, i, j, most) <= most:
            counts[i] += repeats[j]
            counts[j] += repeats[i]


@kernel(views=True)
def count_similar(labels, repeats, most, queue, counts):
    """Count the repeated rows that differ from each row in at most `most` columns.

    Each pair of rows is compared once. The caller must add up the counts of the threads.
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
                _compare_with_tile(labels, repeats, i, tile, most, row_labels)
        for i in range(begin, end):
            row_labels[i] += repeats[i]
        begin = next_task(queue) * QUERY_ROWS


@kernel(mode="merged")
def _visit(labels, chosen, rows, costs, parents, n_left):
    """Compare the remaining rows with a row that the tree has reached; return the nearest."""
    nearest = np.int64(0)
    for t in range(n_left):
        cost = 2 * _n_different(labels, chosen, rows[t], labels.shape[1])
        if cost < costs[t]:
            costs[t] = cost
            parents[rows[t]] = chosen
        if costs[t] < costs[nearest]:
            nearest = t
    return nearest


@kernel(views=True)
def spanning_trees(labels, sizes, forest_rows, queue, order, parents, left):
    """Find a minimum spanning forest of each block of consecutive rows, by Prim's algorithm.

    An edge costs two for each column in which its rows differ, and a root its entry of `sizes`.
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
            # The first n - k - 1 rows remain.
            n_left = n - k - 1
            rows[nearest], costs[nearest] = rows[n_left], costs[n_left]
            nearest = _visit(labels, chosen, rows, costs, parents, n_left)
        begin = next_task(queue) * forest_rows
