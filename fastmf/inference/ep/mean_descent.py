"""Descent on the energy of adaptive TAP for units of two values, whose variance follows the mean.

Such units have no tilt for arbitrary moments, so that the means alone are free. With v(m) their
variances, -Q the quadratic form of the couplings and H the entropies of the units, the energy is

    E(m) = -Q(m) - sum H(m) + max over t2 of [ln det A - sum t2 v(m)] / 2 + sum ln(e v(m)) / 2

where A is the precision of the Gaussian with sites of precision t2: the energy of `descent` at
v = v(m). The maximum is at the sites that give the Gaussian these variances; the problem is
concave and, in logarithms, close to a linear one whose matrix is R, the squared correlations. With
u the derivative of ln v by m, the Hessian of E is

    A + diag(u) (R^-1 - 1) diag(u) / 2

so that regular expectation propagation, whose step is A^-1, is lost where many units are
correlated: R^-1 - 1 is then far from positive, and A does not know it.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from fastmf.inference.ep.moment_descent import downhill
from fastmf.inference.ep.sites import state_of, tilt

# Matrices of all units are made: beyond so many they are too large.
MOST = 2500
# Where the values of a unit are seen.
FAR = 1e6
# Share of the largest variance that all variances are raised by: below, those of the sites would be
# lost in the rounding of their inverses.
RAISED = 1e-10
# Longest change of log-odds in a step.
LONGEST = 2.0
# Steps towards the sites that match the variances, how often correlations are computed anew, and
# what the energy may be wrong by, as a share of the fall that is promised.
MATCHING, RENEWED, WRONG = 60, 6, 1e-3
HALVINGS = 30


class Units(NamedTuple):
    """Units of two values that couplings hold together.

    Parameters
    ----------
    problem : Problem
    low, high : array of shape (n_units,)
        Their values.
    form : Dense
        The couplings as a matrix.
    """

    problem: object
    low: np.ndarray
    high: np.ndarray
    form: object


class Point(NamedTuple):
    """Means, and sites that give the Gaussian the variances that go with them.

    Parameters
    ----------
    units : Units
    field : array of shape (n_units,)
        Tilt of each unit that gives it its mean.
    mean, var : array of shape (n_units,)
    precision : array of shape (n_units,)
        Of the sites.
    marginal : array of shape (n_units,)
        Variances of the Gaussian.
    correlations : tuple
        Factor of the squared correlations.
    value, noise : float
        The energy, and what rounding may do to it.
    """

    units: Units
    field: np.ndarray
    mean: np.ndarray
    var: np.ndarray
    precision: np.ndarray
    marginal: np.ndarray
    correlations: tuple
    value: float
    noise: float

    def state(self, problem):
        """The state of regular expectation propagation at these sites."""
        linear = self.precision * self.mean - self.pull()
        return state_of(problem, np.stack([linear, self.precision]))

    def step(self, _, caution):
        """Newton's step from here, with this parameter of Levenberg's."""
        return Step(self, caution)

    def pull(self):
        """Derivative of Q: what the units do to each other."""
        return self.units.form.field - self.units.form.precision @ self.mean

    def slopes(self):
        """Derivatives of ln v by the means."""
        return (self.units.low + self.units.high - 2 * self.mean) / self.var

    def gradient(self):
        """Derivative of the energy by the means."""
        # Cavities of the Gaussian do not feel by how much their own variance is off.
        cavity = 1 / self.marginal - self.precision
        return self.field - self.pull() + self.slopes() * self.var * cavity / 2


def first_point(problem, state):
    """The point with the tilted means of a state; None if it is not for these units."""
    n, zero = problem.side.n_units, np.zeros(problem.side.n_units)
    if n > MOST:
        return None
    low, high = (tilt(problem, np.stack([zero + side, zero]))[0][0] for side in (-FAR, FAR))
    (mean, var), _ = tilt(problem, np.stack([zero, zero]))
    size = (high - low) ** 2
    if not (abs((mean - low) * (high - mean) - var) <= 1e-9 * size).all() or not size.all():
        return None
    units = Units(problem, low, high, problem.side.dense())
    c1, c2 = state.cavity
    field = c1 - c2 * (low + high) / 2
    inverse = problem.side.inverse(state.site[1])
    if inverse is None:
        return None
    correlations = _correlations(inverse)
    return _point(units, field, state.site[1], state.gaussian[1], correlations, 0.0)


def _correlations(inverse):
    """Factor of the squared correlations of a Gaussian."""
    covariance = inverse.covariance(slice(None))
    scale = 1 / np.sqrt(covariance.diagonal())
    covariance *= scale[:, None]
    covariance *= scale
    np.square(covariance, out=covariance)
    covariance.flat[:: len(scale) + 1] += 1e-12
    return cho_factor(covariance, lower=True, overwrite_a=True, check_finite=False)


def _point(units, field, precision, marginal, correlations, fall):
    """The point of these fields, its sites sought from others; None if they are not found."""
    problem, form = units.problem, units.form
    (mean, var), log_partition = tilt(problem, np.stack([field, 0 * field]))
    var = var + RAISED * (units.high - units.low) ** 2
    terms = np.stack([field * mean, -mean * (form.field - form.precision @ mean / 2), np.log(var)])
    noise = 1e-15 * (abs(terms).sum() + abs(log_partition))
    terms[2] = (terms[2] + 1) / 2
    error = max(WRONG * fall, (0.1 * problem.tol) ** 2)
    found = _matching(problem.side, form, var, precision, marginal, correlations, error, noise)
    if found is None or not np.isfinite(terms).all():
        return None
    precision, marginal, correlations, gaussian = found
    value = terms.sum() - log_partition + gaussian
    return Point(units, field, mean, var, precision, marginal, correlations, value, noise)


def _matching(side, form, var, precision, marginal, correlations, error, noise):
    """Precisions of sites that give the Gaussian these variances, from others.

    Ends when less than `error` is to be gained, or no step gets nearer because of rounding, which
    makes less than `noise`.

    Returns
    -------
    tuple or None
        Precisions, variances, factor of the squared correlations, and half the log-determinant
        less the product of precisions and variances.
    """
    plain = -form.field
    offset = len(var) * np.log(2 * np.pi) / 2

    def evaluated(precision):
        inverse = side.inverse(precision)
        if inverse is None:
            return None
        moments = inverse.moments(plain)
        value = offset - moments.log_partition - precision @ var / 2
        return (inverse, moments.marginal[1], value) if np.isfinite(value) else None

    start, before = evaluated(precision), np.inf
    if start is None:
        return None
    value = start[2]
    for k in range(MATCHING):
        scale = np.sqrt(var * marginal)
        rest = (marginal - var) / scale
        step = cho_solve(correlations, rest, check_finite=False)
        slope = step @ rest / 2
        if slope <= error or before / 4 < slope <= noise:
            # With what is left to gain, or points would seem lower the less they are known.
            return precision, marginal, correlations, value + slope / 2
        length, before = 1.0, slope
        for _ in range(HALVINGS):
            new = evaluated(precision + length * step / scale)
            if new is not None and new[2] >= value + 1e-4 * length * slope - 1e-13 * abs(value):
                break
            length /= 2
        else:
            return None
        precision = precision + length * step / scale
        inverse, marginal, value = new
        if length < 1 or k % RENEWED == RENEWED - 1:
            correlations = _correlations(inverse)
    return None


class Step:
    """Newton's step on the energy from a point, with Levenberg's term in units of the variances.

    Parameters
    ----------
    point : Point
    caution : float
        Levenberg's parameter.

    Attributes
    ----------
    slope : float
        Derivative of the energy along the step.
    """

    def __init__(self, point, caution):
        units, n = point.units, len(point.mean)
        correlations = _correlations(units.problem.side.inverse(point.precision))
        # Known better than on the way here: with these correlations that costs little.
        point = _point(units, point.field, point.precision, point.marginal, correlations, 0.0)
        if point is None:
            raise LinAlgError("the sites of the point are not to be had.")
        self.point = point
        scale = np.sqrt(point.var)
        inverse = cho_solve(correlations, np.eye(n), check_finite=False)
        inverse.flat[:: n + 1] -= 1
        slopes, gradient = scale * point.slopes(), scale * point.gradient()
        hessian = slopes[:, None] * inverse * (slopes / 2)
        hessian += scale[:, None] * units.form.precision * scale
        hessian.flat[:: n + 1] += point.precision * point.var + caution
        longest = LONGEST / (units.high - units.low)
        step = -downhill((hessian + hessian.T) / 2, gradient) / scale
        self.fields = np.clip(step, -longest, longest)
        self.slope = gradient @ (scale * self.fields)

    def at(self, length):
        """The point at some length along the step; None if there is none."""
        point = self.point
        fall = -length * self.slope
        return _point(point.units, point.field + length * self.fields, point.precision,
                      point.marginal, point.correlations, fall)  # fmt: skip
