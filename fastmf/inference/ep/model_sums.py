"""Sums over all inclusion patterns of a sparse linear model of few features.

With the rows a_j = (x_j / s, sqrt(slab precision) e_j) and b = (y / s, slab fields / roots of slab
precisions), the log-weight of the features S against that of none is

    sum_S (log-odds + ln(precision) / 2 - field^2 / (2 precision)) + |b|^2 / 2 - |b - P_S b|^2 / 2
        - ln |a_S|

with the projection P_S on the a_j of S and the volume |a_S| that they span: with the products of
`model_chains` nearly equal columns, and the difference of nearly equal fits, would be lost in
rounding. Features are taken one by
one: each doubles the patterns, without it and with it, and is projected out of all that follow, so
that the cost of 2^d patterns is that of some products of their last columns.
"""

import numpy as np

# Features of which all patterns are summed: 65,536 take some 0.1 s.
MAX_SUMMED = 16


def summed_patterns(model, always):
    """All patterns, their probabilities, and the log of the sum of their weights.

    The weight of the pattern of no feature is 1.
    """
    prior, n = model.prior, model.n_features
    X, y = np.asarray(model.X, np.float64), model.y
    if len(X) > n:
        orthogonal, X = np.linalg.qr(X)
        y = orthogonal.T @ y
    roots = np.sqrt(prior.precision)
    scale = 1 / np.sqrt(model.noise_variance)
    columns = np.vstack([X * scale, np.diag(roots)]).T[None]
    target = np.concatenate([y * scale, prior.field / roots])[None]
    none = float(target[0] @ target[0]) / 2
    weights = prior.log_odds + np.log(roots) - (prior.field / roots) ** 2 / 2
    order = np.argsort(~always, kind="stable")
    columns, total = columns[:, order], np.zeros(1)
    for j in order:
        first, rest = columns[:, 0], columns[:, 1:]
        length = np.sqrt(np.einsum("ki,ki->k", first, first))
        first = first / length[:, None]
        along = np.einsum("ki,ki->k", first, target)
        others = rest - np.einsum("kji,ki->kj", rest, first)[:, :, None] * first[:, None]
        taken = total + weights[j] - np.log(length)
        left = target - along[:, None] * first
        if not always[j]:
            taken = np.concatenate([total, taken])
            left, others = np.concatenate([target, left]), np.concatenate([rest, others])
        total, target, columns = taken, left, others
    total = total - np.einsum("ki,ki->k", target, target) / 2
    log_weight = np.logaddexp.reduce(total)
    patterns = np.ones((len(total), n), bool)
    free = order[always.sum() :]
    patterns[:, free] = np.arange(len(total))[:, None] >> np.arange(len(free)) & 1
    return patterns, np.exp(total - log_weight), float(log_weight + none)
