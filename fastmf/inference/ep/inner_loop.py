"""The inner problem of the convergent double loop: sites that maximise a concave function.

At fixed naturals V of the marginals

    f(t) = -ln Z(t) - sum ln Zhat(V - t)

is concave in the sites t. Its gradient is the difference of the moments of Gaussian and tilted
units, its curvature the sum of their covariances of (w, -w^2 / 2): see `curvature`. Steps are
Newton's, with many units with the curvature of the most correlated units together, and of each
other unit alone. Under a bound on precisions L-BFGS-B searches in units of the curvatures.
"""

from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.linalg import LinAlgError

from fastmf.inference.ep.curvature import InverseCurvature
from fastmf.inference.ep.sites import mismatch, tilted_units

MAX_INNER_STEPS, MAX_INNER_HALVINGS = 200, 40
# Evaluations of the objective that `max_iter` allows for each iteration.
EVALUATIONS_PER_ITERATION = 20
# Passes of the bounded problem, each from where the last one has ended.
MAX_PASSES = 5


class InnerPoint(NamedTuple):
    """The inner objective with some sites, and all that its derivatives need.

    Parameters
    ----------
    site, cavity, gaussian, tilted : array of shape (2, n_units)
    value : float
    """

    site: np.ndarray
    cavity: np.ndarray
    gaussian: np.ndarray
    tilted: np.ndarray
    value: float

    def gradient(self):
        """By t1 and t2: differences of means, and minus half those of second moments."""
        (m, v), (mean, var) = self.gaussian, self.tilted
        return np.stack([mean - m, -((mean - m) * (mean + m) + var - v) / 2])

    def mismatch(self):
        """Largest difference of a mean or variance between Gaussian and tilted units."""
        return mismatch(self.gaussian, self.tilted)


def evaluate(problem, marginal, site):
    """The inner objective with these sites; None outside its domain."""
    problem.evaluations[0] += 1
    moments = problem.side.moments(site)
    if moments is None or not (moments.marginal[1] > 0).all():
        return None
    cavity = marginal - site
    tilted, log_partition = tilted_units(problem, cavity)
    value = -moments.log_partition - log_partition
    if not (np.isfinite(value) and np.isfinite(tilted).all()):
        return None
    return InnerPoint(site, cavity, moments.marginal, tilted, value)


def exhausted(problem):
    """Whether the double loop has made all evaluations that `max_iter` allows."""
    return problem.evaluations[0] > EVALUATIONS_PER_ITERATION * problem.max_iter


def natural(moments):
    """Naturals of independent Gaussians with these means and variances."""
    return np.stack([moments[0] / moments[1], 1 / moments[1]])


def maximise(problem, marginal, site, tol):
    """The sites that maximise the inner objective, from sites inside its domain.

    Ends when Gaussian and tilted units agree to `tol` and the predicted rise is lost in rounding.
    """
    at = partial(evaluate, problem, marginal)
    point = at(site)
    if point is None:
        return None
    for _ in range(MAX_INNER_STEPS):
        gradient = point.gradient()
        try:
            step = InverseCurvature.at(problem, point)(gradient)
        except LinAlgError:
            break
        derivative = (step * gradient).sum()
        ended = derivative <= _rounding(point) and point.mismatch() <= tol
        if ended or not derivative > 0 or exhausted(problem):
            break
        new = line_search(at, point, step, derivative)
        if new is None:
            break
        point = new
    return point


def _rounding(point):
    """Rounding error of the inner objective."""
    return 1e-12 * (abs(point.value) + 1)


def line_search(at, point, step, derivative):
    """The first point along a step that is high enough, or nearer where rounding hides a rise."""
    rounding, length = _rounding(point), 1.0
    for _ in range(MAX_INNER_HALVINGS):
        new = at(point.site + length * step)
        if new is not None:
            if new.value >= point.value + 1e-4 * length * derivative:
                return new
            if length * derivative < rounding and new.mismatch() < point.mismatch():
                return new
        length /= 2 if length > 0.1 else 5
    return None


def bounded_maximise(problem, marginal, site, tol):
    """The same with site and cavity precisions of at least `problem.min_site_precision` (Eq. 13).

    Begins anew where a pass has ended, in other units, until the value no longer rises.
    """
    lowest = problem.min_site_precision
    highest = np.maximum(marginal[1] - lowest, lowest)
    start = np.stack([site[0], np.clip(site[1], lowest, highest)])
    point = evaluate(problem, marginal, start)
    for _ in range(MAX_PASSES if point is not None else 0):
        new = _bounded_pass(problem, marginal, point, highest)
        if new is None or new.value <= point.value:
            break
        gained, point = new.value - point.value, new
        if gained <= _rounding(point) and point.mismatch() <= tol:
            break
    return point


def _bounded_pass(problem, marginal, point, highest):
    """L-BFGS-B from a point; None if it ends outside the domain."""
    from scipy.optimize import minimize  # costs more than all else at import

    n = len(highest)
    # In units of the curvature of each unit alone, or L-BFGS-B hardly moves.
    curvature = InverseCurvature.at(problem, point)
    scale = np.stack([1 / np.sqrt(curvature.first), 1 / np.sqrt(curvature.second)])

    def objective(x):
        point = evaluate(problem, marginal, x.reshape(2, n) * scale)
        if point is None:
            return np.inf, np.zeros(2 * n)
        return -point.value, -(point.gradient() * scale).ravel()

    unbounded = np.full(n, np.inf)
    low = np.concatenate([-unbounded, problem.min_site_precision / scale[1]])
    high = np.concatenate([unbounded, highest / scale[1]])
    found = minimize(
        objective, (point.site / scale).ravel(), jac=True, method="L-BFGS-B",
        bounds=np.stack([low, np.maximum(low, high)], axis=1),
        options={"maxiter": 500, "maxcor": 20, "ftol": 1e-14, "gtol": 1e-10},
    )  # fmt: skip
    return evaluate(problem, marginal, found.x.reshape(2, n) * scale)
