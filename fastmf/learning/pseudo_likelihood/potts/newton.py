"""Newton's method with conjugate gradients, for maxima to high accuracy."""

import numpy as np

from fastmf.learning.pseudo_likelihood.potts.lbfgs import Minimum

# Largest number of products with the Hessian for a step.
MAX_PRODUCTS = 500
_MIN_DECREASE, _MAX_BACKTRACKS = 1e-4, 30


def minimise(objective, z, *, tol, max_iter):
    """Minimum of a convex function, in well-scaled coordinates.

    Parameters
    ----------
    objective : callable
        As for `fastmf.learning.pseudo_likelihood.potts.lbfgs.minimise`, with `hessian_at(z)` that
        returns a function product(v, out).
    z : array of shape (n_variables,)
        The start; overwritten by the result.
    tol : float
        Ends when the predicted decrease of a step is smaller.
    max_iter : int

    Returns
    -------
    Minimum
    """
    gradient = np.empty_like(z)
    value = objective(z, gradient)
    history = []
    for _ in range(max_iter):
        step = _newton_step(objective.hessian_at(z), gradient)
        slope = float(gradient @ step)
        if not -slope / 2 > tol:
            return Minimum(z, history or [value], True)
        if -slope / 2 < np.finfo(z.dtype).eps * abs(value):
            # No value tells any more whether the step is right, which near the minimum it is.
            z += step
            return Minimum(z, [*history, value], True)
        found = _line_search(objective, z, gradient, step, (value, slope))
        if found is None:
            break
        value = found
        history.append(value)
    return Minimum(z, history or [value], False)


def _newton_step(product, gradient):
    """An approximate solution of H step = -gradient, the more exact the smaller the gradient is."""
    size = float(np.sqrt(gradient @ gradient))
    step, image = np.zeros_like(gradient), np.empty_like(gradient)
    residual = -gradient
    direction, squared = residual.copy(), size**2
    target = (min(0.1, np.sqrt(size)) * size) ** 2
    for _ in range(MAX_PRODUCTS):
        product(direction, image)
        curvature = float(direction @ image)
        # Along gauge directions, which have no gradient, rounding may leave a little.
        if not curvature > 1e-14 * float(direction @ direction):
            break
        factor = squared / curvature
        step += factor * direction
        residual -= factor * image
        before, squared = squared, float(residual @ residual)
        if squared <= target:
            break
        direction *= squared / before
        direction += residual
    return step if step.any() else -gradient


def _line_search(objective, z, gradient, step, at):
    """Move z by a part of the step so that the value decreases; the gradient is that at the end."""
    value, slope = at
    length, before = 1.0, z.copy()
    for _ in range(_MAX_BACKTRACKS):
        np.add(before, length * step, out=z)
        new = objective(z, gradient)
        if new <= value + _MIN_DECREASE * length * slope:
            return new
        length /= 2
    z[:] = before
    return None
