"""Firth's penalty: half the log-determinant of the negative Hessian H (Firth 1993).

The penalised objective, per unit of weight, is P + ln det H / (2 n) with the weight n of all rows.
With s = sech^2 eta, whose derivative is -2 s tanh eta, and the leverages z' H^-1 z of the features
z = [1, x] of eta_ij, the gradient of the penalty by eta_ij is -w_ij s tanh(eta) z' H^-1 z / n.
"""

import numpy as np

from fastmf._common.linalg import cholesky_with_ridge
from fastmf.learning.pseudo_likelihood.newton import (
    MAX_ITER,
    MIN_STEP_SIZE,
    only_rounding,
    sufficient_rise,
)
from fastmf.learning.pseudo_likelihood.solvers import Fit


def penalty(objective, parameters):
    """Firth's penalty per unit of weight, its gradient, and the factorised Hessian.

    Parameters
    ----------
    objective : PseudoLikelihood
    parameters : array of shape (n_parameters,)

    Returns
    -------
    value : float
    gradient : array of shape (n_parameters,)
    factor : Cholesky
    """
    factor = cholesky_with_ridge(objective.hessian(parameters).T)
    value = factor.half_log_determinant / objective.total
    couplings, field = objective.unpacked(parameters)
    states = objective.rows.states
    terms = objective.weighted_sech2(parameters) * np.tanh(states @ couplings + field)
    terms *= -objective.leverages(factor.inverse()) / objective.total
    coupling_gradient = states.T @ terms
    gradient = objective.packed(coupling_gradient + coupling_gradient.T, terms.sum(0))
    return value, gradient, factor


def _penalised(objective, parameters):
    value, gradient = objective.value_and_gradient(parameters)
    added, added_gradient, factor = penalty(objective, parameters)
    return value + added, gradient + added_gradient, factor


def firth_scoring(objective, start, *, tol=1e-5, max_iter=MAX_ITER):
    """Maximum with Firth's penalty by scoring: steps H^-1 g, halved until the value rises.

    The second derivatives of the determinant are left out of H. Stops when the predicted rise of
    the value of all rows together is below tol^2, after a last step.

    Parameters
    ----------
    objective : PseudoLikelihood
        Without penalty.
    start : array of shape (n_parameters,)
    tol : float, default 1e-5
    max_iter : int, default 100

    Returns
    -------
    Fit
    """
    parameters, history = np.array(start), []
    value, gradient, factor = _penalised(objective, parameters)
    for _ in range(max_iter):
        step = factor.solve(gradient)
        derivative, before, step_size = step @ gradient, value, 1.0
        predicted_rise = objective.total * derivative / 2
        while True:
            candidate = parameters + step_size * step
            value, new_gradient, factor = _penalised(objective, candidate)
            if sufficient_rise(value, before, step_size * derivative):
                break
            step_size /= 2
            if step_size < MIN_STEP_SIZE:
                history.append(objective.total * before)
                return Fit(parameters, history, bool(predicted_rise <= tol))
        rounded = only_rounding(gradient, new_gradient)
        parameters, gradient = candidate, new_gradient
        history.append(objective.total * value)
        if rounded or predicted_rise <= tol**2:
            return Fit(parameters, history, True)
    return Fit(parameters, history, False)
