"""Quasi-Newton minimisation in a box and a trust region, for costly functions of few variables.

The quadratic model of the objective f at x is f + g's + s'Hs / 2. H is the estimate of the
curvature supplied by the objective at x, corrected by damped BFGS updates (Powell 1978) for all
earlier steps. `direction_of` is the L-BFGS direction, for functions of many variables.
"""

from typing import NamedTuple

import numpy as np
import scipy
from scipy import linalg

from fastmf._common.linalg import cholesky

# Number of failures of the objective that end the search: fixed points may not exist beyond some
# point, and every second step would then lead there.
MAX_FAILURES = 3


class SearchPoint(NamedTuple):
    """The result of an objective at a point x."""

    # inf if the objective has no value; the other fields are then ignored.
    value: float
    gradient: np.ndarray | None = None
    # Positive definite estimate of the matrix of second derivatives.
    curvature: np.ndarray | None = None
    # Lower bounds of the diagonal of the updated curvature matrix.
    smallest: np.ndarray | float = 0.0
    # Whether the objective has changed since the last point: the search then continues from this
    # point, whatever its value, and discards earlier changes of the gradient.
    changed: bool = False


def minimise(objective, start, low, high, *, tol=1e-6, max_iter=50, report=None):
    """Minimise by quasi-Newton steps in a box and a trust region; return the lowest point.

    The first step changes each variable by at most 1, and the trust region grows at most by a
    factor of 2 beyond a successful step. A line search would try distant points, at which some
    objectives are a thousand times more expensive.
    """
    x, point, max_step, failures, changes = start, objective(start), 1.0, 0, []
    for k in range(max_iter):
        if report is not None:
            report(k, point.value)
        hessian = _model(point, changes)
        step = -np.linalg.solve(hessian, point.gradient)
        step *= min(1.0, max_step / max(abs(step).max(), 1e-300))
        if (x + step < low).any() or (x + step > high).any():
            sides = np.maximum(low - x, -max_step), np.minimum(high - x, max_step)
            step = _lowest_in_box(hessian, point.gradient, sides)
        trial = np.clip(x + step, low, high)
        step = trial - x
        predicted_decrease = -(point.gradient @ step + step @ hessian @ step / 2)
        if not predicted_decrease > tol:
            return trial if predicted_decrease >= 0 else x
        new, length = objective(trial), abs(step).max()
        if not new.value < np.inf:
            max_step, failures = length / 4, failures + 1
            if failures == MAX_FAILURES:
                break
            continue
        if new.changed:
            x, point, changes = trial, new, []
            continue
        changes.append((step, new.gradient - point.gradient))
        if not new.value < point.value:
            max_step = length / 4
            continue
        max_step = max(max_step, 2 * length)
        x, point = trial, new
    return x


def _model(point, changes):
    """Return the curvature matrix at a point, updated by steps and changes of the gradient."""
    hessian = point.curvature
    for step, change in changes:
        hessian = _updated(hessian, step, change)
    return hessian + np.diag(np.maximum(point.smallest - np.diag(hessian), 0))


def _lowest_in_box(hessian, gradient, sides):
    """Minimise the quadratic model in the box, as a clipped Newton step might ascend."""
    lower = cholesky(hessian).lower
    right = linalg.solve_triangular(lower, -gradient, lower=True)
    return scipy.optimize.lsq_linear(lower.T, right, sides, method="bvls").x


def _updated(hessian, step, change):
    """Return the BFGS update, damped to keep the matrix positive definite (Powell 1978)."""
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


def direction_of(gradient, steps, changes, products=None, last=-1):
    """Return the L-BFGS inverse Hessian times a gradient (Byrd, Nocedal & Schnabel 1994).

    `products` are the products of changes with steps that are no later, with zeros for later
    steps, and of changes with changes. By default, pairs are in the order of time.
    """
    if not len(steps):
        return gradient.copy()
    if products is None:
        of_steps, of_changes = steps @ changes.T, changes @ changes.T
        convex = is_convex(of_steps.diagonal(), of_changes.diagonal())
        if not convex.all():
            return direction_of(gradient, steps[convex], changes[convex])
        products = np.triu(of_steps), of_changes
    of_steps, of_changes = products
    inverse, scale = np.linalg.inv(of_steps), of_steps[last, last] / of_changes[last, last]
    y = inverse @ (steps @ gradient)
    s = inverse.T @ (of_steps.diagonal() * y + scale * (of_changes @ y - changes @ gradient))
    direction = s.astype(gradient.dtype) @ steps
    direction -= (scale * y).astype(gradient.dtype) @ changes
    direction += gradient.dtype.type(scale) * gradient
    return direction


def is_convex(of_step, of_change):
    """Whether s'y > 0, given s'y and y'y of a step and the change of the gradient."""
    return of_step > 1e-12 * of_change
