"""Mean-field estimates of data that were observed through a noisy channel.

An observation y of visible units x acts on them as a tilt exp(b x - a x^2 / 2):

    binary symmetric channel, flip probability p    b = +-log((1 - p) / p) / (high - low), a = 0
    additive Gaussian noise of variance s2          b = y / s2, a = 1 / s2

(Tramel et al. 2018, Eqs. 43 and 44, the latter with its sign corrected.) The estimate is the mean
of the visible units of the tilted model.
"""

import numpy as np

from fastmf._common.arguments import number, positive
from fastmf.evaluation.denoising import nearest_rows
from fastmf.priors._protocol import sample
from fastmf.priors._queries import two_values


def noise_tilt(Y, noise_variance):
    """Field and precision by which observations with Gaussian noise act; 0 where there are none."""
    variance = positive("noise_variance", noise_variance)
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


def starts(Y, pointwise, candidates, n_starts, field, precision, rng):
    """Starts of all rows of `Y`, row by row: (n_rows * n_starts, n_units).

    The pointwise optimal estimate (Eq. 46, corrected) leads to a solution unlike all data under
    much noise. Better starts are rows of data under which the observation is probable, and draws
    from the pointwise posterior if there are too few. Their solutions count equally: log-partitions
    would prefer solutions that have taken much of the noise for signal.
    """
    a = field.dtype.type(0) if precision is None else precision
    if candidates is None:
        rows = [pointwise.moments(field, a)[0]]
    else:
        fields, values = field, candidates
        if precision is not None:
            fields, values = np.hstack([field, -precision / 2]), np.hstack([values, values**2])
        nearest = nearest_rows(fields, values, 0, min(n_starts, len(candidates)))
        rows = list(candidates[nearest.T])
    rows += [sample(pointwise, field, a, rng) for _ in range(n_starts - len(rows))]
    return np.stack(rows, axis=1).reshape(-1, Y.shape[1]).astype(Y.dtype, copy=False)
