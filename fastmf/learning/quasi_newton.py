"""Quasi-Newton minimisation in a box and a trust region, for costly functions of few variables.

The model of the objective f at x is f + g's + s'Hs / 2. H is what the objective gives at x, changed
by the last steps as in BFGS, damped (Powell 1978): so the curvature there is not lost, and its
errors are corrected. Directions of L-BFGS are for functions of many variables.
"""

from typing import NamedTuple

import numpy as np
import scipy
from scipy import linalg

from fastmf._common.linalg import cholesky

# Smallest fraction of the predicted decrease of a step that is accepted; that above which the trust
# region may grow.
MIN_RATIO, GOOD_RATIO = 1e-2, 0.5
# Points without a value that end the search: fixed points may cease to exist before its end, and
# every other step would then lead beyond.
MAX_FAILURES = 3
# Steps that change the curvatures.
N_UPDATES = 2


class SearchPoint(NamedTuple):
    """The result of an objective at a point x."""

    # inf if there is none; nothing else is read then.
    value: float
    gradient: np.ndarray | None = None
    # Positive definite: an estimate of the matrix of second derivatives.
    curvature: np.ndarray | None = None
    # Smallest curvatures of the model by each variable, where differences of gradients at earlier
    # points are too small.
    smallest: np.ndarray | float = 0.0
    # Whether the value is of another objective than before: the search then continues from there,
    # whatever the value, and forgets the changes of the gradient.
    changed: bool = False


def minimise(objective, start, low, high, *, tol=1e-6, max_iter=50, report=None):
    """Minimise by quasi-Newton steps in a box and in a trust region; returns the lowest point.

    A line search would try points far away, which for some functions cost a thousand times more
    than nearby points: here the first step is at most 1 long in each variable, and a step at most
    twice as long as a step that went as predicted.
    """
    x, point, radius, failures, changes = start, objective(start), 1.0, 0, []
    for k in range(max_iter):
        if report is not None:
            report(k, point.value)
        hessian = _model(point, changes)
        step = -np.linalg.solve(hessian, point.gradient)
        step *= min(1.0, radius / max(abs(step).max(), 1e-300))
        if (x + step < low).any() or (x + step > high).any():
            sides = np.maximum(low - x, -radius), np.minimum(high - x, radius)
            step = _lowest_in_box(hessian, point.gradient, sides)
        trial = np.clip(x + step, low, high)
        step = trial - x
        predicted_decrease = -(point.gradient @ step + step @ hessian @ step / 2)
        if not predicted_decrease > tol:
            return trial if predicted_decrease >= 0 else x
        new, length = objective(trial), abs(step).max()
        if not new.value < np.inf:
            radius, failures = length / 4, failures + 1
            if failures == MAX_FAILURES:
                break
            continue
        if new.changed:
            x, point, changes = trial, new, []
            continue
        changes = [*changes[1 - N_UPDATES :], (step, new.gradient - point.gradient)]
        ratio = (point.value - new.value) / predicted_decrease
        if ratio < MIN_RATIO:
            radius = length / 4
            continue
        if ratio > GOOD_RATIO:
            radius = max(radius, 2 * length)
        x, point = trial, new
    return x


def _model(point, changes):
    """The matrix of the model at a point, after these steps and changes of the gradient."""
    hessian = point.curvature
    for step, change in changes:
        hessian = _updated(hessian, step, change)
    return hessian + np.diag(np.maximum(point.smallest - np.diag(hessian), 0))


def _lowest_in_box(hessian, gradient, sides):
    """Step to the minimum of the quadratic model in the box; a clipped Newton step might ascend."""
    lower = cholesky(hessian).lower
    right = linalg.solve_triangular(lower, -gradient, lower=True)
    return scipy.optimize.lsq_linear(lower.T, right, sides, method="bvls").x


def _updated(hessian, step, change):
    """The BFGS update, damped so that the matrix stays positive definite (Powell 1978)."""
    product = hessian @ step
    old, new = step @ product, step @ change
    weight = 1.0 if new >= 0.2 * old else 0.8 * old / (old - new)
    change = weight * change + (1 - weight) * product
    return (
        hessian
        - np.outer(product, product) / old
        + np.outer(change, change) / (step @ change)
    )  # fmt: skip


# --- L-BFGS ---------------------------------------------------------------------------------------


def direction_of(gradient, steps, changes):
    """The inverse Hessian of L-BFGS times a gradient, by the two-loop recursion (Nocedal 1980)."""
    pairs = [(s, y, s @ y) for s, y in zip(steps, changes, strict=True) if is_convex(s, y)]
    factors, direction = [], gradient.copy()
    for s, y, curvature in reversed(pairs):
        factors.append(s @ direction / curvature)
        direction -= factors[-1] * y
    if pairs:
        direction *= curvature_scale(*pairs[-1][:2])
    for (s, y, curvature), factor in zip(pairs, reversed(factors), strict=True):
        direction += (factor - y @ direction / curvature) * s
    return direction


def is_convex(step, change):
    """Whether s'y > 0 for a step and the change of the gradient."""
    return step @ change > 1e-12 * (change @ change)


def curvature_scale(step, change):
    """The inverse curvature along a step."""
    return step @ change / (change @ change)
