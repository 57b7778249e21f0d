"""Where the mean-field solutions of a training step start."""

import numpy as np

from fastmf.priors._protocol import by_parts, sample

STARTS = ("data", "noise", "persistent", "random")


def perturbed(X, prior, noise, rng):
    """Data with noise: flipped with probability `noise`, or moved by `noise` standard deviations.

    Parameters
    ----------
    X : array of shape (n_rows, n_units)
    prior : unit prior
        Two-valued units are flipped, others moved without leaving the range of the data.
    noise : float
    rng : numpy Generator

    Returns
    -------
    array of shape (n_rows, n_units)
    """
    if hasattr(prior, "parts"):
        parts = by_parts(prior, X)
        return np.hstack([perturbed(columns, part, noise, rng) for part, columns in parts])
    values = getattr(prior, "support", ())
    if len(values) == 2:
        flip = rng.random(X.shape, dtype=np.float32) < noise
        return np.where(flip, X.dtype.type(sum(values)) - X, X)
    steps = noise * X.std(0) * rng.standard_normal(X.shape, dtype=X.dtype)
    return np.clip(X + steps, X.min(0), X.max(0))


def starts(kind, model, X, n_starts, noise, rng):
    """Starting points of `tap` for one training step.

    Parameters
    ----------
    kind : {"data", "noise", "persistent", "random"}
        Rows of the batch (again from the first if there are too few), such rows perturbed, and
        draws from the uncoupled visible prior. Persistent solutions start from rows, once.
    model : RBM or DBM
    X : array of shape (n_rows, n_visible)
        The batch, in random order.
    n_starts : int
    noise : float
        See `perturbed`.
    rng : numpy Generator

    Returns
    -------
    array of shape (n_starts, n_visible)
    """
    if kind == "random":
        zero = np.zeros((n_starts, X.shape[1]), X.dtype)
        return sample(model.layers[0], zero, zero, rng)
    rows = X if n_starts == len(X) else X[np.arange(n_starts) % len(X)]
    return perturbed(rows, model.layers[0], noise, rng) if kind == "noise" else rows
