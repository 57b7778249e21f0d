"""The inner problem of the convergent double loop: sites that maximise a concave function.

At fixed naturals V of the marginals, f(t) = -ln Z(t) - sum ln Zhat(V - t) is concave in the sites
t. Its gradient is the difference of the moments of the two sides, its curvature the sum of their
covariances of (w, -w^2/2). Centred at the Gaussian means the Gaussian's share is block-diagonal, S
and S * S / 2 with S the covariance of w. For few units the steps are Newton's; for many, those of
L-BFGS preconditioned by the curvature of the most correlated units together, and of each of
the others on its own.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from fastmf.inference.ep.sites import gap, tilt
from fastmf.inference.gaussian.dense import Dense

# Up to so many units the steps are Newton's.
NEWTON = 150
# With more, so many of them are taken together in the curvature.
JOINT = 200
# By which share of the marginals precisions rise to see who is coupled.
RISE = 1e-3
STEPS, MEMORY, HALVINGS = 200, 12, 40
# Passes of the bounded problem, each from where the last one has ended.
PASSES = 5


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


def few_units(problem):
    """Whether whole matrices of curvatures are affordable."""
    return isinstance(problem.side, Dense) and problem.side.n_units <= NEWTON


def evaluate(problem, marginal, site):
    """The inner objective at these sites; None outside its domain."""
    problem.evaluations[0] += 1
    moments = problem.side.moments(site)
    if moments is None or not (moments.marginal[1] > 0).all():
        return None
    cavity = marginal - site
    tilted, log_partition = tilt(problem, cavity)
    value = -moments.log_partition - log_partition
    if not (np.isfinite(value) and np.isfinite(tilted).all()):
        return None
    return Point(site, cavity, moments.marginal, tilted, value)


def exhausted(problem):
    """Whether the double loop has had its share of evaluations, which max_iter stands for."""
    share = 20 if few_units(problem) else 2
    return problem.evaluations[0] > share * problem.max_iter


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
    third, fourth = _higher_cumulants(problem, point, h)
    # On a half-line a unit may be far from its cavity and much narrower: then nothing but rounding
    # is left of differences.
    lost = ~((fourth + 2 * var**2) * var > third**2) & (abs(third) * h < 1e-5 * var)
    if lost.any():
        h = np.where(lost, 1e-3 / np.sqrt(np.maximum(var, 1e-300)), h)
        third, fourth = _higher_cumulants(problem, point, h)
    shift = mean - point.gaussian[0]
    mixed = -(third / 2 + shift * var)
    square = (fourth + 2 * var**2) / 4 + shift * third + shift**2 * var
    floor = mixed**2 / np.maximum(var, 1e-300)
    return var, mixed, np.where(square > floor, square, floor)


def _higher_cumulants(problem, point, h):
    """Third and fourth cumulants of the tilted units, from differences of these steps."""
    (b, a), var = point.cavity, point.tilted[1]
    (_, up), (_, down) = (tilt(problem, np.stack([b + s * h, a]))[0] for s in (1, -1))
    return (up - down) / (2 * h), (up - 2 * var + down) / h**2


def centred(mean, vector):
    """A gradient by (t1, t2) in coordinates (t1 - mean t2, t2)."""
    return np.stack([vector[0], vector[1] + mean * vector[0]])


def active_units(problem, point):
    """The units whose couplings the curvature knows: those most correlated with all the others.

    At most JOINT. Sums of squared correlations r are by how much variances fall when the precisions
    of all units rise together: d ln v_i = -sum_j r_ij^2 v_j dt2_j. (The share 1 - t2 v of a unit's
    precision that is not its own is no measure: with negative sites about, it may cancel.)
    """
    var, n = point.gaussian[1], problem.side.n_units
    if few_units(problem) or n <= JOINT:
        return np.arange(n)
    closer = problem.side.moments(np.stack([point.site[0], point.site[1] + RISE / var]))
    # Without proper moments, of a Gaussian that rounding decides on, any units do, only slower.
    left = var if closer is None else closer.marginal[1] / var
    return np.sort(np.argpartition(left, JOINT)[:JOINT])


def joint_curvature(problem, point, active, own):
    """Curvature of the inner objective by (t1, t2) of the active units, centred."""
    covariance = problem.side.covariance(point.site, active)
    n = len(active)
    curvature = np.zeros((2 * n, 2 * n))
    curvature[:n, :n] = covariance
    curvature[n:, n:] = covariance * covariance / 2
    var, mixed, square = own[:, active]
    curvature[:n, n:] = curvature[n:, :n] = np.diag(mixed)
    curvature.flat[:: 2 * n + 1] += np.concatenate([var, square])
    return curvature


def factorised(matrix):
    """A function that solves with a positive definite matrix of any scales."""
    scale = 1 / np.sqrt(matrix.diagonal())
    factor = cho_factor(scale[:, None] * matrix * scale, check_finite=False)

    def solve(right):
        column = scale if right.ndim == 1 else scale[:, None]
        return column * cho_solve(factor, column * right, check_finite=False)

    return solve


class Curvature:
    """Inverse of the curvature: the active units together, every other unit on its own."""

    def __init__(self, problem, point):
        own = np.array(unit_curvature(problem, point))
        self.mean, marginal = point.gaussian
        self.first, self.mixed, self.second = own
        self.first, self.second = self.first + marginal, self.second + marginal**2 / 2
        self.determinant = self.first * self.second - self.mixed**2
        self.active = active_units(problem, point)
        self.joint = factorised(joint_curvature(problem, point, self.active, own))

    def __call__(self, vector):
        """Product with a vector of shape (2, n_units)."""
        one, two = centred(self.mean, vector)
        step = np.stack([self.second * one - self.mixed * two, self.first * two - self.mixed * one])
        step /= self.determinant
        right = np.concatenate([one[self.active], two[self.active]])
        step[:, self.active] = self.joint(right).reshape(2, -1)
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
            self.inverse = Curvature(self.problem, point)
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


def maximise(problem, marginal, site, tol, decrement):
    """The sites that maximise the inner objective, from sites inside its domain.

    Ends when Newton's model promises less than `decrement`, and the two sides agree to `tol`.
    """
    point = evaluate(problem, marginal, site)
    if point is None:
        return None
    newton = few_units(problem)
    direction = QuasiNewton(problem)
    for _ in range(STEPS):
        distance = point.gap()
        gradient = point.gradient()
        try:
            step = Curvature(problem, point)(gradient) if newton else direction(point)
        except np.linalg.LinAlgError:
            newton, step = False, direction(point)
        slope = (step * gradient).sum()
        if not slope > 0:
            direction.forget()
            step = direction(point)
            slope = (step * gradient).sum()
        if (slope <= decrement and distance <= tol) or exhausted(problem):
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
    """The same with site and cavity precisions of at least `problem.least` (Eq. 13).

    Begins anew where a pass has ended, in other units, until that gains less than `decrement`.
    """
    most = np.maximum(marginal[1] - problem.least, problem.least)
    point = evaluate(problem, marginal, np.stack([site[0], np.clip(site[1], problem.least, most)]))
    for _ in range(PASSES if point is not None else 0):
        new = _bounded_pass(problem, marginal, point, most)
        if new is None or new.value <= point.value:
            break
        gained, point = new.value - point.value, new
        if gained <= decrement:
            break
    return point


def _bounded_pass(problem, marginal, point, most):
    from scipy.optimize import minimize  # costs more than all else at import

    n = len(most)
    # In units of the curvature of each unit alone, or quasi-Newton hardly moves.
    blocks = Curvature(problem, point)
    scale = np.stack([1 / np.sqrt(blocks.first), 1 / np.sqrt(blocks.second)])

    def objective(x):
        point = evaluate(problem, marginal, x.reshape(2, n) * scale)
        if point is None:
            return np.inf, np.zeros(2 * n)
        return -point.value, -(point.gradient() * scale).ravel()

    low = np.concatenate([np.full(n, -np.inf), np.full(n, problem.least) / scale[1]])
    high = np.concatenate([np.full(n, np.inf), most / scale[1]])
    found = minimize(
        objective, (point.site / scale).ravel(), jac=True, method="L-BFGS-B",
        bounds=np.stack([low, np.maximum(low, high)], axis=1),
        options={"maxiter": 500, "maxcor": 20, "ftol": 1e-14, "gtol": 1e-10},
    )  # fmt: skip
    return evaluate(problem, marginal, found.x.reshape(2, n) * scale)
