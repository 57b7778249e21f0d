"""The convergent double loop: an energy that never increases, and ends at a fixed point.

With V = t + c the naturals of the units' marginals (t the sites, c the cavities), fixed points of
expectation propagation are the stationary points of

    E(V) = max over t of [-ln Z(t) - sum ln Zhat(V - t)] + sum ln Ztilde(V)

where Z is the Gaussian with sites, Zhat the tilted units and Ztilde the marginals alone. The inner
problem is concave (`inner_loop`); setting V to the naturals of the moments at its solution cannot
increase E (Opper & Winther 2005; Hernández-Lobato & Hernández-Lobato 2011, Eqs. 19 and 28). On the
natural domain (A positive definite, tilted moments finite) the inner objective falls to minus
infinity at the border, so that no bounds are needed, and negative precisions are allowed.

Moments are extrapolated by Anderson's method where that lowers the energy. The double loop serves
where `moment_descent` and `mean_descent` do not: under a bound on site precisions, and for models
that mix binary units with others.
"""

from typing import NamedTuple

import numpy as np

from fastmf.inference.ep.inner_loop import (
    InnerPoint,
    bounded_maximise,
    exhausted,
    maximise,
    natural,
)
from fastmf.inference.ep.parallel import AndersonExtrapolation
from fastmf.inference.ep.sites import gaussian_log_partition, mismatch, state_of
from fastmf.kernels.ep.sites import MAX_RELATIVE_PRECISION

# Logarithms of variances that extrapolation may reach.
LOG_VARIANCES = -700, 700
# The energy may rise by this part of it through rounding, and through an inexact inner solution.
RELATIVE_ROUNDING, INNER_ERROR = 1e-12, 1e-9


class OuterPoint(NamedTuple):
    """Moments of the marginals, the inner solution for them, and the energy E.

    Parameters
    ----------
    moments, target : array of shape (2, n_units)
        Moments of the marginals, and of the tilted units at the inner solution.
    inner : InnerPoint
    energy : float
    """

    moments: np.ndarray
    target: np.ndarray
    inner: InnerPoint
    energy: float


def double_loop(problem, state, trace):
    """Minimise the energy over the marginals: the last state, and whether it converged."""
    bounded = problem.min_site_precision > -np.inf
    extrapolation = AndersonExtrapolation()
    point = _outer_point(problem, state.gaussian, [state.site], 1e-3)
    if point is None:
        return state, False
    for _ in range(problem.max_iter):
        # At the inner solution Gaussian and tilted units have the same moments.
        residual = mismatch(point.moments, point.target)
        at_solution = 0.0 if bounded else point.inner.mismatch()
        trace.add(max(residual, at_solution), lambda point=point: float(point.energy))
        if trace.residuals[-1] <= problem.tol:
            final = _state(problem, point.inner)
            if bounded or (final is not None and final.agrees(problem.tol)):
                return final or state, True
        new = None if exhausted(problem) else _next(problem, point, residual, extrapolation)
        if new is None:
            break
        point = new
    return _state(problem, point.inner) or state, False


def _next(problem, point, residual, extrapolation):
    """The point of extrapolated moments if its energy is lower, else of the tilted moments.

    None if rounding, or an inexact inner solution, raises the energy there, too.
    """
    (mean, var), (new_mean, new_var) = point.moments, point.target
    step = np.stack([new_mean - mean, np.log(new_var / var)])
    scaled = step / np.stack([np.sqrt(new_var), np.ones_like(var)])
    extrapolation.remember(np.append(mean, np.log(var)), step.ravel(), scaled.ravel())
    mean, log_var = extrapolation(1.0).reshape(2, -1)
    tol = max(0.1 * problem.tol, min(1e-3, 0.1 * residual))
    extrapolated = np.stack([mean, np.exp(np.clip(log_var, *LOG_VARIANCES))])
    for moments, tolerance in ((extrapolated, RELATIVE_ROUNDING), (point.target, INNER_ERROR)):
        starts = point.inner.site, natural(moments) - point.inner.cavity
        new = _outer_point(problem, moments, starts, tol)
        if new is not None and new.energy <= point.energy + tolerance * (abs(point.energy) + 1):
            return new
        extrapolation.reset(0)
    return None


def _outer_point(problem, moments, starts, tol):
    """The point of these moments, its inner problem started from the first proper sites."""
    solve = bounded_maximise if problem.min_site_precision > -np.inf else maximise
    marginal = natural(moments)
    solutions = (solve(problem, marginal, site, tol) for site in starts)
    inner = next((point for point in solutions if point is not None), None)
    if inner is None:
        return None
    energy = inner.value + gaussian_log_partition(marginal)
    return OuterPoint(moments, _target(problem, inner), inner, energy)


def _state(problem, inner):
    """The state with the sites of an inner solution; under a bound with its cavities.

    Where a bound holds, the Gaussian does not have the moments of the units: its marginals without
    the sites are neither bounded nor the cavities that the energy was minimised over.
    """
    state = state_of(problem, inner.site)
    if state is None or problem.min_site_precision == -np.inf:
        return state
    return state._replace(cavity=inner.cavity, tilted=inner.tilted)


def _target(problem, inner):
    """Moments of the tilted units; variances that vanish are bounded from below."""
    mean, var = inner.tilted
    scale = np.maximum(abs(inner.cavity[1]), problem.prior_precision)
    return np.stack([mean, np.maximum(var, 1 / (MAX_RELATIVE_PRECISION * scale))])
