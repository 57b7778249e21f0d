"""The Gaussian side of expectation propagation: the quadratic form that couples the units.

A Gaussian side is exp(-w'Pw / 2 + h'w + constant). With sites exp(t1 w - t2 w^2 / 2) in place of
the priors it becomes a Gaussian with precision A = P + diag(t2). The solvers use

    side.n_units
    side.inverse(t2)         A^-1, None if A is not positive definite, with

        inverse.moments(t1)         moments of the Gaussian
        inverse.covariance(units)   the covariance of some units
        inverse.solve(right)        the product with a vector

    side.moments(site), side.covariance(site, units)   both steps in one
    side.among(units)        the side without couplings of other units, except for linear models
    side.dense()             the side with a full matrix

so that a linear model (P = X'X / noise variance) and couplings (P = -J) share every solver.
"""

import numpy as np

from fastmf._common.stored_columns import StoredColumns
from fastmf.inference.gaussian.bipartite import Bipartite, Latent, with_latent_columns
from fastmf.inference.gaussian.dense import Dense
from fastmf.inference.gaussian.low_rank import LowRank, SparseLowRank, StoredLowRank
from fastmf.models import RBM, SparseLinearModel
from fastmf.models.sparse_linear import gram_of

# Number of units up to which full matrices are cheaper and more precise than Woodbury's identity.
MAX_WOODBURY_UNITS = 64


def gaussian_side(model, n_threads=None):
    """Make the Gaussian side of a model, of the kind that suits its shape."""
    if isinstance(model, SparseLinearModel):
        kind, X = _kind_of(model), model.X
        if issubclass(kind, StoredLowRank) and model.has_latent:
            raise TypeError("rows of stored columns cannot have latent variables.")
        if model.has_latent and kind is not Latent:
            X = with_latent_columns(X)
        arguments = X, model.y, model.noise_variance
        if kind is Dense:
            return Dense.of_regression(*arguments, None if model.has_latent else gram_of(model))
        return kind(*arguments, n_threads)
    if isinstance(model, RBM):
        if model.n_hidden:
            return Bipartite(model.weights.astype(np.float64))
        couplings = np.zeros((model.n_visible, model.n_visible))
    else:
        couplings = model.couplings.astype(np.float64)
    return Dense(-couplings, np.zeros(len(couplings)), 0.0)


def order_of(model):
    """Return the order of the matrices that the Gaussian side of a linear model factorises."""
    return {Dense: model.n_units, Latent: model.n_features}.get(_kind_of(model), model.n_samples)


def _kind_of(model):
    n = model.n_samples
    if isinstance(model.X, StoredColumns):
        return StoredLowRank if model.X.sparse is None else SparseLowRank
    if n >= model.n_units or model.n_units <= MAX_WOODBURY_UNITS:
        return Dense
    return Latent if model.has_latent and model.n_features < n else LowRank
