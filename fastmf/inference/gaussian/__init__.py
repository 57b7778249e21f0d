"""The Gaussian side of expectation propagation: the quadratic form that couples the units.

A Gaussian side is exp(-w'Pw / 2 + h'w + constant). With sites exp(t1 w - t2 w^2 / 2) in place of
the priors it becomes a Gaussian with precision A = P + diag(t2). The solvers use

    side.n_units
    side.inverse(t2)         A^-1, None if A is not positive definite, with

        inverse.moments(t1)         moments of the Gaussian
        inverse.covariance(units)   the covariance of some units
        inverse.solve(right)        the product with a vector

    side.moments(site), side.covariance(site, units)   both steps in one

    side.dense()             the same with a full matrix

so that a linear model (P = X'X / noise variance) and couplings (P = -J) share every solver.
"""

import numpy as np

from fastmf.inference.gaussian.bipartite import Bipartite
from fastmf.inference.gaussian.dense import Dense
from fastmf.inference.gaussian.latent import Latent, has_latent_columns
from fastmf.inference.gaussian.low_rank import LowRank
from fastmf.models import RBM, SparseLinearModel

# Up to so many units matrices of units are cheaper than the Woodbury identity, and more precise.
MAX_DENSE_UNITS = 64


def gaussian_side(model, n_threads=None):
    """The Gaussian side of a model, of the kind that suits its shape."""
    if isinstance(model, SparseLinearModel):
        kind, arguments = _kind_of(model.X), (model.X, model.y, model.noise_variance)
        return Dense.of_regression(*arguments) if kind is Dense else kind(*arguments, n_threads)
    if isinstance(model, RBM):
        return Bipartite(model.weights.astype(np.float64))
    couplings = model.couplings.astype(np.float64)
    return Dense(-couplings, np.zeros(len(couplings)), 0.0)


def order_of(X):
    """Order of the matrices that the Gaussian side of a linear model with these rows factorises."""
    n, d = X.shape
    return {Dense: d, LowRank: n, Latent: d - n}[_kind_of(X)]


def _kind_of(X):
    n, d = X.shape
    if n >= d or d <= MAX_DENSE_UNITS:
        return Dense
    return Latent if has_latent_columns(X) else LowRank
