"""Mean-field estimates of data that were observed through a noisy channel.

An observation y of visible units x acts on them as a tilt exp(b x - a x^2 / 2):

    binary symmetric channel, flip probability p    b = +-log((1 - p) / p) / (high - low), a = 0
    additive Gaussian noise of variance s2          b = y / s2, a = 1 / s2

(Tramel et al. 2018, Eqs. 43 and 44, the latter with its sign corrected.) The estimate is the mean
of the visible units of the tilted model.
"""

from typing import NamedTuple

import numpy as np

from fastmf._common.arguments import count, number, real_array
from fastmf.estimators.common.runs import generator_of
from fastmf.learning.layered.starts import nearest_rows
from fastmf.priors._protocol import sample
from fastmf.priors._queries import two_values

# A flip probability of 0 would be an infinite field.
MIN_FLIP_PROBABILITY = 1e-12
# Means are wanted to better than a grey level of 1 / 255: on MNIST 1e-5 took half as many sweeps
# again and left every Matthews correlation as it was.
DENOISING_TOL = 1e-3


class Channel(NamedTuple):
    """A noisy channel: one of the two parameters is None.

    Parameters
    ----------
    flip_probability : float or None
        Flip probability of the binary symmetric channel, in [0, 1].
    noise_variance : float or None
        Variance of additive Gaussian noise, positive.
    """

    flip_probability: float | None = None
    noise_variance: float | None = None

    def at(self, level):
        """The same kind of channel with another level of noise."""
        if self.noise_variance is None:
            return Channel(flip_probability=level)
        return Channel(noise_variance=level)

    def tilt(self, Y, prior):
        """Field by which observations act on the visible units, and precision unless it is 0."""
        if (self.flip_probability is None) == (self.noise_variance is None):
            raise ValueError("denoise needs either flip_probability or noise_variance, not both.")
        if self.noise_variance is None:
            return flip_field(Y, prior, self.flip_probability), None
        variance = number("noise_variance", self.noise_variance, -np.inf, np.inf)
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
    p = min(max(p, MIN_FLIP_PROBABILITY), 1 - MIN_FLIP_PROBABILITY)
    field = np.log((1 - p) / p) / (high - low)
    tilt = np.where(Y == high, Y.dtype.type(field), Y.dtype.type(-field))
    tilt[np.isnan(Y)] = 0
    return tilt


def _starts(Y, pointwise, candidates, n_starts, field, precision, rng):
    """Starts of all rows of `Y`, those of a row side by side: (n_rows * n_starts, n_units)."""
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


class Estimator(NamedTuple):
    """Arguments of the estimates.

    Parameters
    ----------
    solve : callable
        `solve(starts, field=, precision=)` gives mean-field solutions of the model.
    prior, pointwise : unit prior
        Priors of the visible units in the model, and of independent units fitted to data.
    candidates : array of shape (n_candidates, n_visible) or None
        Rows of clean data. None: the only start is the pointwise estimate.
    """

    solve: object
    prior: tuple
    pointwise: tuple
    candidates: np.ndarray | None


def denoise(estimator, Y, channel, *, n_starts, anneal, random_state):
    """Means of the visible units given noisy observations.

    Notes
    -----
    Tramel et al. (2018), section VII.4, starts from the pointwise optimal estimate (Eq. 46,
    corrected). Under much noise this leads to a poor solution: it looks like no datum, so that the
    observation alone decides which minimum is reached. Rows of data under which the observation is
    probable are better starts, the better the more there are to choose from; if there are too few,
    draws from the pointwise posterior join them. Their solutions count alike: they stand for the
    posterior over the data near the observation. The log-partitions would prefer solutions that
    have taken much of the noise for signal: on MNIST at p = 0.3, 400 hidden units and 60,000
    candidates, ten solutions with such weights have a Matthews correlation of 0.69, alike 0.71.
    """
    n_starts = count("n_starts", n_starts)
    levels = () if anneal is None else np.atleast_1d(real_array("anneal", anneal)).tolist()
    rng = generator_of(random_state)
    prior, tilt = estimator.prior, channel.tilt(Y, estimator.prior)
    state = _starts(Y, estimator.pointwise, estimator.candidates, n_starts, *tilt, rng)

    def solution(state, tilt, **options):
        b, a = (part if part is None else np.repeat(part, n_starts, axis=0) for part in tilt)
        return estimator.solve(
            state, field=b, precision=a, tol=DENOISING_TOL, log_partition=False, **options
        )

    for level in levels:
        reached = solution(state, channel.at(level).tilt(Y, prior), max_iter=50)
        state = reached.mean, reached.var
    reached = solution(state, tilt)
    found = reached.converged.reshape(len(Y), n_starts)
    converged = found.any(1)
    found = found | ~converged[:, None]  # where none has, all count
    weights = (found / found.sum(1, keepdims=True)).astype(Y.dtype)
    means = np.einsum("rs,rsu->ru", weights, reached.mean[0].reshape(len(Y), n_starts, -1))
    return means, converged
