"""The curvature of the log-evidence by the hyper-parameters of the prior, with the cavities held.

By Louis's identity (1982) the information on hyper-parameters equals the information of the
complete data, less the variance of their score under the posterior. With z_i = 1 where coefficient
w_i is not zero, the scores of log-odds and ln slab are z_i - p, u_i = z_i (w_i^2 / slab - 1) / 2.
Posteriors of blocks and of single units are taken for independent; features of a block exclude each
other, as far as the probabilities of being the only one say so.

A feature that the data do not inform adds p (1 - p) - p (1 - p) = 0: the information of complete
data alone, which counts all features, makes steps towards a maximum several times too short.
"""

import numpy as np

from fastmf.special import sigmoid


def evidence_curvature(hyperparameters, result, groups, n_groups):
    """Curvatures of minus the log-evidence by ln slab variance and log-odds, at a fixed point."""
    n, precision = len(groups), 1 / hyperparameters.slab_variance
    included = result.inclusion_probability[:n]
    positive = np.maximum(included, np.finfo(float).tiny)
    # Mean square of a coefficient that is not zero, in slab variances, and of its square.
    square = precision * (result.mean[:n] ** 2 + result.var[:n]) / positive
    fourth = 3 * square**2 - 2 * precision**2 * (result.mean[:n] / positive) ** 4
    by_slab = included * (square - 1) / 2
    of_slab = included * (4 * square - fourth - 1) / 4 + by_slab**2
    curvature = np.zeros((1 + n_groups, 1 + n_groups))
    curvature[0, 0] = of_slab.sum()
    if n_groups:
        p = sigmoid(hyperparameters.log_odds)[groups]
        of_odds = p * (1 - p) - included * (1 - included)
        curvature[0, 1:] = -np.bincount(groups, (1 - included) * by_slab, n_groups)
        curvature[1:, 1:] = np.diag(np.bincount(groups, of_odds, n_groups))
        curvature[1:, 0] = curvature[0, 1:]
    if result.block_sites:
        units, starts, missing = _exclusive(result, included)
        scores = np.zeros((1 + n_groups, len(units)))
        scores[0] = by_slab[units]
        if n_groups:
            scores[1 + groups[units], np.arange(len(units))] = included[units]
        totals = np.add.reduceat(scores, starts, axis=1)
        of_units = np.repeat(missing, np.diff(np.append(starts, len(units))))
        curvature += (missing * totals) @ totals.T - (of_units * scores) @ scores.T
    return curvature


def _exclusive(result, included):
    """The features of all blocks, the first of each, and which part of their pairs is missing.

    That is 0 where they are independent.
    """
    members = [units for units, _ in result.block_sites]
    units = np.concatenate(members)
    starts = np.cumsum([0, *map(len, members[:-1])])
    probability, alone = included[units], result.sole_probability[units]
    total, squares, alone = (
        np.add.reduceat(v, starts) for v in (probability, probability * probability, alone)
    )
    pairs = total**2 - squares
    # Features of patterns of several, and how many those have.
    several = total - alone
    n_others = np.maximum(1.0, several / np.maximum(1 - alone, 1e-300) - 1)
    share = several * n_others / np.where(pairs > 0, pairs, 1.0)
    return units, starts, np.where(pairs > 0, 1 - np.clip(share, 0, 1), 0.0)
