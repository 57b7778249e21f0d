"""Noise channels and the mean-field estimate of what was sent."""

import numpy as np
from sklearn.utils import check_random_state

from fastmf.inference._arguments import count, number

# Certainty would be an infinite field.
_SMALLEST = 1e-12
# Means are wanted to better than a grey level of 1 / 255: on MNIST 1e-5 took half as many sweeps
# again and left every Matthews correlation as it was.
TOL = 1e-3


def flip_field(Y, prior, flip_probability):
    """Field by which observations through a binary symmetric channel act on the units.

    Tramel et al. (2018), Eq. 44 with the sign corrected: log((1 - p) / p) is the log-odds in favour
    of what was observed.
    """
    low, high = prior.support
    p = min(max(flip_probability, _SMALLEST), 1 - _SMALLEST)
    odds = np.log((1 - p) / p) / (high - low)
    return np.where(Y == high, Y.dtype.type(odds), Y.dtype.type(-odds))


def channel(Y, prior, flip_probability, noise_variance):
    """Field by which the observations act on the visible units, and precision unless it is 0."""
    if (flip_probability is None) == (noise_variance is None):
        raise ValueError("denoise needs either flip_probability or noise_variance, not both.")
    if flip_probability is not None:
        flip_probability = number("flip_probability", flip_probability, 0, 1)
        if len(getattr(prior, "support", ())) != 2:
            raise ValueError(
                f"flip_probability needs two-valued visible units, got {type(prior).__name__}; "
                "real units take noise_variance."
            )
        return flip_field(Y, prior, flip_probability), None
    if not 0 < number("noise_variance", noise_variance, -np.inf, np.inf) < np.inf:
        raise ValueError(f"noise_variance must be positive and finite, got {noise_variance:g}.")
    return Y / Y.dtype.type(noise_variance), np.full_like(Y, 1 / noise_variance)


def _mix(means, log_partitions):
    """Average over starts, (n_rows, n_starts, n_units), each with the weight of its solution."""
    # Of a row of which no start has led to a solution, all have the same weight.
    log_partitions = np.maximum(log_partitions, np.finfo(np.float64).min)
    weights = np.exp(log_partitions - log_partitions.max(1, keepdims=True))
    weights /= weights.sum(1, keepdims=True)
    return np.einsum("rs,rsu->ru", weights, means, dtype=means.dtype, casting="same_kind")


def _starts(Y, pointwise, data, n_starts, field, precision, rng):
    """Starts of one row of `Y` after the other, (n_rows * n_starts, n_units)."""
    a = field.dtype.type(0) if precision is None else precision
    starts = [pointwise.moments(field, a)[0]]
    if n_starts > 1:
        # Log-likelihood of the observation, were it a noisy version of this row of data.
        fit = field @ data.T
        if precision is not None:
            fit -= precision @ (data.T * data.T) / 2
        nearest = np.argsort(-fit, axis=1, kind="stable")[:, : n_starts - 1]
        starts += list(data[nearest.T])
    starts += [pointwise.sample(field, a, rng) for _ in range(n_starts - len(starts))]
    return np.stack(starts, axis=1).reshape(-1, Y.shape[1]).astype(Y.dtype, copy=False)


def denoise(
    solve,
    prior,
    pointwise,
    data,
    Y,
    *,
    flip_probability,
    noise_variance,
    n_starts,
    anneal,
    random_state,
):
    """Means of the visible units given noisy observations.

    Parameters
    ----------
    solve : callable
        `solve(starts, field=, precision=)` gives mean-field solutions.
    prior, pointwise : unit prior
        Of the visible units in the model, and of independent units fitted to data.
    data : array of shape (n_data, n_visible)
        Rows of clean data.
    Y : array of shape (n_rows, n_visible)
    flip_probability, noise_variance, n_starts, anneal, random_state
        See `GeneralizedRBM.denoise`.

    Returns
    -------
    array of shape (n_rows, n_visible)

    Notes
    -----
    Tramel et al. (2018), section VII.4: the first start is the pointwise optimal estimate (Eq. 46,
    corrected). Under much noise it leads to a poor solution: it looks like no datum, so that the
    observation alone decides on the way downhill. Hence the other starts are rows of data, those
    under which the observation is most probable, and if there are too few of them, draws from the
    pointwise posterior.
    """
    n_starts = count("n_starts", n_starts)
    levels = () if anneal is None else np.atleast_1d(anneal).tolist()
    rng = np.random.default_rng(check_random_state(random_state).randint(2**31 - 1))
    field, precision = channel(Y, prior, flip_probability, noise_variance)
    state = _starts(Y, pointwise, data, n_starts, field, precision, rng)

    def solution(state, tilt, **options):
        b, a = (part if part is None else np.repeat(part, n_starts, axis=0) for part in tilt)
        return solve(state, field=b, precision=a, **options)

    for level in levels:
        kind = "flip_probability" if noise_variance is None else "noise_variance"
        noise = {"flip_probability": None, "noise_variance": None} | {kind: level}
        tilt = channel(Y, prior, **noise)
        reached = solution(state, tilt, tol=TOL, max_iter=50, free_energy=False)
        state = reached.mean, reached.var
    reached = solution(state, (field, precision), tol=TOL, free_energy=n_starts > 1)
    if n_starts == 1:
        return reached.mean[0]
    return _mix(
        reached.mean[0].reshape(len(Y), n_starts, -1), reached.log_partition.reshape(-1, n_starts)
    )
