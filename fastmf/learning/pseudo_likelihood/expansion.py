"""Quadratic expansions of composite likelihoods without their penalties.

A posterior with its own prior needs the likelihood alone. About any point t, with the mean score g
and the negative Hessian H of the log-pseudo-likelihood without a penalty, it is as if

    t + H^-1 g   were estimated with the covariance   H^-1 J H^-1 / n

At the maximum g is zero. Where the maximum is far away, or does not exist, a posterior is better
known where its prior, taken as a penalty, puts the mode: no penalty of the fit matters then.
"""

from typing import NamedTuple

import numpy as np

from fastmf.learning.pseudo_likelihood.fit import few_blas_threads
from fastmf.learning.pseudo_likelihood.godambe import Godambe
from fastmf.learning.pseudo_likelihood.newton import newton

# Prior precision of fields relative to couplings.
FIELD_SHARE = 0.01


def prior_shares(ridge, inverse):
    """Shares of a penalty in the information about parameters, from their inverse information."""
    return ridge * inverse / (1 + ridge * inverse)


def mode_ridge(objective, scale):
    """The penalty of a normal prior of couplings, of deviation 1 / scale, per unit of weight.

    The penalty of fields is weak: it matters where the rows have a single value.
    """
    ridge = np.full(objective.n_parameters, scale**2 / objective.total)
    ridge[: objective.n_fields] *= FIELD_SHARE
    return ridge


class Expansion(NamedTuple):
    """Estimates without a penalty, from an expansion at the maximum with another one.

    `information` is `Godambe` without a penalty at the point of expansion, and `inverse` the
    inverse Hessian there.
    """

    estimates: np.ndarray
    information: Godambe
    inverse: np.ndarray


def expanded(godambe, ridge):
    """The `Expansion` at the maximum with a penalty, per unit of weight."""
    objective = godambe.objective
    with few_blas_threads(objective.n_parameters):
        point = newton(objective.with_ridge(ridge), godambe.parameters).parameters
        free = objective.with_ridge(np.zeros(len(point)))
        information = Godambe(free, point, godambe.sampling)
        inverse = information.naive_covariance() * objective.total
        return Expansion(point + inverse @ objective.mean_score(point), information, inverse)
