"""Gradients of the log-likelihood of an RBM by its weights and by the parameters of its priors.

Every method of learning climbs the difference of two averages: over the data, where they are exact,
and over the model, where they come from mean-field solutions or from Gibbs samples. Averages over
samples are those over data; so two functions are enough.
"""

from typing import NamedTuple

import numpy as np

from fastmf.priors._protocol import gradient as prior_gradient
from fastmf.priors._protocol import log_prob_gradient, map_parameters

ORDERS = {"mean_field": 1, "tap": 2, "tap3": 3}


class Gradient(NamedTuple):
    """Derivatives of a log-likelihood, or averages of which they are differences.

    Parameters
    ----------
    weights : array of shape (n_visible, n_hidden)
    visible, hidden : NamedTuple of arrays of shape (n_units,)
        The classes of the priors, holding a derivative in the place of each parameter.
    """

    weights: np.ndarray
    visible: tuple
    hidden: tuple

    def __sub__(self, other):
        return self.combine(np.subtract, other)

    def combine(self, function, *others):
        """Apply a function to the arrays of gradients of one model."""
        weights = function(self.weights, *(other.weights for other in others))
        layers = zip(self[1:], *(other[1:] for other in others), strict=True)
        return Gradient(weights, *(map_parameters(function, *priors) for priors in layers))


def pair_average(left, right):
    """Average over rows of the outer product of two layers: (n_left, n_right)."""
    return left.T @ right / left.dtype.type(len(left))


def _row_average(prior):
    # In float64: sums over many rows of float32 would lose digits.
    return map_parameters(lambda f: np.mean(f, axis=0, dtype=np.float64), prior)


def data_average(model, X):
    """Derivatives by the parameters of the average over rows of log sum_h exp(-energy(x, h)).

    Parameters
    ----------
    model : RBM
    X : array of shape (n_rows, n_visible)
        Data, or samples of the model.

    Returns
    -------
    Gradient

    Notes
    -----
    Tramel et al. (2018), first terms of Eqs. 40-42 (with l for the dummy index inside).
    """
    b = X @ model.weights
    hidden_mean = model.hidden.moments(b, b.dtype.type(0))[0]
    return Gradient(
        pair_average(X, hidden_mean),
        _row_average(log_prob_gradient(model.visible, X)),
        _row_average(prior_gradient(model.hidden, b, b.dtype.type(0))),
    )


def solution_average(model, solutions, order=2):
    """Derivatives by the parameters of the average log-partition over mean-field solutions.

    Parameters
    ----------
    model : RBM
    solutions : FixedPoint
        One solution a row, as `tap` returns them. The approximate log-partition is stationary in
        means and variances at a fixed point, so these derivatives are exact there and only there.
    order : {1, 2, 3}
        The order of the expansion that was solved.

    Returns
    -------
    Gradient

    Notes
    -----
    Tramel et al. (2018), second terms of Eqs. 40-42; the third order is that of Gabrie et al.
    (2015) for binary units, with the third cumulants k: <W^2 k_v k_h> / 2.
    """
    (v, h), (c_v, c_h) = solutions.mean, solutions.var
    weights = pair_average(v, h)
    if order >= 2:
        weights += model.weights * pair_average(c_v, c_h)
    if order == 3:
        k_v, k_h = model.visible.third_cumulant(v)[0], model.hidden.third_cumulant(h)[0]
        weights += model.weights**2 * pair_average(k_v, k_h) / 2
    priors = (
        _row_average(prior_gradient(prior, b, a))
        for prior, b, a in zip(model.layers, solutions.b, solutions.a, strict=True)
    )
    return Gradient(weights, *priors)


def gradient(model, X, solutions, order=2):
    """Gradient of the mean-field log-likelihood of an RBM.

    Parameters
    ----------
    model : RBM
    X : array of shape (n_rows, n_visible)
        Data.
    solutions : FixedPoint
        Any number of converged solutions of `tap(model, ..., order=order)`, weighted equally.
    order : {1, 2, 3}

    Returns
    -------
    Gradient
        Of the average over rows of `log_likelihood(model, X, average of solutions.log_partition)`.
    """
    return data_average(model, X) - solution_average(model, solutions, order)
