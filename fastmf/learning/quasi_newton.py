"""Quasi-Newton minimisation in a box and a trust region, for costly functions of few variables.

The model of the objective f at x is f + g's + s'Hs / 2, with H by BFGS, damped (Powell 1978).
"""

import numpy as np
from scipy import linalg, optimize

from fastmf._common.linalg import cholesky

# Smallest fraction of the predicted decrease of a step that is accepted; that above which the trust
# region may grow.
MIN_RATIO, GOOD_RATIO = 1e-2, 0.5
# Largest change of a variable in one step: their natural unit.
LONGEST_STEP = 1.0
# Points without a value, one after another, that end the search.
MAX_FAILURES = 3


def minimise(objective, start, low, high, *, first=None, curvature=None, tol=1e-6, max_iter=50):
    """The lowest point found, by BFGS in a box and in a trust region.

    A line search would try points far away, which for some functions cost a thousand times more
    than those nearby: here no coordinate changes by more than `LONGEST_STEP` in a step.

    Parameters
    ----------
    objective : callable
        Value and gradient at a point; a value of inf means that there is none. A third result says
        whether the value is of another objective than those before: the search then goes on from
        there, whatever the value, and the change of the gradient tells nothing.
    start, low, high : array of shape (n_variables,)
        The start, which has a value, and the box that it is in.
    first : callable, optional
        The curvatures of the first model, by each variable, once the start has been evaluated; by
        default those with which the first step is along the gradient, and as long as it may be.
    curvature : callable, optional
        Function of a gradient: smallest curvatures of the model by each variable there, where
        differences of gradients, which are of points behind, are known to be too small.
    tol : float
        Ends when the predicted decrease of a step is smaller.
    max_iter : int
        Evaluations, after that of the start.

    Returns
    -------
    array of shape (n_variables,)
    """
    x, radius = start, LONGEST_STEP
    value, gradient, *_ = objective(x)
    along_gradient = np.full(len(x), max(abs(gradient).max() / LONGEST_STEP, 1e-300))
    hessian = np.diag(along_gradient if first is None else first())
    failures = 0
    for _ in range(max_iter):
        if curvature is not None:
            hessian += np.diag(np.maximum(curvature(gradient) - np.diag(hessian), 0))
        step = -np.linalg.solve(hessian, gradient)
        step *= min(1.0, radius / max(abs(step).max(), 1e-300))
        if (x + step < low).any() or (x + step > high).any():
            sides = np.maximum(low - x, -radius), np.minimum(high - x, radius)
            step = _lowest_in_box(hessian, gradient, sides)
        trial = np.clip(x + step, low, high)
        step = trial - x
        predicted_decrease = -(gradient @ step + step @ hessian @ step / 2)
        if not predicted_decrease > tol:
            break
        new_value, new_gradient, *changed = objective(trial)
        if not new_value < np.inf:
            radius, failures = abs(step).max() / 4, failures + 1
            if failures == MAX_FAILURES:
                break
            continue
        failures = 0
        if any(changed):
            x, value, gradient = trial, new_value, new_gradient
            continue
        hessian = _updated(hessian, step, new_gradient - gradient)
        ratio = (value - new_value) / predicted_decrease
        if ratio < MIN_RATIO:
            radius = abs(step).max() / 4
            continue
        if ratio > GOOD_RATIO:
            radius = min(max(radius, 2 * abs(step).max()), LONGEST_STEP)
        x, value, gradient = trial, new_value, new_gradient
    return x


def _lowest_in_box(hessian, gradient, sides):
    """Step to the minimum of the quadratic model in the box; a clipped Newton step might ascend."""
    lower = cholesky(hessian).lower
    right = linalg.solve_triangular(lower, -gradient, lower=True)
    return optimize.lsq_linear(lower.T, right, sides, method="bvls").x


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
