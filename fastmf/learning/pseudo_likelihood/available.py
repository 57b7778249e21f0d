"""Available cases: terms of a composite likelihood whose values were all seen.

The conditional probability of a unit needs its neighbours in the graph alone, so that

    sum_r w_r sum_i a_ri ln p(x_ri | neighbours of i in row r)

with a_ri = 1 where unit i and all its neighbours were seen in row r, and else 0, needs nothing that
is missing. Its score has mean zero if values are missing completely at random. Where all pairs of
units may be coupled, its rows are the complete ones.
"""

import numpy as np


def available(labels, edges=None):
    """Which terms of which rows need no missing value."""
    seen = labels >= 0
    if edges is None:
        return np.repeat(seen.all(1, keepdims=True), seen.shape[1], axis=1)
    found = seen.copy()
    for i, j in edges:
        found[:, i] &= seen[:, j]
        found[:, j] &= seen[:, i]
    return found


def target_labels(labels, edges):
    """Labels of available terms, and -1 for all other terms."""
    return np.where(available(labels, edges), labels, -1)
