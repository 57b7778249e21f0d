"""The convergent double loop: an energy that never increases, and ends at a fixed point.

With V = t + c the naturals of the units' marginals (t the sites, c the cavities), fixed points of
expectation propagation are the stationary points of

    E(V) = max over t of [-ln Z(t) - sum ln Zhat(V - t)] + sum ln Ztilde(V)

where Z is the Gaussian with sites, Zhat the tilted units and Ztilde the marginals alone. The inner
problem is concave (`inner_loop`); setting V to the naturals of the moments at its solution cannot
increase E (Opper & Winther 2005; Hernández-Lobato & Hernández-Lobato 2011, Eqs. 19 and 28). On the
natural domain (A positive definite, tilted moments finite) the inner objective falls to minus
infinity at the border, so that no bounds are needed, and negative precisions are allowed.

The outer steps are Newton's on E (with all but the most correlated units one by one, and Anderson
acceleration, if there are many), accepted if the energy falls; else the update of the proof.
"""

from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.linalg import LinAlgError

from fastmf._common.linalg import newton_step, scaled_cholesky
from fastmf.inference.ep.curvature import (
    active_units,
    few_units,
    joint_curvature,
    unit_curvature,
)
from fastmf.inference.ep.inner_loop import (
    InnerPoint,
    bounded_maximise,
    exhausted,
    maximise,
    natural,
)
from fastmf.inference.ep.sites import gaussian_log_partition, mismatch, state_of
from fastmf.kernels.ep.sites import MAX_RELATIVE_PRECISION

# Outer steps: smallest curvature where the energy is not convex, and longest step, in units of the
# update of the proof; lengths that are tried.
MIN_CURVATURE_OF_STEP, MAX_STEP, LENGTHS = 1e-6, 2.0, (1.0, 0.3, 0.1)
# Anderson acceleration: steps that are kept, and the largest change of a log-variance.
OUTER_MEMORY, MAX_EXTRAPOLATION = 6, 3
# The energy may rise so much, in units of it, by rounding.
ENERGY_TOLERANCE = 1e-9


class OuterModel(NamedTuple):
    """The quadratic model of E, unit by unit, by (mean, log precision) of the marginals.

    In units of the standard deviation of the mean, and of sqrt(2) of the logarithm.

    Parameters
    ----------
    gradient : array of shape (2, n_units)
    marginals : array of shape (3, n_units)
        The Hessian of sum ln Ztilde, with what the gradient adds by the change of coordinates: by
        the mean, by both, by the logarithm.
    jacobian : array of shape (3, n_units)
        Upper triangles of the changes of the naturals, centred at the Gaussian means, by these
        coordinates.
    tilted : array of shape (3, n_units)
        Covariances of (w, -w^2 / 2) under the tilted units.
    """

    gradient: np.ndarray
    marginals: np.ndarray
    jacobian: np.ndarray
    tilted: np.ndarray


def outer_step(problem, point, moments):
    """Newton's step on E by (mean, log precision) of the marginals.

    With C the covariances of (w, -w^2/2) under the marginals alone (Z), the tilted units (P) and
    the Gaussian (Q), the Hessian by the naturals is C_Z - (C_P^-1 + C_Q^-1)^-1. In the units of
    `OuterModel` C_Z is the identity. Where E is not convex the moduli of the eigenvalues are taken.
    Units that are not active are taken one by one.
    """
    mean, n = point.gaussian[0], problem.side.n_units
    model = _outer_model(problem, point, moments)
    step, sites = np.empty((2, 2, n))
    active = active_units(problem, point)
    step[:, active], sites[:, active] = _joint_step(problem, point, model, active)
    others = np.setdiff1d(np.arange(n), active)
    if others.size:
        step[:, others], sites[:, others] = _separate_steps(point, model, others)
    longest = abs(step).max()
    fraction = min(1.0, MAX_STEP / longest) if longest > 0 else 1.0
    step, sites = fraction * step, fraction * sites
    sites[0] += mean * sites[1]
    predicted_decrease = -(step * model.gradient).sum()
    step = np.stack([step[0] * np.sqrt(moments[1]), np.sqrt(2) * step[1]])
    return step, sites, predicted_decrease


def _outer_model(problem, point, moments):
    """The `OuterModel` at marginals of these moments, with the inner solution `point`."""
    precision, target = 1 / moments[1], _target(problem, point)
    r = (moments[0] - target[0]) * np.sqrt(precision)
    s = target[1] * precision
    to_precision = np.sqrt(2) * precision
    return OuterModel(
        gradient=np.stack([r, (s + r * r - 1) / np.sqrt(2)]),
        marginals=np.stack([np.ones(len(r)), np.sqrt(2) * r, s + r * r]),
        jacobian=np.stack(
            [np.sqrt(precision), (moments[0] - point.gaussian[0]) * to_precision, to_precision]
        ),
        tilted=np.array(unit_curvature(problem, point)),
    )


def _joint_step(problem, point, model, active):
    """Step and change of the sites, (2, n_active), of the active units together."""
    total = joint_curvature(problem, point, active, model.tilted)
    tilted, jacobian = _diagonals(model.tilted[:, active]), _diagonals(model.jacobian[:, active])
    marginals = _diagonals(model.marginals[:, active])
    tilted += np.triu(tilted, 1).T
    marginals += np.triu(marginals, 1).T
    right = tilted @ jacobian
    response = scaled_cholesky(total).solve(right)
    hessian = marginals + right.T @ response - jacobian.T @ right
    step = newton_step(hessian, model.gradient[:, active].ravel(), MIN_CURVATURE_OF_STEP)
    return step.reshape(2, -1), (response @ step).reshape(2, -1)


def _separate_steps(point, model, others):
    """Step and change of the sites, (2, n_others), of units one by one."""
    (P11, P12, P22), (J11, J12, J22), (E11, E12, E22) = (
        terms[:, others] for terms in (model.tilted, model.jacobian, model.marginals)
    )
    var = point.gaussian[1, others]
    tilted = np.moveaxis(np.array([[P11, P12], [P12, P22]]), 2, 0)
    total = tilted.copy()
    total[:, 0, 0] += var
    total[:, 1, 1] += var**2 / 2
    jacobian = np.moveaxis(np.array([[J11, J12], [0 * J11, J22]]), 2, 0)
    marginals = np.moveaxis(np.array([[E11, E12], [E12, E22]]), 2, 0)
    right = tilted @ jacobian
    response = np.linalg.solve(total, right)
    hessian = marginals + np.swapaxes(right, 1, 2) @ response - np.swapaxes(jacobian, 1, 2) @ right
    steps = newton_step(hessian, model.gradient[:, others].T, MIN_CURVATURE_OF_STEP)
    return steps.T, np.einsum("kij,kj->ik", response, steps)


def _diagonals(terms):
    """Matrix of shape (2 n, 2 n) with three diagonals; the lower left quarter is zero."""
    n = terms.shape[1]
    matrix = np.zeros((2 * n, 2 * n))
    matrix[:n, :n], matrix[:n, n:], matrix[n:, n:] = map(np.diag, terms)
    return matrix


def moved(moments, step, length):
    """Marginal moments after a step in (mean, log precision)."""
    return np.stack([moments[0] + length * step[0], moments[1] * np.exp(-length * step[1])])


class MomentsExtrapolation:
    """Extrapolation of a fixed-point iteration on (mean, log variance), in units of the sd."""

    def __init__(self):
        self.inputs, self.outputs = [], []

    def __call__(self, old, new):
        """Extrapolated moments, from marginal moments and those that one step gives."""
        scale = 1 / np.sqrt(new[1])
        self.inputs = [*self.inputs[-OUTER_MEMORY:], np.stack([old[0], np.log(old[1])])]
        self.outputs = [*self.outputs[-OUTER_MEMORY:], np.stack([new[0], np.log(new[1])])]
        if len(self.inputs) < 2:
            return new
        steps = np.stack(self.outputs) - np.stack(self.inputs)
        scaled = np.stack([steps[:, 0] * scale, steps[:, 1]], axis=1).reshape(len(steps), -1)
        differences = scaled[1:] - scaled[:-1]
        gram = differences @ differences.T
        gram.flat[:: len(gram) + 1] += 1e-12 * gram.trace() + 1e-300
        coefficients = np.linalg.solve(gram, differences @ scaled[-1])
        outputs = np.stack(self.outputs)
        target = outputs[-1] - np.tensordot(coefficients, outputs[1:] - outputs[:-1], 1)
        change = np.clip(target[1] - outputs[-1][1], -MAX_EXTRAPOLATION, MAX_EXTRAPOLATION)
        return np.stack([target[0], np.exp(outputs[-1][1] + change)])

    def reset(self):
        """Forget all steps."""
        self.inputs, self.outputs = [], []


class OuterPoint(NamedTuple):
    """Moments of the marginals, and the inner solution for them.

    Parameters
    ----------
    moments : array of shape (2, n_units)
    inner : InnerPoint
    energy : float
        E, exact up to what the inner problem was solved to.
    refined : bool
        Whether it was solved to rounding.
    """

    moments: np.ndarray
    inner: InnerPoint
    energy: float
    refined: bool = False


def double_loop(problem, state, trace):
    """Minimise the energy over the marginals: the last state, and whether it converged."""
    bounded = problem.min_site_precision > -np.inf
    moments = state.gaussian
    precision = 1e-3, max(1e-9, _rounding_error(problem, moments))
    inner = _solver(problem)(problem, natural(moments), state.site, *precision)
    if inner is None:
        return state, False
    anderson, point = MomentsExtrapolation(), OuterPoint(moments, inner, _energy(inner, moments))
    for _ in range(problem.max_iter):
        # At the inner solution Gaussian and tilted units have the same moments.
        residual = mismatch(point.moments, _target(problem, point.inner))
        inner_residual = 0.0 if bounded else point.inner.mismatch()
        trace.add(max(residual, inner_residual), lambda e=point.energy: float(e))
        if trace.residuals[-1] <= problem.tol:
            final = _state(problem, point.inner)
            if bounded or (final is not None and final.agrees(problem.tol)):
                return final or state, True
        if exhausted(problem):
            break
        new = _descend(problem, point, residual, anderson)
        if new is None:
            break
        point = new
    return _state(problem, point.inner) or state, False


def _descend(problem, point, residual, anderson):
    """The next point, or the same with the inner problem solved to rounding; None if stuck."""
    goals, predicted_decrease = _goals(problem, point, anderson)
    rounding = _rounding_error(problem, point.moments)
    # The energy must be known more exactly than its decrease; and so must the inner solution where
    # the marginals have converged, but not the state with its sites.
    lowest = 0.1 * problem.tol if residual > problem.tol else 0.0
    precision = (
        max(lowest, min(1e-3, 0.1 * residual)),
        max(min(1e-3 * predicted_decrease, 1e-9), rounding),
    )
    for goal, site in goals:
        new = _follow(problem, goal, point.inner, precision, site)
        if new is not None and new.energy <= point.energy + rounding:
            return new
        anderson.reset()
    # This cannot raise the energy if the inner problem is solved exactly.
    new = _follow(problem, _target(problem, point.inner), point.inner, precision)
    rise = np.inf if new is None else new.energy - point.energy
    if rise <= rounding:
        return new
    if not point.refined:
        return _refined(problem, point, rounding)
    return new if rise <= ENERGY_TOLERANCE * (abs(point.energy) + 1) + rounding else None


def _refined(problem, point, rounding):
    """The same point with the inner problem solved to rounding; None if that fails."""
    marginal = natural(point.moments)
    inner = _solver(problem)(problem, marginal, point.inner.site, 0.1 * problem.tol, rounding)
    if inner is None:
        return None
    return OuterPoint(point.moments, inner, _energy(inner, point.moments), refined=True)


def _solver(problem):
    """The solver of the inner problem, with or without a bound on precisions."""
    return bounded_maximise if problem.min_site_precision > -np.inf else maximise


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


def _rounding_error(problem, moments):
    """Rounding error of the energy, whose terms may be large, estimated."""
    return 1e-15 * (moments[0] ** 2 / moments[1]).sum() + 1e-15 * problem.side.n_units


def _goals(problem, point, anderson):
    """Marginal moments to try with sites to start from, and the predicted decrease of E."""
    moments, inner = point.moments, point.inner
    try:
        step, sites, predicted_decrease = outer_step(problem, inner, moments)
    except LinAlgError:
        return (), 0.0
    if not np.isfinite(step).all():
        return (), 0.0
    if problem.min_site_precision > -np.inf:
        return (), predicted_decrease
    goals = ((moved(moments, step, x), inner.site + x * sites) for x in LENGTHS)
    if not few_units(problem):
        extrapolated = anderson(moments, moved(moments, step, 1.0))
        goals = chain([(extrapolated, inner.site + sites)], goals)
    return goals, predicted_decrease


def _energy(inner, moments):
    """E at marginals of these moments, with the inner solution."""
    return inner.value + gaussian_log_partition(natural(moments))


def _follow(problem, moments, inner, precision, guess=None):
    """The point of new marginals, the inner problem started where cavities or sites are proper."""
    marginal, solve = natural(moments), _solver(problem)
    starts = inner.site, marginal - inner.cavity
    for site in starts if guess is None else (guess, *starts):
        new = solve(problem, marginal, site, *precision)
        if new is not None:
            return OuterPoint(moments, new, _energy(new, moments))
    return None
