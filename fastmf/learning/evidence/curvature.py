"""Curvature of the log-evidence by the hyper-parameters of the prior, at fixed cavities.

By Louis's identity (1982) the information on hyper-parameters is the information of the complete
data minus the variance of the complete-data score under the posterior. With z_i = 1 if coefficient
w_i is not zero, the scores of log-odds and ln slab are z_i - p, u_i = z_i (w_i^2 / slab - 1) / 2.
Blocks and single units are treated as independent under the posterior; the covariance of features
in a block is estimated from their probabilities of being the only non-zero feature of the block.

A feature on which the data have no information contributes p (1 - p) - p (1 - p) = 0. Without the
second term, which counts all features, steps towards a maximum would be several times too short.
"""

import numpy as np

from fastmf.special import sigmoid


def evidence_curvature(hyperparameters, result, groups, n_groups):
    """Compute the curvature of minus the log-evidence by ln slab variance and log-odds."""
    n, precision = len(groups), 1 / hyperparameters.slab_variance
    included = result.inclusion_probability[:n]
    positive = np.maximum(included, np.finfo(float).tiny)
    # Second and fourth moments of a non-zero coefficient, relative to the slab variance.
    square = precision * (result.mean[:n] ** 2 + result.var[:n]) / positive
    fourth = 3 * square**2 - 2 * precision**2 * (result.mean[:n] / positive) ** 4
    by_slab = included * (square - 1) / 2
    slab_curvature = included * (4 * square - fourth - 1) / 4 + by_slab**2
    curvature = np.zeros((1 + n_groups, 1 + n_groups))
    curvature[0, 0] = slab_curvature.sum()
    if n_groups:
        p = sigmoid(hyperparameters.log_odds)[groups]
        odds_curvature = p * (1 - p) - included * (1 - included)
        curvature[0, 1:] = -np.bincount(groups, (1 - included) * by_slab, n_groups)
        curvature[1:, 1:] = np.diag(np.bincount(groups, odds_curvature, n_groups))
        curvature[1:, 0] = curvature[0, 1:]
    if result.block_sites:
        units, starts, missing = _exclusive(result, included)
        scores = np.zeros((1 + n_groups, len(units)))
        scores[0] = by_slab[units]
        if n_groups:
            scores[1 + groups[units], np.arange(len(units))] = included[units]
        totals = np.add.reduceat(scores, starts, axis=1)
        missing_of_units = np.repeat(missing, np.diff(np.append(starts, len(units))))
        curvature += (missing * totals) @ totals.T - (missing_of_units * scores) @ scores.T
    return curvature


def _exclusive(result, included):
    """Return the features of all blocks, the start of each block, and missing shares of pairs.

    The missing share is 0 for independent features, and 1 if they exclude each other.
    """
    members = [units for units, _ in result.block_sites]
    units = np.concatenate(members)
    starts = np.cumsum([0, *map(len, members[:-1])])
    probability, sole = included[units], result.sole_probability[units]
    total, squares, sole = (
        np.add.reduceat(v, starts) for v in (probability, probability * probability, sole)
    )
    pairs = total**2 - squares
    # Expected number of features in patterns with several features, and of their other features.
    several = total - sole
    n_further = np.maximum(1.0, several / np.maximum(1 - sole, 1e-300) - 1)
    share = several * n_further / np.where(pairs > 0, pairs, 1.0)
    return units, starts, np.where(pairs > 0, 1 - np.clip(share, 0, 1), 0.0)
