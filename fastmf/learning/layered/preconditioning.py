"""Preconditioned steps: along the gradient times an approximation of the inverse Fisher matrix.

The Fisher matrix of the couplings W between two layers is the covariance of the products of their
units, which are counted from their means. For layers that are independent of each other, with
covariances C and D, it is their Kronecker product: the natural gradient is C^-1 G D^-1 in the place
of the gradient G. Steps follow P G Q, with

    P = (1 + C / s)^-1,    Q = (1 + D / s)^-1

and the fields of a layer P g in the place of their gradient g. Along directions in which a layer's
variance is far below s they equal ordinary gradients; where the variance c is larger, and
the likelihood more curved, they are shorter by s / c. So the rate is no longer limited by a
few directions of large variance, such as the brightness of an image. Where the gradient vanishes
does not change.

Covariances are taken over rows of data, and over hidden units given the rows; in deep machines,
over the mean-field solutions given the rows. Sources: Amari (1998) for natural gradients; Martens &
Grosse (2015) for Kronecker factors, and the damping of each.
"""

import numpy as np
from scipy.linalg import lapack

from fastmf._common.rows import is_sparse
from fastmf._threads.workers import one_blas_thread
from fastmf.inference.mean_field.posterior import posterior
from fastmf.learning.layered.gradients import ORDER_OF_GRADIENT, conditional_moments
from fastmf.learning.layered.settings import given_data
from fastmf.priors._protocol import parameter_names
from fastmf.priors._queries import field_is_tilt
from fastmf.priors._rows import states

# Rows of data after which covariances are estimated anew.
ROWS_BETWEEN = 5000
# Weight of the new preconditioner in the mean of this one and those before.
NEW = 0.5


def prepare(state, X, settings, n_threads=None):
    """Estimate the preconditioners of a state anew.

    Notes
    -----
    O(n_rows n_units^2 + n_units^3) for each layer.
    """
    model = state.model
    if is_sparse(X):
        raise ValueError("preconditioning needs dense rows: use X.toarray(), or None.")
    for prior in model.layers:
        if not field_is_tilt(prior) or parameter_names(prior) != ("field",):
            raise ValueError(
                "preconditioning is of units whose fields alone are learned, such as binary "
                f"ones, got {type(prior).__name__}; use None."
            )
    X = states(model.layers[0], X, model.dtype)
    order = ORDER_OF_GRADIENT.get(settings.gradient, 1)
    if model.deep:
        solutions = posterior(
            model, X, order=order, n_threads=n_threads, **given_data(model, settings)
        ).solutions
        hidden = list(zip(solutions.mean, solutions.var, strict=True))
    else:
        hidden = [conditional_moments(model, X, order, n_threads)[1:]]
    scale = settings.preconditioning
    matrices = list(state.preconditioners[:1]) or [preconditioner(X, 0, scale)]
    for k, (mean, var) in enumerate(hidden, start=1):
        new = preconditioner(mean, var, scale)
        if state.preconditioners:
            new = (1 - NEW) * state.preconditioners[k] + NEW * new
        matrices.append(new)
    state.preconditioners = tuple(matrix.astype(model.dtype) for matrix in matrices)


def preconditioner(mean, var, scale):
    """Compute (1 + C / scale)^-1, with the covariance C of units from their moments in each row."""
    n, x = mean.shape[1], mean - mean.mean(0, dtype=np.float64)
    within = np.broadcast_to(var, mean.shape).mean(0, dtype=np.float64)
    with one_blas_thread(n):
        precision = x.T @ x / (len(x) * scale)
        precision[np.diag_indices(n)] += 1 + within / scale
        factor, _ = lapack.dpotrf(precision)
        upper, _ = lapack.dpotri(factor)
    upper = np.triu(upper)
    return upper + np.triu(upper, 1).T
