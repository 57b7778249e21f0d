"""Terms of the log-partition beyond second order in the couplings, at solutions of TAP."""

import numpy as np

from fastmf.inference.gaussian.bipartite import Bipartite
from fastmf.priors._queries import two_values

# Smallest variance, and distance of a mean from the ends of its interval: the terms of a unit that
# is as certain as that are negligible.
MIN_VARIANCE = 1e-12


def log_partition_correction(model, mean, var, *, tol=1e-2, max_iter=100):
    """Correction of the log-partition of second-order TAP: ring diagrams and pairs of units.

    The second order of the expansion in the couplings, the sum of W^2 v v / 2, is the first ring
    diagram; in a ring each unit has two couplings and enters by its variance alone. The sum of all
    rings is the sum of a Gaussian (Parisi & Potters 1995; Opper & Winther 2001),

        min over t of [t v - ln det(diag(t) - J)] / 2 - sum (ln v + 1) / 2,

    which adaptive TAP has in the place of the second order. Here it is evaluated at the moments of
    TAP, so that solutions which are one in adaptive TAP stay distinct.

    For units of two values there are two more terms. Rings along a single coupling are replaced by
    the exact term of the pair, as in the Bethe approximation: with independent couplings that is
    most of the remaining error, on a tree all of it. And the maximum moves: with f the gradient of
    these terms by the means, and -H the Hessian of TAP's log-partition, the value at the maximum
    rises by f H^-1 f / 2. This is left out where it exceeds the other terms, as it does where H is
    nearly singular.
    """
    if model.deep:
        mean, var = ([np.hstack(part[side::2]) for side in (0, 1)] for part in (mean, var))
        model = model.bipartite()
    weights = model.weights.astype(np.float64)
    if not weights.size:
        return np.zeros(len(mean[0]))
    supports = [two_values(prior) for prior in model.layers]
    if not all(supports):
        return _rings(weights, [np.asarray(part, np.float64) for part in var], tol, max_iter)[0]
    # In units of values 0 and 1.
    weights *= np.prod([high - low for low, high in supports])
    mean = [
        np.clip((np.asarray(part, np.float64) - low) / (high - low), MIN_VARIANCE, 1 - MIN_VARIANCE)
        for part, (low, high) in zip(mean, supports, strict=True)
    ]
    terms, by_var = _rings(weights, [part * (1 - part) for part in mean], tol, max_iter)
    for row, visible, hidden, var_gradient in zip(range(len(terms)), *mean, by_var, strict=True):
        pairs, gradient = _pairs(weights, visible, hidden)
        terms[row] += pairs
        gradient += (1 - 2 * np.hstack([visible, hidden])) * var_gradient
        increase = _response(weights, visible, hidden, gradient)
        terms[row] += increase if increase <= abs(terms[row]) else 0.0
    return terms


def _rings(weights, var, tol, max_iter):
    """Ring diagrams of four and more couplings, and their derivatives by the variances.

    The minimum is convex; at it the Gaussian of precision diag(t) - J has the variances c.
    """
    side, squared = Bipartite(weights), np.square(weights)
    visible, hidden = (np.maximum(part, MIN_VARIANCE) for part in var)
    onsager = visible @ squared
    second = (onsager * hidden).sum(1) / 2
    var, onsager = np.hstack([visible, hidden]), np.hstack([hidden @ squared.T, onsager])
    precision = 1 / var + onsager
    offset = side.n_units * (np.log(2 * np.pi) + 1)
    lowest, last_proper = np.full(len(var), np.inf), [None] * len(var)
    by_var = np.zeros_like(var)
    for _ in range(max_iter):
        sites = np.stack([np.zeros_like(var), precision], axis=1)
        moved = False
        for row, moments in enumerate(map(side.moments, sites)):
            if moments is None:
                # Not positive definite: halfway back to the last precision that was.
                last = 3 * precision[row] if last_proper[row] is None else last_proper[row]
                precision[row] = (precision[row] + last) / 2
                moved = True
                continue
            last_proper[row], marginal = precision[row].copy(), moments.marginal[1]
            value = moments.log_partition + (precision[row] @ var[row] - offset) / 2
            lowest[row] = min(lowest[row], value - np.log(var[row]).sum() / 2)
            # Less the reduction of the precision that is of second order, which TAP has already.
            by_var[row] = (precision[row] - 1 / marginal - onsager[row]) / 2
            # Half the change that would be exact if the other precisions stayed as they are.
            precision[row] += (1 / var[row] - 1 / marginal) / 2
            moved |= abs(marginal / var[row] - 1).max() > tol
        if not moved:
            break
    return lowest - second, by_var


def pair_covariances(weights, visible, hidden):
    """Covariances of pairs of units of values 0 and 1 with these means, coupled by the weights."""
    v, h = visible[:, None], hidden
    var = v * (1 - v) * h * (1 - h)
    # The covariance k of the pair makes its odds ratio exp(weight).
    excess = np.expm1(np.clip(weights, -300, 300))
    linear = 1 + excess * (v * (1 - h) + (1 - v) * h)
    root = np.sqrt(np.maximum(linear * linear - 4 * excess * excess * var, 0))
    return 2 * excess * var / (linear + root)


def _pairs(weights, visible, hidden):
    """Sum over pairs of {0, 1} units, less pairs of Gaussians, and its derivatives (n_units,)."""
    v, h = visible[:, None], hidden
    var, k = v * (1 - v) * h * (1 - h), pair_covariances(weights, visible, hidden)
    terms, logs = weights * k, []
    for sign, p in ((1, v * h), (1, (1 - v) * (1 - h)), (-1, v * (1 - h)), (-1, (1 - v) * h)):
        logs.append(np.log1p(np.maximum(sign * k / p, MIN_VARIANCE - 1)))
        terms -= (p + sign * k) * logs[-1]
    _, both_0, visible_1, hidden_1 = logs
    by_visible, by_hidden = both_0 - visible_1 - weights * h, both_0 - hidden_1 - weights * v
    squared = weights * weights
    root = np.sqrt(1 + 4 * squared * var)
    terms -= (root - 1 - np.log((1 + root) / 2)) / 2
    onsager = squared / (1 + root)
    by_visible -= onsager * (h * (1 - h)) * (1 - 2 * v)
    by_hidden -= onsager * (v * (1 - v)) * (1 - 2 * h)
    return terms.sum(), np.concatenate([by_visible.sum(1), by_hidden.sum(0)])


def _response(weights, visible, hidden, gradient):
    """gradient H^-1 gradient / 2, with -H the Hessian of TAP; infinite where it is no maximum."""
    mean, squared = np.concatenate([visible, hidden]), np.square(weights)
    var, skew = mean * (1 - mean), 1 - 2 * mean
    v, h = np.split(var, [len(visible)])
    couplings = weights + squared * np.outer(*np.split(skew, [len(visible)])) / 2
    inverse = Bipartite(couplings).inverse(1 / var + np.concatenate([squared @ h, v @ squared]))
    return np.inf if inverse is None else gradient @ inverse.solve(gradient) / 2
