"""Newton's method for maxima of composite likelihoods.

The step is H^-1 g with the gradient g and the negative Hessian H. To second order it raises the
objective by g' H^-1 g / 2; this predicted rise is what the stopping rule is about.
"""

from typing import NamedTuple

import numpy as np

from fastmf._common.linalg import cholesky_with_ridge
from fastmf.learning.pseudo_likelihood.fit import (
    MAX_ITER,
    MIN_DECREASE,
    TOLERANCE_ROWS,
    Fit,
    gradient_rounding,
)

# Smallest ridge of a Hessian with which a step is too long; and along changes of gauge, of the
# largest curvature: rounding errors of derivatives, divided by it, are below the tolerance of
# parameters.
_MIN_RIDGE = 1e-6


class _NewtonPoint(NamedTuple):
    """Value and gradient at some parameters."""

    parameters: np.ndarray
    value: float
    gradient: np.ndarray

    @classmethod
    def at(cls, objective, parameters):
        return cls(parameters, *objective.value_and_gradient(parameters))


def factorised(objective, hessian, ridge=0.0):
    """Factorise a Hessian with a ridge, and a small one more where it is singular."""
    if objective.singular:
        ridge += _MIN_RIDGE * hessian.diagonal().max()
    # The transpose of a symmetric matrix is itself, in LAPACK's order.
    return cholesky_with_ridge(hessian.T, ridge)


def _backtracked(objective, point, hessian, ridge):
    """Halve a step until the value rises: step, its size, its end (None if too short), the ridge.

    Where units saturate, their curvature sech^2 is so small that their part of the step is far too
    long: a ridge shortens that part alone.
    """
    rounding = 2 * np.finfo(float).eps * max(1, abs(point.value))
    while True:
        step, size = factorised(objective, hessian, ridge).solve(point.gradient), 1.0
        derivative = step @ point.gradient
        while size >= 0.1 or ridge >= 1:
            trial = _NewtonPoint.at(objective, point.parameters + size * step)
            if trial.value >= point.value + MIN_DECREASE * size * derivative - rounding:
                return step, size, trial, ridge
            size /= 2
            if not size * derivative > rounding:
                return step, size, None, ridge
        ridge = max(30 * ridge, _MIN_RIDGE)


def _extended(objective, point, step, size, trial):
    """Double a step while a quarter of the derivative along it is still to be gained.

    The curvature of saturating units falls as exp(-2 |eta|) along the step, so that Newton's step
    adds about one to |2 eta|, however much is missing.
    """
    while size >= 1 and trial.gradient @ step > step @ point.gradient / 4:
        size *= 2
        longer = _NewtonPoint.at(objective, point.parameters + size * step)
        if longer.value <= trial.value:
            break
        trial = longer
    return trial


def newton(objective, start, *, tol=1e-5, max_iter=MAX_ITER // 10):
    """Newton's method with a line search: quadratic convergence to machine precision.

    Full steps square the error, so that the predicted rise falls from step to step by the square of
    the last factor. Stops when the rise of the log-pseudo-likelihood of `TOLERANCE_ROWS` rows that
    this predicts for the next step is below tol^2, or when derivatives are rounding errors.
    """
    point, ridge, history, stopped = _NewtonPoint.at(objective, np.array(start)), 0.0, [], False
    before = 0.0
    while len(history) < max_iter and not stopped:
        hessian = objective.hessian(point.parameters)
        step, size, trial, ridge = _backtracked(objective, point, hessian, ridge)
        rise = TOLERANCE_ROWS * (step @ point.gradient) / 2
        if trial is None:
            history.append(objective.total * point.value)
            return Fit(point.parameters, history, bool(rise <= tol))
        trial = _extended(objective, point, step, size, trial)
        largest = max(abs(end.gradient).max() for end in (point, trial))
        next_rise = rise * min(1.0, (rise / before) ** 2) if before else rise
        stopped = not ridge and bool(next_rise <= tol**2 or largest <= gradient_rounding())
        # After a ridge or a shorter step nothing is known of the convergence.
        before = rise if size == 1 and not ridge else 0.0
        # Below the smallest ridge there is soon none.
        ridge = ridge / 10 if ridge > 1e-5 * _MIN_RIDGE else 0.0
        point = trial
        history.append(objective.total * point.value)
    return Fit(point.parameters, history, stopped)
