"""Distinct rows with the weights of their copies, and what of them was sampled independently."""

import numpy as np
from scipy import sparse


def distinct(labels, weights):
    """Distinct rows with the sum of their weights; rows without weight are left out."""
    kept, members = weights > 0, np.full(len(weights), -1)
    labels, weights = np.ascontiguousarray(labels[kept]), weights[kept]
    whole = labels.view(np.dtype((np.void, labels.dtype.itemsize * labels.shape[1])))[:, 0]
    _, first, inverse = np.unique(whole, return_index=True, return_inverse=True)
    if len(first) == len(labels):
        members[kept] = np.arange(len(labels))
        return labels, weights, members
    members[kept] = inverse.reshape(-1)
    return labels[first], np.bincount(members[kept], weights, len(first)), members


def sampling(members, weights, clusters=None):
    """Units of independent sampling, as `CompositeLikelihood.score_covariance` takes them."""
    kept = members >= 0
    members, share = members[kept], (weights / weights.sum())[kept]
    n = int(members.max(initial=-1)) + 1
    if clusters is None:
        return np.bincount(members, share**2, n)
    labels, cluster = np.unique(np.asarray(clusters)[kept], return_inverse=True)
    return sparse.coo_array((share, (cluster, members)), shape=(len(labels), n)).tocsr()
