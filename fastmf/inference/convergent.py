"""The convergent double loop: an energy that never increases, and ends at a fixed point.

With V = t + c the naturals of the units' marginals (t the sites, c the cavities), fixed points of
expectation propagation are the stationary points of

    E(V) = max over t of [-ln Z(t) - sum ln Zhat(V - t)] + sum ln Ztilde(V)

where Z is the Gaussian with sites, Zhat the tilted units and Ztilde the marginals on their own. The
inner problem is concave; setting V to the naturals of the moments at its solution cannot increase E
(Opper & Winther 2005; Hernández-Lobato & Hernández-Lobato 2011, Eqs. 19 and 28). On the natural
domain (A positive definite, tilted moments finite) the inner objective falls to minus infinity at
the border by itself, so that no bounds are needed, and negative precisions are as good as others.

Inner solver: Newton for few units; for many, L-BFGS preconditioned by the curvature of each unit on
its own. Centred at the Gaussian means the covariance of the statistics (w, -w^2/2) under the
Gaussian is block-diagonal, S and S * S / 2 (S the covariance of w). Outer solver: Anderson
acceleration of the closed-form update, each result accepted only if the energy fell, and the plain
update taken otherwise.
"""

from itertools import chain
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

from fastmf.inference.gaussian import Dense
from fastmf.inference.sites import gap, gaussian_log_partition, state_of, tilt
from fastmf.kernels.sites import STIFFEST

# Up to so many units the inner steps are Newton's.
NEWTON = 150
INNER_STEPS, MEMORY, HALVINGS = 200, 12, 40
OUTER_MEMORY = 6
# Outer steps: smallest curvature, and longest step, in units of the plain update.
FLATTEST, LONGEST = 1e-6, 2.0


class Point(NamedTuple):
    """The inner objective at some sites, and all that its derivatives need.

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

    def gap(self):
        """Largest difference of a mean or variance between the two sides."""
        return gap(self.gaussian, self.tilted)


def evaluate(problem, marginal, site):
    """The inner objective at these sites; None outside its domain."""
    moments = problem.side.moments(site)
    if moments is None or not (moments.marginal[1] > 0).all():
        return None
    cavity = marginal - site
    tilted, log_partition = tilt(problem, cavity)
    value = -moments.log_partition - log_partition
    if not (np.isfinite(value) and np.isfinite(tilted).all()):
        return None
    return Point(site, cavity, moments.marginal, tilted, value)


def natural(moments):
    """Naturals of independent Gaussians with these means and variances."""
    return np.stack([moments[0] / moments[1], 1 / moments[1]])


def unit_curvature(problem, point):
    """Covariance of (e, -e^2/2) under each tilted unit, where e = w - Gaussian mean."""
    (b, a), (mean, var) = point.cavity, point.tilted
    # Third and fourth cumulants are derivatives of the variance by b. The step must be small
    # against the scale of the unit: that of the cavity, or that of the prior if the cavity is flat.
    weak = 1 / (abs(a) + 1e-12)
    scale = np.minimum((b * weak) ** 2 + weak, 100 * (1 / problem.own + mean * mean + var))
    h = 1e-3 / np.sqrt(scale)
    (_, up), (_, down) = (tilt(problem, np.stack([b + s * h, a]))[0] for s in (1, -1))
    third, fourth = (up - down) / (2 * h), (up - 2 * var + down) / h**2
    shift = mean - point.gaussian[0]
    mixed = -(third / 2 + shift * var)
    square = (fourth + 2 * var**2) / 4 + shift * third + shift**2 * var
    floor = mixed**2 / np.maximum(var, 1e-300)
    return var, mixed, np.where(square > floor, square, floor)


def centred(mean, vector):
    """A gradient by (t1, t2) in coordinates (t1 - mean t2, t2)."""
    return np.stack([vector[0], vector[1] + mean * vector[0]])


def newton_step(problem, point):
    """Newton's step from the full curvature."""
    var, mixed, square = unit_curvature(problem, point)
    covariance = problem.side.covariance(point.site)
    n = len(var)
    curvature = np.empty((2 * n, 2 * n))
    curvature[:n, :n] = covariance
    curvature[n:, n:] = covariance * covariance / 2
    curvature[:n, n:] = curvature[n:, :n] = np.diag(mixed)
    curvature.flat[:: 2 * n + 1] += np.concatenate([var, square])
    mean = point.gaussian[0]
    right = centred(mean, point.gradient()).ravel()
    # Sites of very different precision: to a unit diagonal first.
    scale = 1 / np.sqrt(curvature.diagonal())
    factor = cho_factor(scale[:, None] * curvature * scale, check_finite=False)
    step = (scale * cho_solve(factor, scale * right, check_finite=False)).reshape(2, n)
    step[0] += mean * step[1]
    return step


class Preconditioner:
    """Inverse of the curvature with every unit on its own."""

    def __init__(self, problem, point):
        var, mixed, square = unit_curvature(problem, point)
        self.mean, marginal = point.gaussian
        self.first, self.mixed, self.second = var + marginal, mixed, square + marginal**2 / 2
        self.determinant = self.first * self.second - mixed**2

    def __call__(self, vector):
        """Product with a vector of shape (2, n_units)."""
        one, two = centred(self.mean, vector)
        step = np.stack([self.second * one - self.mixed * two, self.first * two - self.mixed * one])
        step /= self.determinant
        step[0] += self.mean * step[1]
        return step


class QuasiNewton:
    """L-BFGS steps: products of past steps and changes of the gradient correct the curvature."""

    def __init__(self, problem):
        self.problem, self.pairs, self.last, self.age = problem, [], None, 0

    def __call__(self, point):
        """The next step uphill."""
        gradient = point.gradient()
        if self.last is not None:
            s, y = point.site - self.last[0], self.last[1] - gradient
            if (s * y).sum() > 1e-12 * np.sqrt((s * s).sum() * (y * y).sum()):
                self.pairs = [*self.pairs[-MEMORY + 1 :], (s, y, 1 / (s * y).sum())]
        if self.age % 5 == 0:
            self.inverse = Preconditioner(self.problem, point)
        self.age += 1
        self.last = point.site, gradient
        q, shares = gradient, []
        for s, y, rho in reversed(self.pairs):
            shares.append(rho * (s * q).sum())
            q = q - shares[-1] * y
        step = self.inverse(q)
        for (s, y, rho), share in zip(self.pairs, reversed(shares), strict=True):
            step = step + s * (share - rho * (y * step).sum())
        return step

    def forget(self):
        """Start again from the plain curvature."""
        self.pairs, self.last, self.age = [], None, 0


def outer_step(problem, point, moments, full):
    """Newton's step on E by (mean, log precision) of the marginals, in units that make it safe.

    With C the covariances of (w, -w^2/2) under the marginals alone (Z), the tilted units (P) and
    the Gaussian (Q), the Hessian by the naturals is C_Z - (C_P^-1 + C_Q^-1)^-1. In units of the
    standard deviation and of sqrt(2) in the logarithm C_Z is the identity. Where E is not convex
    the moduli of the eigenvalues are taken. Unless `full`, every unit is on its own.
    """
    mean, marginal = point.gaussian
    n = len(mean)
    P = np.array(unit_curvature(problem, point))
    precision = 1 / moments[1]
    target = _target(problem, point)
    r = (moments[0] - target[0]) * np.sqrt(precision)
    s = target[1] * precision
    gradient = np.stack([r, (s + r * r - 1) / np.sqrt(2)])
    # Change of the naturals, centred at the Gaussian mean, by the two coordinates.
    J11, J22 = np.sqrt(precision), np.sqrt(2) * precision
    J12 = (moments[0] - mean) * J22
    if full:
        covariance = problem.side.covariance(point.site)
        total = np.zeros((2 * n, 2 * n))
        total[:n, :n], total[n:, n:] = covariance, covariance * covariance / 2
        spread = np.zeros((2 * n, 2 * n))
        spread[:n, :n], spread[n:, n:] = np.diag(P[0]), np.diag(P[2])
        spread[:n, n:] = spread[n:, :n] = np.diag(P[1])
        jacobian = np.zeros((2 * n, 2 * n))
        jacobian[:n, :n], jacobian[:n, n:] = np.diag(J11), np.diag(J12)
        jacobian[n:, n:] = np.diag(J22)
        total += spread
        scale = 1 / np.sqrt(total.diagonal())
        factor = cho_factor(scale[:, None] * total * scale, check_finite=False)
        right = spread @ jacobian
        solved = cho_solve(factor, scale[:, None] * right, check_finite=False)
        response = scale[:, None] * solved
        hessian = right.T @ response - jacobian.T @ right
        hessian[:n, :n] += np.eye(n)
        hessian[:n, n:] += np.sqrt(2) * np.diag(r)
        hessian[n:, :n] += np.sqrt(2) * np.diag(r)
        hessian[n:, n:] += np.diag(s + r * r)
        flat = gradient.ravel()
    else:
        spread = np.moveaxis(np.array([[P[0], P[1]], [P[1], P[2]]]), 2, 0)
        total = spread.copy()
        total[:, 0, 0] += marginal
        total[:, 1, 1] += marginal**2 / 2
        jacobian = np.moveaxis(np.array([[J11, J12], [0 * J11, J22]]), 2, 0)
        right = spread @ jacobian
        response = np.linalg.solve(total, right)
        hessian = np.swapaxes(right, 1, 2) @ response
        hessian -= np.swapaxes(jacobian, 1, 2) @ right
        own = np.moveaxis(
            np.array([[1 + 0 * r, np.sqrt(2) * r], [np.sqrt(2) * r, s + r * r]]), 2, 0
        )
        hessian += own
        flat = gradient.T
    values, vectors = np.linalg.eigh((hessian + np.swapaxes(hessian, -1, -2)) / 2)
    along = np.einsum("...ji,...j->...i", vectors, flat)
    along /= np.maximum(abs(values), FLATTEST)
    step = -np.einsum("...ij,...j->...i", vectors, along)
    longest = abs(step).max()
    step *= min(1.0, LONGEST / longest) if longest > 0 else 1.0
    # How the sites at the inner solution follow the marginals.
    sites = np.einsum("...ij,...j->...i", response, step)
    step, sites = (x.reshape(2, n) if full else x.T for x in (step, sites))
    slope = (step * gradient).sum()
    sites = np.stack([sites[0] + mean * sites[1], sites[1]])
    return np.stack([step[0] * np.sqrt(moments[1]), np.sqrt(2) * step[1]]), sites, slope


def moved(moments, step, length):
    """Marginal moments after a step in (mean, log precision)."""
    return np.stack([moments[0] + length * step[0], moments[1] * np.exp(-length * step[1])])


def maximise(problem, marginal, site, tol, decrement):
    """The sites that maximise the inner objective, from sites inside its domain.

    Ends when Newton's model promises less than `decrement`, and the two sides agree to `tol`.
    """
    point = evaluate(problem, marginal, site)
    if point is None:
        return None
    newton = isinstance(problem.side, Dense) and problem.side.n_units <= NEWTON
    direction = QuasiNewton(problem)
    for _ in range(INNER_STEPS):
        distance = point.gap()
        gradient = point.gradient()
        try:
            step = newton_step(problem, point) if newton else direction(point)
        except np.linalg.LinAlgError:
            newton, step = False, direction(point)
        slope = (step * gradient).sum()
        if not slope > 0:
            direction.forget()
            step = direction(point)
            slope = (step * gradient).sum()
        if slope <= decrement and distance <= tol:
            break
        rounding = 1e-13 * (abs(point.value) + 1) * 10
        length, new = 1.0, None
        for _ in range(HALVINGS):
            trial = evaluate(problem, marginal, point.site + length * step)
            if trial is not None and (
                trial.value >= point.value + 1e-4 * length * slope
                or (length * slope < rounding and trial.gap() < distance)
            ):
                new = trial
                break
            length /= 2 if length > 0.1 else 5
        if new is None:
            break
        point = new
    return point


def bounded_maximise(problem, marginal, site, tol, decrement):
    """The same with site and cavity precisions of at least `problem.least` (Eq. 13)."""
    least, n = problem.least, len(site[0])
    start = np.stack([site[0], np.clip(site[1], least, np.maximum(marginal[1] - least, least))])
    first = evaluate(problem, marginal, start)
    if first is None:
        return None
    # In units of the curvature of each unit alone, or quasi-Newton hardly moves.
    blocks = Preconditioner(problem, first)
    scale = np.stack([1 / np.sqrt(blocks.first), 1 / np.sqrt(blocks.second)])

    def objective(x):
        point = evaluate(problem, marginal, x.reshape(2, n) * scale)
        if point is None:
            return np.inf, np.zeros(2 * n)
        return -point.value, -(point.gradient() * scale).ravel()

    low = np.concatenate([np.full(n, -np.inf), np.full(n, least) / scale[1]])
    high = np.maximum((marginal[1] - least) / scale[1], low[n:])
    bounds = np.stack([low, np.concatenate([np.full(n, np.inf), high])], axis=1)
    found = minimize(
        objective, (start / scale).ravel(), jac=True, method="L-BFGS-B", bounds=bounds,
        options={"maxiter": 500, "maxcor": 20, "ftol": 1e-14, "gtol": 1e-10},
    )  # fmt: skip
    return evaluate(problem, marginal, found.x.reshape(2, n) * scale)


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
    full = isinstance(problem.side, Dense) and problem.side.n_units <= NEWTON
    for _ in range(problem.max_iter):
        # At the inner solution both sides have the same moments.
        residual = gap(moments, _target(problem, point))
        trace.add(max(residual, 0.0 if bounded else point.gap()), lambda e=energy: float(e))
        if trace.residuals[-1] <= problem.tol:
            final = state_of(problem, point.site)
            if bounded or (final is not None and final.residual() <= problem.tol):
                return final or state, True
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
    return state_of(problem, point.site) or state, False


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
        step, sites, slope = outer_step(problem, point, moments, full)
    except np.linalg.LinAlgError:
        return (), 0.0
    if not np.isfinite(step).all():
        return (), 0.0
    lengths = (1.0, 0.3, 0.1)
    goals = ((moved(moments, step, x), point.site + x * sites) for x in lengths)
    if not full:
        goals = chain([(anderson(moments, moved(moments, step, 1.0)), point.site + sites)], goals)
    return goals, -slope


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
