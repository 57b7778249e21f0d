"""Newton's method for maxima of composite likelihoods.

The step is H^-1 g with the gradient g and the negative Hessian H. To second order it raises the
objective by g' H^-1 g / 2; this predicted rise is what the stopping rule is about.
"""

from typing import NamedTuple

import numpy as np

from fastmf._common.linalg import cholesky_with_ridge
from fastmf.learning.pseudo_likelihood.fit import MIN_DECREASE, TOLERANCE_ROWS, Fit

MAX_NEWTON_ITER = 100
# The factorised Hessian is kept while a step with it shrinks the predicted rise by this factor.
_KEPT_REDUCTION = 1e-5
# A step is doubled while the directional derivative at its end is more than this fraction of that
# at its start.
_DOUBLING_FRACTION = 0.25
# Rounding error of a mean derivative, whose terms are at most 2.
GRADIENT_ROUNDING = 1e-15
# The line search ends at this fraction of a step.
MIN_STEP_SIZE = 1e-10
# Below this fraction the Hessian is given a ridge, from _MIN_RIDGE up to _MAX_RIDGE.
_RIDGE_STEP_SIZE, _MIN_RIDGE, _MAX_RIDGE = 0.1, 1e-5, 1.0
# Ridge along changes of gauge, of the largest curvature: rounding errors of derivatives, divided by
# it, are below the tolerance of parameters.
_GAUGE_RIDGE = 1e-6


class Evaluation(NamedTuple):
    """Value and gradient at some parameters."""

    parameters: np.ndarray
    value: float
    gradient: np.ndarray


def sufficient_rise(value, before, predicted):
    """Armijo's condition, up to the rounding error of the value."""
    return value >= before + MIN_DECREASE * predicted - 4e-16 * max(1, abs(before))


def only_rounding(*gradients):
    """Whether gradients are zero up to rounding errors."""
    return max(abs(gradient).max() for gradient in gradients) <= GRADIENT_ROUNDING


def factorised(objective, hessian, ridge=0.0):
    """Factorise a Hessian with a ridge, and a small one more where it is singular."""
    if objective.singular:
        ridge += _GAUGE_RIDGE * hessian.diagonal().max()
    # The transpose of a symmetric matrix is itself, in LAPACK's order.
    return cholesky_with_ridge(hessian.T, ridge)


class _NewtonPoint:
    """A point of Newton's method, its factorised Hessian, and the step from it.

    Parameters
    ----------
    objective : CompositeLikelihood
        Or anything with its `value_and_gradient`, `hessian` and `total`.
    start : array of shape (n_parameters,)
    """

    def __init__(self, objective, start):
        self.objective = objective
        self.point = self._evaluated(np.array(start))
        self.hessian = self.factor = self.step = None
        # Whether the Hessian is that of the point, not kept from an earlier one.
        self.current = False
        self.ridge, self.step_size = 0.0, 1.0
        # Derivative along the step, and what it was when the last line search began.
        self.derivative = self.first_derivative = 0.0

    @property
    def predicted_rise(self):
        """Rise of the value of `TOLERANCE_ROWS` rows by the quadratic model."""
        return TOLERANCE_ROWS * self.derivative / 2

    def _evaluated(self, parameters):
        return Evaluation(parameters, *self.objective.value_and_gradient(parameters))

    def _solve(self):
        self.step = self.factor.solve(self.point.gradient)
        self.derivative = self.step @ self.point.gradient

    def _factorise(self):
        self.factor = factorised(self.objective, self.hessian, self.ridge)
        self._solve()

    def _renew(self):
        self.hessian, self.current = self.objective.hessian(self.point.parameters), True
        self._factorise()

    def prepare_step(self):
        """Compute the step, with the kept Hessian if that is good enough."""
        if self.factor is not None:
            self._solve()
        enough = _KEPT_REDUCTION * self.first_derivative
        if self.factor is None or self.ridge or self.derivative > enough:
            self._renew()
        self.first_derivative, self.step_size = self.derivative, 1.0

    def backtrack(self):
        """Halve the step until the value rises; None if no step is long enough to be seen.

        A kept Hessian is renewed first. Where units saturate, their curvature sech^2 is so small
        that their part of the step is far too long: a ridge shortens that part alone.
        """
        while True:
            trial = self._evaluated(self.point.parameters + self.step_size * self.step)
            predicted = self.step_size * self.derivative
            if sufficient_rise(trial.value, self.point.value, predicted):
                return trial
            if not self.current:
                self._renew()
                continue
            self.step_size /= 2
            if self.step_size < _RIDGE_STEP_SIZE and self.ridge < _MAX_RIDGE:
                self.ridge, self.step_size = max(30 * self.ridge, _MIN_RIDGE), 1.0
                self._factorise()
            elif self.step_size < MIN_STEP_SIZE:
                return None

    def extend(self, trial):
        """Double the step while much of the derivative along it is left.

        The curvature of saturating units falls as exp(-2 |eta|) along the step, so that Newton's
        step adds about one to |2 eta|, however much is missing.
        """
        enough = _DOUBLING_FRACTION * self.derivative
        while self.current and self.step_size >= 1 and trial.gradient @ self.step > enough:
            longer = self._evaluated(self.point.parameters + 2 * self.step_size * self.step)
            if longer.value <= trial.value:
                break
            trial, self.step_size = longer, 2 * self.step_size
        return trial

    def move(self, trial, tol):
        """Move to the end of the step; whether that is the maximum."""
        # A step with a kept Hessian is less exact.
        enough = tol**2 if self.current else (_KEPT_REDUCTION * tol) ** 2
        rounded = self.current and only_rounding(self.point.gradient, trial.gradient)
        with_ridge = self.ridge > 1e-10
        self.ridge = self.ridge / 10 if self.ridge > 1e-12 else 0.0
        self.point, self.current = trial, False
        if self.step_size < 1:
            self.factor = None
        return not with_ridge and (rounded or self.predicted_rise <= enough)


def newton(objective, start, *, tol=1e-5, max_iter=MAX_NEWTON_ITER):
    """Newton's method with a line search: quadratic convergence to machine precision.

    Stops when the predicted rise of the log-pseudo-likelihood of `TOLERANCE_ROWS` rows is below
    tol^2, after a last step, or when derivatives are rounding errors.
    """
    search, history = _NewtonPoint(objective, start), []
    for _ in range(max_iter):
        search.prepare_step()
        trial = search.backtrack()
        if trial is None:
            history.append(objective.total * search.point.value)
            return Fit(search.point.parameters, history, bool(search.predicted_rise <= tol))
        converged = search.move(search.extend(trial), tol)
        history.append(objective.total * search.point.value)
        if converged:
            return Fit(search.point.parameters, history, True)
    return Fit(search.point.parameters, history, False)
