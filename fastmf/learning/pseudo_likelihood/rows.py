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
    present, members = weights > 0, np.full(len(weights), -1)
    labels, weights = np.ascontiguousarray(labels[present]), weights[present]
    # Columns side by side are digits of one number, as far as it has 63 bits.
    low = labels.min(initial=0)
    base = int(labels.max(initial=1) - low) + 1
    width = int(62 / np.log2(base))
    parts = [labels[:, i : i + width] for i in range(0, labels.shape[1], width)]
    keys = np.stack([(part - low) @ base ** np.arange(part.shape[1]) for part in parts], axis=1)
    keys = keys.view(np.dtype((np.void, 8 * len(parts))) if len(parts) > 1 else keys.dtype)[:, 0]
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    if len(first) == len(labels):
        members[present] = np.arange(len(labels))
        return labels, weights, members
    members[present] = inverse.reshape(-1)
    return labels[first], np.bincount(members[present], weights, len(first)), members


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
