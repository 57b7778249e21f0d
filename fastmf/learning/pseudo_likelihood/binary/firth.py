"""Firth's penalty: half the log-determinant of the negative Hessian H (Firth 1993).

The penalised objective, per unit of weight, is P + ln det H / (2 n) with the weight n of all rows.
With s = sech^2 eta, whose derivative is -2 s tanh eta, and the leverages z' H^-1 z of the features
z = [1, x] of eta_ij, the gradient of the penalty by eta_ij is -w_ij s tanh(eta) z' H^-1 z / n.
"""

import numpy as np
from scipy.linalg import solve_triangular

from fastmf._common.linalg import LinAlgError, scaled_cholesky
from fastmf.learning.pseudo_likelihood.existence import MAX_CONDITION, Existence
from fastmf.learning.pseudo_likelihood.fit import MAX_ITER, TOLERANCE_ROWS, Fit
from fastmf.learning.pseudo_likelihood.lbfgs import lbfgs


def penalty(objective, parameters):
    """Firth's penalty per unit of weight, and its gradient."""
    factor = scaled_cholesky(objective.hessian(parameters))
    value = factor.half_log_determinant / objective.total
    couplings, field = objective.unpacked(parameters)
    states = objective.states
    terms = objective.weighted_sech2(parameters) * np.tanh(states @ couplings + field)
    terms *= -objective.leverages(factor.inverse()) / objective.total
    coupling_gradient = states.T @ terms
    return value, objective.packed(coupling_gradient + coupling_gradient.T, terms.sum(0))


def penalised(objective, parameters):
    """Penalised value and its gradient; the value is -inf where H is singular."""
    value, gradient = objective.value_and_gradient(parameters)
    try:
        # Far out, where units are certain, the inverse overflows.
        with np.errstate(over="ignore", invalid="ignore"):
            added, added_gradient = penalty(objective, parameters)
    except LinAlgError:
        return -np.inf, gradient
    if not np.isfinite(added_gradient).all():
        return -np.inf, gradient
    return value + added, gradient + added_gradient


class _Scaled:
    """A pseudo-likelihood with Firth's penalty, in coordinates in which H at a point is 1."""

    def __init__(self, objective, point):
        self.objective = objective
        factor = scaled_cholesky(objective.hessian(point))
        self.lower, self.scale = factor.factor.lower, factor.scale

    def __getattr__(self, name):
        return getattr(self.objective, name)

    def value_and_gradient(self, parameters):
        return penalised(self.objective, parameters)

    def coordinates(self, separate):
        return self

    def to_parameters(self, z):
        return self.scale * solve_triangular(self.lower, z, lower=True, trans="T")

    def from_parameters(self, parameters):
        return self.lower.T @ (parameters / self.scale)

    def gradient(self, by_parameters):
        return solve_triangular(self.lower, self.scale * by_parameters, lower=True)


def firth(objective, start, *, tol=1e-5, max_iter=MAX_ITER, n_pairs=20):
    """Maximum with Firth's penalty by L-BFGS, scaled anew by H after each `n_pairs` steps.

    H leaves out the second derivatives of the determinant, which are as large where data are
    separated: scoring steps H^-1 g crawl there. L-BFGS learns them from the gradients. Stops when
    the predicted rise of all rows, or of `TOLERANCE_ROWS` if they are more, is below tol^2.
    """
    if np.isinf(penalised(objective, start)[0]):
        value = objective.value_and_gradient(start)[0]
        return Fit(start, [objective.total * value], False)
    # In the unit of `lbfgs`; the determinant is all there is where rows have little weight.
    tol = 100 * tol**2 * max(1.0, TOLERANCE_ROWS / objective.total)
    fit, history = Fit(start, [], False), []
    while len(history) < max_iter and not fit.stopped:
        n_iter = min(n_pairs, max_iter - len(history))
        fit = lbfgs(_Scaled(objective, fit.parameters), fit.parameters, tol=tol, max_iter=n_iter)
        history += fit.history
    return fit._replace(history=history)


def unique_with_firth(objective):
    """Decide whether the maximum is unique: the Hessian must not be singular."""
    # sech^2 is positive everywhere: its values make no difference to the rank.
    values = np.linalg.eigvalsh(objective.hessian(np.zeros(objective.n_parameters)))
    return Existence(True) if values[0] > values[-1] / MAX_CONDITION else Existence(
        False, (), "the maximum is not unique: units depend on each other linearly; leave some out "
        "or give a ridge penalty l2",
    )  # fmt: skip
