"""Where the mean-field solutions of a training step start."""

import numpy as np

from fastmf.priors._domain import perturbed
from fastmf.priors._protocol import sample

STARTS = ("data", "noise", "persistent", "random")


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
        See `fastmf.priors._domain.perturbed`.
    rng : numpy Generator

    Returns
    -------
    array of shape (n_starts, n_visible)
    """
    if kind == "random":
        zero = np.zeros((n_starts, X.shape[1]), X.dtype)
        return sample(model.layers[0], zero, zero, rng)
    rows = X if n_starts == len(X) else X[np.arange(n_starts) % len(X)]
    return perturbed(model.layers[0], rows, noise, rng) if kind == "noise" else rows
