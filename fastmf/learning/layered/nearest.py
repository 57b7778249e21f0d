"""The rows of data that fit best."""

import numpy as np

# Rows are compared in blocks of about this many pairs: 64 MiB in float32, 128 for their order.
PAIRS = 2**24


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
    rows = max(1, PAIRS // len(X))
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
