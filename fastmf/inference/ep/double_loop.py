"""The convergent double loop: an energy that never increases, and ends at a fixed point.

With V = t + c the naturals of the units' marginals (t the sites, c the cavities), fixed points of
expectation propagation are the stationary points of

    E(V) = max over t of [-ln Z(t) - sum ln Zhat(V - t)] + sum ln Ztilde(V)

where Z is the Gaussian with sites, Zhat the tilted units and Ztilde the marginals on their own. The
inner problem is concave; setting V to the naturals of the moments at its solution cannot increase E
(Opper & Winther 2005; Hernández-Lobato & Hernández-Lobato 2011, Eqs. 19 and 28). On the natural
domain (A positive definite, tilted moments finite) the inner objective falls to minus infinity at
the border by itself, so that no bounds are needed, and negative precisions are as good as others.

The inner problem is solved in `inner_loop`. Outside, Newton's steps on E (with all but the most
correlated units on their own, and Anderson acceleration, if there are many) are accepted if the
energy falls, and the closed-form update is taken otherwise.
"""

from itertools import chain

import numpy as np

from fastmf.inference.ep.inner_loop import (
    active_units,
    bounded_maximise,
    exhausted,
    factorised,
    few_units,
    joint_curvature,
    maximise,
    natural,
    unit_curvature,
)
from fastmf.inference.ep.sites import gap, gaussian_log_partition, state_of
from fastmf.kernels.sites import STIFFEST

OUTER_MEMORY = 6
# Outer steps: smallest curvature, and longest step, in units of the plain update.
FLATTEST, LONGEST = 1e-6, 2.0


def outer_step(problem, point, moments):
    """Newton's step on E by (mean, log precision) of the marginals, in units that make it safe.

    With C the covariances of (w, -w^2/2) under the marginals alone (Z), the tilted units (P) and
    the Gaussian (Q), the Hessian by the naturals is C_Z - (C_P^-1 + C_Q^-1)^-1. In units of the
    standard deviation and of sqrt(2) in the logarithm C_Z is the identity. Where E is not convex
    the moduli of the eigenvalues are taken. Units that are not active are taken one by one.

    Returns
    -------
    step : array of shape (2, n_units)
    sites : array of shape (2, n_units)
        How the sites at the inner solution follow.
    fall : float
        By how much E falls along the step, to first order.
    """
    mean, marginal = point.gaussian
    n, own = len(mean), np.array(unit_curvature(problem, point))
    precision, target = 1 / moments[1], _target(problem, point)
    r = (moments[0] - target[0]) * np.sqrt(precision)
    s = target[1] * precision
    gradient = np.stack([r, (s + r * r - 1) / np.sqrt(2)])
    # Of the first-order terms, what the change of coordinates adds to the identity.
    extra = np.sqrt(2) * r, s + r * r
    # Change of the naturals, centred at the Gaussian mean, by the two coordinates.
    J22 = np.sqrt(2) * precision
    jacobian = np.sqrt(precision), (moments[0] - mean) * J22, J22
    step, sites = np.empty((2, n)), np.empty((2, n))

    active = active_units(problem, point)
    total = joint_curvature(problem, point, active, own)
    spread, change = (_two_by_two(*(x[active] for x in parts)) for parts in (own, jacobian))
    spread += np.triu(spread, 1).T
    right = spread @ change
    response = factorised(total)(right)
    identity = _two_by_two(np.ones(len(active)), *(x[active] for x in extra))
    identity += np.triu(identity, 1).T
    hessian = identity + right.T @ response - change.T @ right
    flat = _downhill(hessian, gradient[:, active].ravel())
    step[:, active], sites[:, active] = flat.reshape(2, -1), (response @ flat).reshape(2, -1)

    others = np.setdiff1d(np.arange(n), active)
    if others.size:
        (P11, P12, P22), (J11, J12, J22) = own[:, others], (x[others] for x in jacobian)
        spread = np.moveaxis(np.array([[P11, P12], [P12, P22]]), 2, 0)
        total = spread.copy()
        total[:, 0, 0] += marginal[others]
        total[:, 1, 1] += marginal[others] ** 2 / 2
        change = np.moveaxis(np.array([[J11, J12], [0 * J11, J22]]), 2, 0)
        right = spread @ change
        response = np.linalg.solve(total, right)
        mixed, second = (x[others] for x in extra)
        identity = np.moveaxis(np.array([[1 + 0 * mixed, mixed], [mixed, second]]), 2, 0)
        hessian = np.swapaxes(right, 1, 2) @ response - np.swapaxes(change, 1, 2) @ right
        each = _downhill(identity + hessian, gradient[:, others].T)
        step[:, others], sites[:, others] = each.T, np.einsum("kij,kj->ik", response, each)

    longest = abs(step).max()
    share = min(1.0, LONGEST / longest) if longest > 0 else 1.0
    step, sites = share * step, share * sites
    sites[0] += mean * sites[1]
    fall = -(step * gradient).sum()
    return np.stack([step[0] * np.sqrt(moments[1]), np.sqrt(2) * step[1]]), sites, fall


def _two_by_two(first, mixed, second):
    """Matrix of shape (2 n, 2 n) with three diagonals; the lower left quarter is zero."""
    n = len(first)
    matrix = np.zeros((2 * n, 2 * n))
    matrix[:n, :n], matrix[:n, n:], matrix[n:, n:] = map(np.diag, (first, mixed, second))
    return matrix


def _downhill(hessian, gradient):
    """Newton's step with the moduli of the eigenvalues, for one problem or many."""
    values, vectors = np.linalg.eigh((hessian + np.swapaxes(hessian, -1, -2)) / 2)
    along = np.einsum("...ji,...j->...i", vectors, gradient)
    return -np.einsum("...ij,...j->...i", vectors, along / np.maximum(abs(values), FLATTEST))


def moved(moments, step, length):
    """Marginal moments after a step in (mean, log precision)."""
    return np.stack([moments[0] + length * step[0], moments[1] * np.exp(-length * step[1])])


class Anderson:
    """Extrapolation of a fixed-point iteration on (mean, log variance), in units of the sd."""

    def __init__(self):
        self.inputs, self.outputs = [], []

    def __call__(self, old, new):
        """From marginal moments and those that one step gives: where to go."""
        weight = 1 / np.sqrt(new[1])
        self.inputs = [*self.inputs[-OUTER_MEMORY:], np.stack([old[0], np.log(old[1])])]
        self.outputs = [*self.outputs[-OUTER_MEMORY:], np.stack([new[0], np.log(new[1])])]
        if len(self.inputs) < 2:
            return new
        steps = np.stack(self.outputs) - np.stack(self.inputs)
        weighted = np.stack([steps[:, 0] * weight, steps[:, 1]], axis=1).reshape(len(steps), -1)
        differences = weighted[1:] - weighted[:-1]
        gram = differences @ differences.T
        gram.flat[:: len(gram) + 1] += 1e-12 * gram.trace() + 1e-300
        shares = np.linalg.solve(gram, differences @ weighted[-1])
        outputs = np.stack(self.outputs)
        target = outputs[-1] - np.tensordot(shares, outputs[1:] - outputs[:-1], 1)
        jump = np.clip(target[1] - outputs[-1][1], -3, 3)
        return np.stack([target[0], np.exp(outputs[-1][1] + jump)])

    def forget(self):
        """Drop the past."""
        self.inputs, self.outputs = [], []


def double_loop(problem, state, trace):
    """Minimise the energy over the marginals: the last state, and whether it converged."""
    bounded = problem.least > -np.inf
    inner = bounded_maximise if bounded else maximise
    moments = state.gaussian
    noise = _noise(problem, moments)
    point = inner(problem, natural(moments), state.site, 1e-3, max(1e-9, noise))
    if point is None:
        return state, False
    anderson, energy, refined = Anderson(), _energy(point, moments), False
    full = few_units(problem)
    for _ in range(problem.max_iter):
        # At the inner solution both sides have the same moments.
        residual = gap(moments, _target(problem, point))
        trace.add(max(residual, 0.0 if bounded else point.gap()), lambda e=energy: float(e))
        if trace.residuals[-1] <= problem.tol:
            final = _state(problem, point, bounded)
            if bounded or (final is not None and final.residual() <= problem.tol):
                return final or state, True
        if exhausted(problem):
            break
        goals, slope = _goals(problem, point, moments, full, anderson)
        noise = _noise(problem, moments)
        # The energy must be known better than it is about to fall.
        precise = (
            max(0.1 * problem.tol, min(1e-3, 0.1 * residual)),
            max(min(1e-3 * slope, 1e-9), noise),
        )
        new = None
        for goal, site in () if bounded else goals:
            new = _follow(inner, problem, goal, point, precise, site)
            if new is not None and _energy(new, goal) <= energy + noise:
                break
            anderson.forget()
            new = None
        if new is None:
            # Whatever happens, this cannot raise the energy.
            goal = _target(problem, point)
            new = _follow(inner, problem, goal, point, precise)
        if new is None or _energy(new, goal) > energy + 1e-9 * (abs(energy) + 1) + noise:
            # Unless the energy was not known well enough.
            exact = inner(problem, natural(moments), point.site, 0.1 * problem.tol, noise)
            if refined or exact is None:
                break
            point, energy, refined = exact, _energy(exact, moments), True
            continue
        point, moments, energy, refined = new, goal, _energy(new, goal), False
    return _state(problem, point, bounded) or state, False


def _state(problem, point, bounded):
    """The state at the sites of a point; under a bound with the cavities of the point.

    Where a bound holds, the Gaussian does not have the moments of the units: what it leaves of its
    marginals beside the sites is neither bounded nor what the energy was minimised over.
    """
    state = state_of(problem, point.site)
    if state is None or not bounded:
        return state
    return state._replace(cavity=point.cavity, tilted=point.tilted)


def _target(problem, point):
    """Moments of the tilted units; those that are pinned down keep a variance."""
    mean, var = point.tilted
    stiffest = STIFFEST * np.maximum(abs(point.cavity[1]), problem.own)
    return np.stack([mean, np.maximum(var, 1 / stiffest)])


def _noise(problem, moments):
    """What rounding does to the energy, whose terms may be large."""
    return 1e-15 * (moments[0] ** 2 / moments[1]).sum() + 1e-15 * problem.side.n_units


def _goals(problem, point, moments, full, anderson):
    """Marginal moments to try, the most promising ones first; and the fall that is promised."""
    try:
        step, sites, slope = outer_step(problem, point, moments)
    except np.linalg.LinAlgError:
        return (), 0.0
    if not np.isfinite(step).all():
        return (), 0.0
    lengths = (1.0, 0.3, 0.1)
    goals = ((moved(moments, step, x), point.site + x * sites) for x in lengths)
    if not full:
        goals = chain([(anderson(moments, moved(moments, step, 1.0)), point.site + sites)], goals)
    return goals, slope


def _energy(point, moments):
    return point.value + gaussian_log_partition(natural(moments))


def _follow(inner, problem, moments, point, precise, guess=None):
    """The inner solution for new marginals, started so that cavities or sites stay proper."""
    marginal = natural(moments)
    starts = point.site, marginal - point.cavity
    for site in starts if guess is None else (guess, *starts):
        new = inner(problem, marginal, site, *precise)
        if new is not None:
            return new
    return None
