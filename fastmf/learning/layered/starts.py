"""Where mean-field solutions start: in a training step, and in denoising."""

import numpy as np

from fastmf.priors._protocol import sample
from fastmf.priors._queries import perturbed
from fastmf.priors._rows import states

STARTS = ("data", "noise", "persistent", "random")
# Rows are compared in blocks of about this many pairs: 64 MiB in float32, 128 for their order.
BLOCK_PAIRS = 2**24


def starts(kind, model, X, n_starts, noise, rng):
    """Starting points of `tap` for one training step.

    Parameters
    ----------
    kind : {"data", "noise", "persistent", "random"}
        Rows of the batch (again from the first if there are too few), such rows perturbed, and
        draws from the uncoupled visible prior. Persistent solutions start from rows, once.
    model : RBM or DBM
    X : array or csr_array of shape (n_rows, n_visible)
        The batch, in random order.
    n_starts : int
    noise : float
        See `fastmf.priors._queries.perturbed`.
    rng : numpy Generator

    Returns
    -------
    array of shape (n_starts, n_visible)
    """
    if kind == "random":
        zero = np.zeros((n_starts, X.shape[1]), X.dtype)
        return sample(model.layers[0], zero, zero, rng)
    n_rows = X.shape[0]
    rows = X if n_starts == n_rows else X[np.arange(n_starts) % n_rows]
    rows = states(model.layers[0], rows, model.dtype)
    return perturbed(model.layers[0], rows, noise, rng) if kind == "noise" else rows


def nearest_rows(fields, X, costs, n_nearest):
    """The rows x of X with the smallest cost(x) - field.x, for each of several fields.

    Parameters
    ----------
    fields : array of shape (n_fields, n_features)
    X : array of shape (n_candidates, n_features)
    costs : array of shape (n_candidates,), or 0
    n_nearest : int
        At most n_candidates.

    Returns
    -------
    int array of shape (n_fields, n_nearest)
        The best one first. The single best one is the first of several alike.
    """
    nearest = np.empty((len(fields), n_nearest), np.intp)
    rows = max(1, BLOCK_PAIRS // len(X))
    for start in range(0, len(fields), rows):
        block = slice(start, start + rows)
        misfit = costs - fields[block] @ X.T
        if n_nearest == 1:
            nearest[block, 0] = misfit.argmin(1)
            continue
        best = np.sort(np.argpartition(misfit, n_nearest - 1, axis=1)[:, :n_nearest], axis=1)
        order = np.argsort(np.take_along_axis(misfit, best, axis=1), axis=1, kind="stable")
        nearest[block] = np.take_along_axis(best, order, axis=1)
    return nearest
