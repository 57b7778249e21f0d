"""Hamming distances between rows of labels, in NumPy."""

import numpy as np


def _distances(labels, i):
    """Count the columns in which the rows differ from row i."""
    return (labels != labels[i]).sum(1)


def count_similar(labels, repeats, most, queue, counts):
    """Count the repeated rows that differ from each row in at most `most` columns."""
    counts[0] += [(_distances(labels, i) <= most) @ repeats for i in range(len(labels))]


def spanning_trees(labels, sizes, forest_rows, queue, order, parents, left):
    """Find a minimum spanning forest of each block of consecutive rows (Prim)."""
    for begin in range(0, len(labels), forest_rows):
        forest = slice(begin, begin + forest_rows)
        costs = sizes[forest].copy()
        parents[forest] = -1
        outside = np.ones(len(costs), bool)
        for k in range(len(costs)):
            chosen = int(np.flatnonzero(outside)[costs[outside].argmin()])
            order[begin + k], outside[chosen] = begin + chosen, False
            new = 2 * _distances(labels[forest], chosen)
            nearer = outside & (new < costs)
            costs[nearer], parents[forest][nearer] = new[nearer], begin + chosen
