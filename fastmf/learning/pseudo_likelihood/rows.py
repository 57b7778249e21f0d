"""Distinct rows with the weights of their copies, units of sampling, and available cases.

The conditional probability of a unit needs its neighbours in the graph alone, so that

    sum_r w_r sum_i a_ri ln p(x_ri | neighbours of i in row r)

with a_ri = 1 where unit i and all its neighbours were seen in row r, and else 0, needs nothing that
is missing. Its score has mean zero if values are missing completely at random. Where all pairs of
units may be coupled, its rows are the complete ones.
"""

import numpy as np
from scipy import sparse


def distinct(labels, weights):
    """Return distinct rows of positive weight, their weights, and the place of each row."""
    present, members = np.flatnonzero(weights > 0), np.full(len(weights), -1)
    # Columns side by side are digits of one number, as far as it has 63 bits.
    low = int(labels.min(initial=0))
    base = int(labels.max(initial=1)) - low + 1
    width = int(62 / np.log2(base))
    keys = np.zeros((len(present), -(-labels.shape[1] // width)), np.int64)
    for j, column in enumerate(labels.T):
        key = keys[:, j // width]
        key *= base
        key += column[present] - low
    keys = keys.view(np.dtype((np.void, keys.strides[0])) if keys.shape[1] > 1 else keys.dtype)
    keys, inverse = np.unique(keys[:, 0], return_inverse=True)
    members[present], places = inverse, np.zeros(len(keys), int)
    places[inverse] = present
    return labels[places], np.bincount(inverse, weights[present]), members


def sampling(members, weights, clusters=None):
    """Units of independent sampling, as `CompositeLikelihood.score_covariance` takes them."""
    present = members >= 0
    members, share = members[present], (weights / weights.sum())[present]
    n = int(members.max(initial=-1)) + 1
    if clusters is None:
        return np.bincount(members, share**2, n)
    labels, cluster = np.unique(np.asarray(clusters)[present], return_inverse=True)
    return sparse.coo_array((share, (cluster, members)), shape=(len(labels), n)).tocsr()


def available(labels, edges=None):
    """The terms of the rows that need no missing value."""
    seen = labels >= 0
    if edges is None:
        return np.broadcast_to(seen.all(1, keepdims=True), seen.shape)
    terms = seen.copy()
    for i, j in edges:
        terms[:, i] &= seen[:, j]
        terms[:, j] &= seen[:, i]
    return terms


def target_labels(labels, edges):
    """Labels of available terms, and -1 for all other terms."""
    return np.where(available(labels, edges), labels, -1)
