"""The ring diagrams that the mean-field expansion leaves out of the log-partition."""

import numpy as np

from fastmf.inference.gaussian import gaussian_side
from fastmf.models import DBM

# Smallest variance: a unit that is fixed takes no part.
FIXED = 1e-12


def ring_diagrams(model, var, *, tol=1e-2, max_iter=100):
    """What rings of four and more couplings add to the log-partition of mean-field solutions.

    Parameters
    ----------
    model : RBM or DBM
    var : tuple of arrays of shape (n_rows, n_units)
        Variances of each layer at the solutions, as in `FixedPoint.var`.
    tol : float, default 1e-2
        How close the Gaussian's variances must come to these, as a share. It is the square of this
        that the result is wrong by.
    max_iter : int, default 100

    Returns
    -------
    array of shape (n_rows,)
        Nats, to be added to `log_partition` of `tap`; at the second order, or third, as rings of
        three couplings do not exist between layers.

    Notes
    -----
    The second order of the expansion in the couplings, the sum of W^2 c c / 2, is the first of all
    rings, the diagrams in which each unit is met twice and enters by its variance alone. All of
    them together are a Gaussian's (Parisi & Potters 1995; Opper & Winther 2001),

        min over t of [t c - ln det(diag(t) - J)] / 2 - sum (ln c + 1) / 2,

    which is what adaptive TAP has in the place of the second order. Here it is taken at the moments
    of TAP, so that phases which adaptive TAP would merge stay apart. The minimum is convex; at it
    the Gaussian of precision diag(t) - J has the variances c.
    """
    if isinstance(model, DBM):
        var, model = [np.hstack(var[side::2]) for side in (0, 1)], model.bipartite()
    side, squared = gaussian_side(model), np.square(model.weights, dtype=np.float64)
    visible, hidden = (np.maximum(part, FIXED, dtype=np.float64) for part in var)
    onsager = visible @ squared
    second = (onsager * hidden).sum(1) / 2
    var = np.hstack([visible, hidden])
    precision = 1 / var + np.hstack([hidden @ squared.T, onsager])
    offset = side.n_units * (np.log(2 * np.pi) + 1)
    lowest = np.full(len(var), np.inf)
    for _ in range(max_iter):
        sites = np.stack([np.zeros_like(var), precision], axis=1)
        moved = False
        for row, moments in enumerate(side.moments_of_rows(sites)):
            if moments is None:
                precision[row] *= 2
                moved = True
                continue
            value = moments.log_partition + (precision[row] @ var[row] - offset) / 2
            lowest[row] = min(lowest[row], value - np.log(var[row]).sum() / 2)
            # Each unit alone would go all the way.
            precision[row] += (1 / var[row] - 1 / moments.marginal[1]) / 2
            moved |= abs(moments.marginal[1] / var[row] - 1).max() > tol
        if not moved:
            break
    return lowest - second
