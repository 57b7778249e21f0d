"""Rows in the order of minimum spanning trees under Hamming distance."""

import numpy as np

from fastmf._threads.workers import in_parallel, workers_for
from fastmf.kernels.pseudo_likelihood import hamming

# Rows of a forest, with trees of its own: the time of a tree grows with the square of their number,
# and fields of a forest stay in the cache.
FOREST_ROWS = 4096


def spanning_order(labels, n_threads=None):
    """An order of rows in which each follows a similar one, its parent."""
    n_rows = len(labels)
    codes = hamming.padded(labels.astype(np.int16) + 1)
    sizes = np.count_nonzero(labels >= 0, axis=1).astype(np.int64)
    order, parents = np.empty(n_rows, np.int64), np.empty(n_rows, np.int64)
    n_tasks = -(-n_rows // FOREST_ROWS)
    n_workers = workers_for(n_tasks, n_rows * min(n_rows, FOREST_ROWS), n_threads)
    queue, remaining = np.zeros(1, np.int64), np.empty((2, n_rows), np.int64)
    in_parallel(
        hamming.spanning_trees,
        (codes, sizes, FOREST_ROWS, queue, order, parents, remaining),
        n_workers,
    )
    place = np.empty(n_rows, np.int64)
    place[order] = np.arange(n_rows)
    above = parents[order]
    forests = np.append(np.arange(0, n_rows, FOREST_ROWS), n_rows)
    return order, np.where(above < 0, -1, place[above]), forests
