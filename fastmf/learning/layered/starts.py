"""Where mean-field solutions start: in a training step, and in denoising."""

import numpy as np

from fastmf._common.rows import blocks
from fastmf.priors._protocol import sample
from fastmf.priors._queries import perturbed
from fastmf.priors._rows import states

STARTS = ("data", "noise", "persistent", "random")


def starts(kind, model, X, n_starts, noise, rng):
    """Starting points of `tap` for one training step."""
    if kind == "random":
        zero = np.zeros((n_starts, X.shape[1]), X.dtype)
        return sample(model.layers[0], zero, zero, rng)
    n_rows = X.shape[0]
    rows = X if n_starts == n_rows else X[np.arange(n_starts) % n_rows]
    rows = states(model.layers[0], rows, model.dtype)
    return perturbed(model.layers[0], rows, noise, rng) if kind == "noise" else rows


def nearest_rows(fields, X, costs, n_nearest):
    """The rows x of X with the smallest cost(x) - field.x, for each of several fields."""
    nearest = np.empty((len(fields), n_nearest), np.intp)
    for block in blocks(len(fields), len(fields) * len(X)):
        misfit = costs - fields[block] @ X.T
        if n_nearest == 1:
            nearest[block, 0] = misfit.argmin(1)
            continue
        best = np.sort(np.argpartition(misfit, n_nearest - 1, axis=1)[:, :n_nearest], axis=1)
        order = np.argsort(np.take_along_axis(misfit, best, axis=1), axis=1, kind="stable")
        nearest[block] = np.take_along_axis(best, order, axis=1)
    return nearest
