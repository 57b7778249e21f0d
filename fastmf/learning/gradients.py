"""Gradients of the log-likelihood of an RBM by its weights and by the parameters of its priors.

Every method of learning climbs the difference of two averages: over the data, where they are exact,
and over the model, where they come from mean-field solutions or from Gibbs samples. Averages over
samples are those over data; so two functions are enough.
"""

from typing import NamedTuple

import numpy as np

from fastmf._threads import in_parallel, workers_for
from fastmf.inference._layout import layout_of
from fastmf.kernels import statistics as kernels
from fastmf.kernels.product import fill_panels, packed_shape
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


class ConditionalGradient(NamedTuple):
    """Derivatives of an objective of a CRBM, an array for each of its parameters."""

    weights: np.ndarray
    visible_weights: np.ndarray
    hidden_weights: np.ndarray
    visible_bias: np.ndarray
    hidden_bias: np.ndarray

    @classmethod
    def of(cls, model):
        """The parameters of a CRBM in the form of a gradient."""
        return cls(*(getattr(model, name) for name in cls._fields))

    def combine(self, function, *others):
        """Apply a function to the arrays of gradients of one model."""
        return ConditionalGradient(*map(function, self, *others))


def pair_averages(weights, terms, n_threads=None):
    """Sum of products of two layers, averaged over rows and weighted.

    Parameters
    ----------
    weights : array of shape (n_visible, n_hidden)
    terms : list of tuples (visible, hidden, scale, power)
        Each adds scale * weights ** power * (visible.T @ hidden) / n_rows, for arrays of shape
        (n_rows, n_visible) and (n_rows, n_hidden).
    n_threads : int or None

    Returns
    -------
    array of shape (n_visible, n_hidden)
    """
    (n_visible, n_hidden), dtype = weights.shape, weights.dtype
    counts = np.array([len(visible) for visible, *_ in terms])
    n_rows = counts.max()
    lefts = np.empty((len(terms), n_rows, n_visible), dtype)
    rights = np.zeros((len(terms), *packed_shape(n_rows, n_hidden, dtype)), dtype)
    for k, (visible, hidden, _, _) in enumerate(terms):
        lefts[k, : counts[k]] = visible
        fill_panels(np.require(hidden, dtype, ["C", "W"]), 1, rights[k])
    scales = np.array([term[2] for term in terms]) / counts
    powers = np.array([term[3] for term in terms])
    out = np.empty_like(weights)
    n_workers = workers_for(n_visible // kernels.ROWS + 1, lefts.size * n_hidden, n_threads)
    queue = np.zeros(1, np.int64)
    arguments = lefts, rights, counts, scales, powers, weights, queue, out
    in_parallel(kernels.pair_averages, arguments, n_workers)
    return out


def conditional_moments(model, X, order=2, n_threads=None):
    """Fields, means and variances of the hidden units given the visible ones.

    Parameters
    ----------
    model : RBM
    X : array of shape (n_rows, n_visible)
    order : {1, 2, 3}
        Of the expansion that is used beside it, whose packed couplings serve here too.
    n_threads : int or None

    Returns
    -------
    b, mean, var : array of shape (n_rows, n_hidden)
    """
    b, mean, var = np.empty((3, len(X), model.n_hidden), model.dtype)
    n_workers = workers_for(len(X) // kernels.ROWS + 1, len(X) * model.weights.size, n_threads)
    queue = np.zeros(1, np.int64)
    couplings = layout_of(model, order, "blocked").layers[1].couplings
    arguments = model.hidden, couplings, X, queue, b, mean, var
    in_parallel(kernels.conditional_moments, arguments, n_workers)
    return b, mean, var


def _row_average(prior):
    # In float64: sums over many rows of float32 would lose digits.
    return map_parameters(lambda f: np.mean(f, axis=0, dtype=np.float64), prior)


def data_average(model, X, order=2, n_threads=None):
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
    b, mean, var = conditional_moments(model, X, order, n_threads)
    return Gradient(
        pair_averages(model.weights, [(X, mean, 1, 0)], n_threads),
        _row_average(log_prob_gradient(model.visible, X)),
        _row_average(prior_gradient(model.hidden, b, b.dtype.type(0), mean, var)),
    )


def solution_average(model, solutions, order=2, n_threads=None):
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
    terms = [(v, h, 1, 0)]
    if order >= 2:
        terms += [(c_v, c_h, 1, 1)]
    if order == 3:
        k_v, k_h = model.visible.third_cumulant(v)[0], model.hidden.third_cumulant(h)[0]
        terms += [(k_v, k_h, 0.5, 2)]
    priors = (
        _row_average(prior_gradient(prior, *of_layer))
        for prior, *of_layer in zip(
            model.layers, solutions.b, solutions.a, solutions.mean, solutions.var, strict=True
        )
    )
    return Gradient(pair_averages(model.weights, terms, n_threads), *priors)


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
    return data_average(model, X, order) - solution_average(model, solutions, order)
