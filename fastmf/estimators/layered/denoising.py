"""Mean-field estimates of data that were observed through a noisy channel.

An observation y of visible units x acts on them as a tilt exp(b x - a x^2 / 2):

    binary symmetric channel, flip probability p    b = +-log((1 - p) / p) / (high - low), a = 0
    additive Gaussian noise of variance s2          b = y / s2, a = 1 / s2

(Tramel et al. 2018, Eqs. 43 and 44, the latter with its sign corrected.) The estimate is the mean
of the visible units of the tilted model.
"""

import numpy as np

from fastmf._common.arguments import count, number
from fastmf.estimators.common.runs import generator_of
from fastmf.evaluation.denoising import nearest_rows
from fastmf.priors._protocol import sample
from fastmf.priors._queries import two_values


def tilt(Y, prior, flip_probability=None, noise_variance=None):
    """Field by which observations act on the visible units, and precision unless it is 0."""
    if (flip_probability is None) == (noise_variance is None):
        raise ValueError("denoise needs either flip_probability or noise_variance, not both.")
    if noise_variance is None:
        return flip_field(Y, prior, flip_probability), None
    variance = number("noise_variance", noise_variance, -np.inf, np.inf)
    if not 0 < variance < np.inf:
        raise ValueError(f"noise_variance must be positive and finite, got {variance:g}.")
    field, precision = Y / Y.dtype.type(variance), np.full_like(Y, 1 / variance)
    field[np.isnan(Y)] = precision[np.isnan(Y)] = 0
    return field, precision


def flip_field(Y, prior, flip_probability):
    """Field by which observations through a binary symmetric channel act; 0 where there is none."""
    p = number("flip_probability", flip_probability, 0, 1)
    if not two_values(prior):
        raise ValueError(
            f"flip_probability needs two-valued visible units, got {type(prior).__name__}; "
            "real units take noise_variance."
        )
    low, high = two_values(prior)
    least = np.finfo(np.float64).eps  # a flip probability of 0 would be an infinite field
    p = min(max(p, least), 1 - least)
    field = np.log((1 - p) / p) / (high - low)
    fields = np.where(Y == high, Y.dtype.type(field), Y.dtype.type(-field))
    fields[np.isnan(Y)] = 0
    return fields


def _starts(Y, pointwise, candidates, n_starts, field, precision, rng):
    """Starts of all rows of `Y`, row by row: (n_rows * n_starts, n_units)."""
    a = field.dtype.type(0) if precision is None else precision
    if candidates is None:
        starts = [pointwise.moments(field, a)[0]]
    else:
        # Minus the log-likelihood of the observation.
        n_nearest = min(n_starts, len(candidates))
        if precision is not None and not precision.all():  # where nothing was observed
            pairs = np.hstack([field, -precision / 2]), np.hstack([candidates, candidates**2])
            nearest = nearest_rows(*pairs, 0, n_nearest)
        else:  # precisions are the same in all rows
            costs = 0 if precision is None else np.square(candidates) @ precision[0] / 2
            nearest = nearest_rows(field, candidates, costs, n_nearest)
        starts = list(candidates[nearest.T])
    starts += [sample(pointwise, field, a, rng) for _ in range(n_starts - len(starts))]
    return np.stack(starts, axis=1).reshape(-1, Y.shape[1]).astype(Y.dtype, copy=False)


def denoise(solve, priors, Y, channel, *, candidates, n_starts, random_state):
    """Means of the visible units given noisy observations, and whether a solution has converged.

    `solve(starts, field=, precision=)` gives solutions of the model; `priors` are its visible units
    and independent units fitted to data. Without `candidates`, rows of clean data, the only start
    is the pointwise estimate.

    Notes
    -----
    Tramel et al. (2018), section VII.4, starts from the pointwise optimal estimate (Eq. 46,
    corrected). Under much noise this leads to a solution that looks like no datum. Rows of data
    under which the observation is probable are better starts; if there are too few, draws from the
    pointwise posterior join them. Their solutions count equally: log-partitions would prefer
    solutions that have taken much of the noise for signal.
    """
    n_starts = count("n_starts", n_starts)
    prior, pointwise = priors
    observed = tilt(Y, prior, **channel)
    starts = _starts(Y, pointwise, candidates, n_starts, *observed, generator_of(random_state))
    b, a = (x if x is None else np.repeat(x, n_starts, axis=0) for x in observed)
    reached = solve(starts, field=b, precision=a, log_partition=False)
    counted = reached.converged.reshape(len(Y), n_starts)
    converged = counted.any(1)
    counted = counted | ~converged[:, None]  # where none has, all count
    weights = (counted / counted.sum(1, keepdims=True)).astype(Y.dtype)
    means = np.einsum("rs,rsu->ru", weights, reached.mean[0].reshape(len(Y), n_starts, -1))
    return means, converged
