"""The convergent double loop: iterations that never increase the energy, until a fixed point.

Let V = t + c be the naturals of the marginals of units, with sites t and cavities c. Fixed points
of expectation propagation are the stationary points of

    E(V) = max over t of f(t; V) + sum ln Ztilde(V),    f = -ln Z(t) - sum ln Zhat(V - t)

where Z, Zhat and Ztilde are the integrals of the Gaussian with sites, of the tilted units and of
the marginals. The inner problem is concave; setting V to the naturals of the moments at its
solution cannot increase E (Opper & Winther 2005; Hernández-Lobato & Hernández-Lobato 2011, Eqs. 19
and 28). The gradient of f is the difference of the moments of Gaussian and tilted units.

Site and cavity precisions are bounded from below (Eq. 13), for which `moment_descent` and
`mean_descent` are not available. Projected Newton steps solve the inner problem, with covariances
of (w, -w^2 / 2) under Gaussian and tilted units as curvature; Anderson's method extrapolates the
moments if that lowers the energy.
"""

from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.linalg import LinAlgError

from fastmf._common.linalg import scaled_cholesky
from fastmf.inference.ep.moment_descent import unit_curvature
from fastmf.inference.ep.parallel import AndersonExtrapolation
from fastmf.inference.ep.sites import gaussian_log_partition, mismatch, tilted_units
from fastmf.kernels.ep.sites import MAX_RELATIVE_PRECISION

# Rounding error of the energy, and of a solution of the inner problem, relative to the energy.
RELATIVE_ROUNDING, INNER_ERROR = 1e-12, 1e-9
# Maximum number of evaluations of the inner objective, for each of `max_iter` iterations; it only
# limits the time of fits that do not converge.
EVALUATIONS_PER_ITERATION = 20


class InnerPoint(NamedTuple):
    """The inner objective at some sites, and the moments that its derivatives need."""

    site: np.ndarray  # (2, n_units), as are the next three
    cavity: np.ndarray
    gaussian: np.ndarray
    tilted: np.ndarray
    value: float

    def gradient(self):
        """Return the gradient by t1 and t2: differences of means, and of second moments over -2."""
        (m, v), (mean, var) = self.gaussian, self.tilted
        return np.stack([mean - m, -((mean - m) * (mean + m) + var - v) / 2])


class OuterPoint(NamedTuple):
    """The solution of the inner problem for given marginals, and the energy E."""

    moments: np.ndarray  # (2, n_units), of the marginals
    target: np.ndarray  # (2, n_units), of the tilted units at the inner solution
    inner: InnerPoint
    energy: float


def double_loop(problem, state, trace):
    """Minimise the energy over the marginals; return the last state, and whether it converged."""
    extrapolation = AndersonExtrapolation()
    point = _outer_point(problem, state.gaussian, [state.site], 1e-3)
    if point is None:
        return state, False
    for n_left in reversed(range(problem.max_iter)):
        residual = mismatch(point.moments, point.target)
        trace.add(residual, lambda point=point: float(point.energy))
        if residual <= problem.tol:
            return _state(problem, point.inner) or state, True
        done = not n_left or exhausted(problem)
        new = None if done else _next(problem, point, residual, extrapolation)
        if new is None:
            break
        point = new
    return _state(problem, point.inner) or state, False


def _next(problem, point, residual, extrapolation):
    """Return the point of extrapolated moments if its energy is lower, else of tilted moments.

    None if rounding, or an inexact inner solution, raises the energy of both.
    """
    (mean, var), (new_mean, new_var) = point.moments, point.target
    step = np.stack([new_mean - mean, np.log(new_var / var)])
    scaled = step / np.stack([np.sqrt(new_var), np.ones_like(var)])
    extrapolation.remember(np.append(mean, np.log(var)), step.ravel(), scaled.ravel())
    mean, log_var = extrapolation(1.0).reshape(2, -1)
    tol = max(0.1 * problem.tol, min(1e-3, 0.1 * residual))
    extrapolated = np.stack([mean, np.exp(np.clip(log_var, -700, 700))])  # avoid overflow
    for moments, tolerance in ((extrapolated, RELATIVE_ROUNDING), (point.target, INNER_ERROR)):
        starts = point.inner.site, natural(moments) - point.inner.cavity
        new = _outer_point(problem, moments, starts, tol)
        if new is not None and new.energy <= point.energy + tolerance * (abs(point.energy) + 1):
            return new
        extrapolation.reset(0)
    return None


def _outer_point(problem, moments, starts, tol):
    """Compute the point of these moments; the inner problem starts from the first proper sites."""
    marginal = natural(moments)
    solutions = (maximise(problem, marginal, site, tol) for site in starts)
    inner = next((point for point in solutions if point is not None), None)
    if inner is None:
        return None
    energy = inner.value + gaussian_log_partition(marginal)
    # Bound vanishing variances of tilted units from below.
    mean, var = inner.tilted
    scale = np.maximum(abs(inner.cavity[1]), problem.prior_precision)
    target = np.stack([mean, np.maximum(var, 1 / (MAX_RELATIVE_PRECISION * scale))])
    return OuterPoint(moments, target, inner, energy)


def _state(problem, inner):
    """Return the state with the sites and cavities of an inner solution.

    If a bound is active, the Gaussian does not have the moments of the units, and its marginals
    without sites are not the (bounded) cavities over which the energy was minimised.
    """
    state = problem.state_of(inner.site)
    largest = mismatch(inner.gaussian, inner.tilted)
    changes = {"cavity": inner.cavity, "tilted": inner.tilted, "residual": largest}
    return state and state._replace(**changes)


# --- the inner problem ----------------------------------------------------------------------------


def evaluate(problem, marginal, site):
    """Evaluate the inner objective with these sites; None outside its domain."""
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
    """Return the naturals of independent Gaussians with these means and variances."""
    return np.stack([moments[0] / moments[1], 1 / moments[1]])


def maximise(problem, marginal, site, tol):
    """Maximise the inner objective over sites; None if the given sites are outside its domain.

    Newton's method on the precisions without active bounds, projected on the bounds (Bertsekas
    1982), in coordinates (t1 - mean t2, t2), centred at the Gaussian means.
    """
    lowest = problem.min_site_precision
    highest = np.maximum(marginal[1] - lowest, lowest)
    point = evaluate(problem, marginal, np.stack([site[0], np.clip(site[1], lowest, highest)]))
    while point is not None and not exhausted(problem):
        mean, (first, second) = point.gaussian[0], point.gradient()
        gradient = np.append(first, second + mean * first)
        low, high = point.site[1] <= lowest, point.site[1] >= highest
        downwards = gradient[len(mean) :] < 0
        free = np.append(np.ones(len(mean), bool), ~np.where(downwards, low, high))
        step = np.zeros(len(free))
        try:
            curvature = _curvature(problem, point)[free][:, free]
            step[free] = scaled_cholesky(curvature).solve(gradient[free])
        except LinAlgError:
            break
        derivative = step @ gradient
        rounding = RELATIVE_ROUNDING * (abs(point.value) + 1)
        agree = not free.all() or mismatch(point.gaussian, point.tilted) <= tol
        if derivative <= rounding and agree:
            break
        path = partial(_projected, point, step.reshape(2, -1), (lowest, highest))
        new = _line_search(problem, marginal, point, path, rounding)
        if new is None:
            break
        point = new
    return point


def _projected(point, step, bounds, length):
    """Return the sites at a length along a step in centred coordinates, precisions in bounds."""
    precision = np.clip(point.site[1] + length * step[1], *bounds)
    change = point.gaussian[0] * (precision - point.site[1])
    return np.stack([point.site[0] + length * step[0] + change, precision])


def _curvature(problem, point):
    """Compute the Hessian of minus the objective: of the Gaussian, S and S * S / 2, plus units."""
    covariance = problem.side.covariance(point.site)
    first, mixed, second = map(np.diag, unit_curvature(problem, point))
    return np.block([[covariance + first, mixed], [mixed, covariance * covariance / 2 + second]])


def _line_search(problem, marginal, point, path, rounding):
    """Return the first point along a path that rises enough, or, within rounding, is closer."""
    gradient, distance, length = point.gradient(), mismatch(point.gaussian, point.tilted), 1.0
    while length > RELATIVE_ROUNDING:
        site = path(length)
        rise = (gradient * (site - point.site)).sum()
        new = evaluate(problem, marginal, site)
        if new is not None:
            hidden = rise < rounding and mismatch(new.gaussian, new.tilted) < distance
            if new.value >= point.value + 1e-4 * rise or hidden:
                return new
        length /= 2 if length > 0.1 else 5
    return None
