"""Quasi-Newton minimisation with short steps, for costly functions of few variables."""

import numpy as np
from scipy import optimize

# Share of the promised fall that is enough; that above which steps may get longer.
ENOUGH, GOOD = 1e-2, 0.5
# Points without a value, one after another, that end the search.
FAILURES = 3


def minimise(objective, start, low, high, *, longest=1.0, tol=1e-6, max_iter=50):
    """The lowest point found, by BFGS in a box and in a trust region.

    A line search would try points far away, which for some functions cost a thousand times more
    than those at hand: here no coordinate moves by more than `longest` at a time.

    Parameters
    ----------
    objective : callable
        Value and gradient at a point; a value of inf means that it is not to be had there.
    start, low, high : array of shape (n_variables,)
        The start, which has a value, and the box that it is in.
    longest : float
        Largest change of a variable in one step: their natural unit.
    tol : float
        Ends when a step promises no larger fall.
    max_iter : int
        Evaluations, after that of the start.

    Returns
    -------
    array of shape (n_variables,)
    """
    x, radius = start, longest
    value, gradient = objective(x)
    # At first straight down.
    hessian = np.eye(len(x)) * max(abs(gradient).max() / longest, 1e-300)
    failures = 0
    for _ in range(max_iter):
        step = -np.linalg.solve(hessian, gradient)
        step *= min(1.0, radius / max(abs(step).max(), 1e-300))
        if (x + step < low).any() or (x + step > high).any():
            sides = np.maximum(low - x, -radius), np.minimum(high - x, radius)
            step = _lowest_in_box(hessian, gradient, sides)
        trial = np.clip(x + step, low, high)
        step = trial - x
        promised = -(gradient @ step + step @ hessian @ step / 2)
        if not promised > tol:
            break
        new_value, new_gradient = objective(trial)
        if not new_value < np.inf:
            radius, failures = abs(step).max() / 4, failures + 1
            if failures == FAILURES:
                break
            continue
        failures = 0
        hessian = _updated(hessian, step, new_gradient - gradient)
        share = (value - new_value) / promised
        if share < ENOUGH:
            radius = abs(step).max() / 4
            continue
        if share > GOOD:
            radius = min(max(radius, 2 * abs(step).max()), longest)
        x, value, gradient = trial, new_value, new_gradient
    return x


def _lowest_in_box(hessian, gradient, sides):
    """Step to the minimum of the quadratic model; cutting off Newton's own might lead uphill."""
    factor = np.linalg.cholesky(hessian)
    right = np.linalg.solve(factor, -gradient)
    return optimize.lsq_linear(factor.T, right, sides, method="bvls").x


def _updated(hessian, step, change):
    """The BFGS update, with as much of the old curvature as keeps it positive (Powell, 1978)."""
    product = hessian @ step
    old, new = step @ product, step @ change
    share = 1.0 if new >= 0.2 * old else 0.8 * old / (old - new)
    change = share * change + (1 - share) * product
    return (
        hessian
        - np.outer(product, product) / old
        + np.outer(change, change) / (step @ change)
    )  # fmt: skip
