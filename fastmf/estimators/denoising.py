"""Noise channels and the mean-field estimate of what was sent."""

from typing import NamedTuple

import numpy as np
from sklearn.utils import check_random_state

# Certainty would be an infinite field.
_SMALLEST = 1e-12


class Solutions(NamedTuple):
    """Distinct mean-field solutions, lowest free energy first.

    Parameters
    ----------
    visible : array of shape (n_solutions, n_visible)
    hidden : array of shape (n_solutions, n_hidden)
    free_energy, log_partition : array of shape (n_solutions,)
    converged : array of shape (n_solutions,)
    members : array of shape (n_starts,)
        For each start the solution that it led to.
    """

    visible: np.ndarray
    hidden: np.ndarray
    free_energy: np.ndarray
    log_partition: np.ndarray
    converged: np.ndarray
    members: np.ndarray


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
    """Field and precision by which the observations act on the visible units."""
    if (flip_probability is None) == (noise_variance is None):
        raise ValueError("denoise needs either flip_probability or noise_variance, not both.")
    if flip_probability is not None:
        if not 0 <= flip_probability <= 1:
            raise ValueError(f"flip_probability must be in [0, 1], got {flip_probability!r}.")
        if len(getattr(prior, "support", ())) != 2:
            raise ValueError(
                f"flip_probability needs two-valued visible units, got {type(prior).__name__}; "
                "real units take noise_variance."
            )
        return flip_field(Y, prior, flip_probability), np.zeros_like(Y)
    if not 0 < noise_variance < np.inf:
        raise ValueError(f"noise_variance must be positive, got {noise_variance!r}.")
    return Y / Y.dtype.type(noise_variance), np.full_like(Y, 1 / noise_variance)


def _mix(means, log_partitions):
    """Average over starts, (n_starts, n_rows, n_units), each with the weight of its solution."""
    weights = np.exp(log_partitions - log_partitions.max(0))
    weights /= weights.sum(0)
    return np.einsum("sr,sru->ru", weights, means, dtype=means.dtype, casting="same_kind")


def denoise(
    solve,
    prior,
    pointwise,
    Y,
    *,
    flip_probability=None,
    noise_variance=None,
    n_starts=1,
    anneal=None,
    random_state=None,
):
    """Means of the visible units given noisy observations.

    Parameters
    ----------
    solve : callable
        `solve(starts, field=, precision=)` gives mean-field solutions.
    prior, pointwise : unit prior
        Of the visible units in the model, and of independent units fitted to data.
    Y : array of shape (n_rows, n_visible)
    flip_probability, noise_variance, n_starts, anneal, random_state
        See `GeneralizedRBM.denoise`.

    Returns
    -------
    array of shape (n_rows, n_visible)

    Notes
    -----
    Tramel et al. (2018), section VII.4: the first start is the pointwise optimal estimate (Eq. 46,
    corrected). The others are drawn from the pointwise posterior.
    """
    if n_starts < 1:
        raise ValueError(f"n_starts must be at least 1, got {n_starts!r}.")
    field, precision = channel(Y, prior, flip_probability, noise_variance)
    rng = np.random.default_rng(check_random_state(random_state).randint(2**31 - 1))
    levels = [] if anneal is None else list(anneal)
    means, log_partitions = [], []
    for k in range(n_starts):
        if k == 0:
            state = pointwise.moments(field, precision)[0]
        else:
            state = pointwise.sample(field, precision, rng)
        for level in levels:
            names = {"flip_probability": None, "noise_variance": None}
            names["flip_probability" if noise_variance is None else "noise_variance"] = level
            b, a = channel(Y, prior, **names)
            reached = solve(state, field=b, precision=a, tol=1e-3, max_iter=50, free_energy=False)
            state = reached.mean, reached.var
        reached = solve(state, field=field, precision=precision, tol=1e-5)
        means.append(reached.mean[0])
        log_partitions.append(reached.log_partition)
    if n_starts == 1:
        return means[0]
    return _mix(np.array(means), np.array(log_partitions))
