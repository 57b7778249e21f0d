"""Descent on the energy of adaptive TAP as a function of the means of binary units.

The mean of a two-valued unit determines its variance, so that only the means are free. With the
variances v(m), the quadratic form -Q of the couplings and the entropies H of the units, the energy
is

    E(m) = -Q(m) - sum H(m) + max over t2 of [ln det A - sum t2 v(m)] / 2 + sum ln(e v(m)) / 2

where A is the precision of the Gaussian with sites of precision t2: the energy of `moment_descent`
at v = v(m). The maximum is at the sites that give the Gaussian these variances; the problem is
concave and, in logarithms, close to a linear problem with the matrix R of squared correlations.
With the derivative u of ln v by m, the Hessian of E is

    A + diag(u) (R^-1 - 1) diag(u) / 2

The parallel schedule, whose step is A^-1, does not converge if many units are correlated: R^-1 - 1
is then far from positive, and A does not contain it.
"""

from typing import NamedTuple

import numpy as np
from numpy.linalg import LinAlgError

from fastmf._common.linalg import Cholesky, cholesky, newton_step
from fastmf.inference.ep.moment_descent import MIN_CURVATURE
from fastmf.inference.ep.sites import tilted_units
from fastmf.inference.gaussian.dense import Dense
from fastmf.kernels.ep.sites import MAX_STEPS

# Number of units up to which matrices of all units are affordable.
MAX_MATRIX_UNITS = 2500
# Error of the variance of a binary unit, and a term added to all variances, as smaller ones would
# be lost in rounding of inverse matrices; in units of the squared distance of the values.
VARIANCE_ROUNDING = 1e-10


class TwoValuedUnits(NamedTuple):
    """Units of two values, low and high, and their couplings as a matrix."""

    problem: object  # EPProblem
    low: np.ndarray
    high: np.ndarray
    form: Dense


class MatchingSites(NamedTuple):
    """Sites that give the Gaussian target variances, or start the search for such sites."""

    precision: np.ndarray  # (n_units,)
    marginal: np.ndarray  # (n_units,), variances of the Gaussian
    correlations: Cholesky  # factor of the squared correlations
    value: float  # maximum of half the log-determinant minus half of precisions times variances


class MeanPoint(NamedTuple):
    """Means, and sites that give the Gaussian the variances that the means determine."""

    units: TwoValuedUnits
    field: np.ndarray  # tilt of each unit that gives it its mean
    mean: np.ndarray
    var: np.ndarray
    sites: MatchingSites
    value: float  # the energy
    rounding_error: float  # of the energy, estimated

    def state(self, problem):
        """Return the state of expectation propagation with these sites."""
        precision = self.sites.precision
        linear = precision * self.mean - self.coupling_field()
        return problem.state_of(np.stack([linear, precision]))

    def step(self, _, levenberg):
        """Return Newton's step from this point, with a parameter of Levenberg's."""
        return MeanStep(self, levenberg)

    def coupling_field(self):
        """Compute the derivative of Q by the means."""
        return self.units.form.field - self.units.form.precision @ self.mean

    def log_variance_gradient(self):
        """Compute the derivatives u of ln v by the means."""
        return (self.units.low + self.units.high - 2 * self.mean) / self.var

    def gradient(self):
        """Compute the derivative of the energy by the means."""
        # The cavity precision of the Gaussian is, to first order, free of errors of its variance.
        cavity = 1 / self.sites.marginal - self.sites.precision
        by_var = self.log_variance_gradient() * self.var * cavity / 2
        return self.field - self.coupling_field() + by_var


def first_point(problem, state):
    """Return the point of the tilted means of a state; None if units are not binary or too many."""
    n, zero = problem.side.n_units, np.zeros(problem.side.n_units)
    if n > MAX_MATRIX_UNITS:
        return None
    low, high = (
        tilted_units(problem, np.stack([zero + field, zero]))[0][0]
        for field in (-1e6, 1e6)  # at which a unit has one of its values
    )
    (mean, var), _ = tilted_units(problem, np.stack([zero, zero]))
    size = (high - low) ** 2
    binary = abs((mean - low) * (high - mean) - var) <= 10 * VARIANCE_ROUNDING * size
    if not binary.all() or not size.all():
        return None
    units = TwoValuedUnits(problem, low, high, problem.side.dense())
    c1, c2 = state.cavity
    field = c1 - c2 * (low + high) / 2
    try:
        correlations = _correlations(problem.side.inverse(state.site[1]))
    except LinAlgError:
        return None
    start = MatchingSites(state.site[1], state.gaussian[1], correlations, np.nan)
    return evaluate(units, field, start)


def _correlations(inverse):
    """Factorise the squared correlations of a Gaussian, given as its `inverse`."""
    if inverse is None:
        raise LinAlgError("the Gaussian is not proper.")
    covariance = inverse.covariance(slice(None))
    scale = 1 / np.sqrt(covariance.diagonal())
    covariance *= scale[:, None]
    covariance *= scale
    np.square(covariance, out=covariance)
    covariance.flat[:: len(scale) + 1] += len(scale) * np.finfo(float).eps
    return cholesky(covariance, overwrite=True)


def evaluate(units, field, start):
    """Compute the point of these fields; None if no sites match its variances."""
    problem, form = units.problem, units.form
    (mean, var), log_partition = tilted_units(problem, np.stack([field, 0 * field]))
    var = var + VARIANCE_ROUNDING * (units.high - units.low) ** 2
    terms = np.stack([field * mean, -mean * (form.field - form.precision @ mean / 2), np.log(var)])
    rounding = 1e-15 * (abs(terms).sum() + abs(log_partition))
    terms[2] = (terms[2] + 1) / 2
    try:
        sites = _matching_sites(units, var, start, (0.1 * problem.tol) ** 2, rounding)
    except LinAlgError:
        return None
    if sites is None or not np.isfinite(terms).all():
        return None
    value = terms.sum() - log_partition + sites.value
    return MeanPoint(units, field, mean, var, sites, value, rounding)


def _matching_sites(units, var, start, error, rounding):
    """Find sites that give the Gaussian these variances; None if that fails.

    Stop when the value is accurate to `error`, or when rounding, estimated by `rounding`, prevents
    a rise.
    """
    side, linear = units.problem.side, -units.form.field
    precision, marginal, correlations, _ = start
    point, last = _matching_value(side, linear, var, precision), np.inf
    if point is None:
        return None
    value = point[2]
    for _ in range(MAX_STEPS):
        scale = np.sqrt(var * marginal)
        difference = (marginal - var) / scale
        step = correlations.solve(difference)
        derivative = step @ difference / 2
        if derivative <= error or last / 4 < derivative <= rounding:
            # The remaining rise is added: otherwise a larger error would mean a lower energy.
            return MatchingSites(precision, marginal, correlations, value + derivative / 2)
        length, last = 1.0, derivative
        while length > 1e-9:
            new = _matching_value(side, linear, var, precision + length * step / scale)
            enough = value + 1e-4 * length * derivative - 1e-13 * abs(value)
            if new is not None and new[2] >= enough:
                break
            length /= 2
        else:
            return None
        precision = precision + length * step / scale
        inverse, marginal, value = new
        correlations = _correlations(inverse)
    return None


def _matching_value(side, linear, var, precision):
    """Compute inverse, variances and value of `MatchingSites`; None if the Gaussian is improper."""
    inverse = side.inverse(precision)
    if inverse is None:
        return None
    moments = inverse.moments(linear)
    value = len(var) * np.log(2 * np.pi) / 2 - moments.log_partition - precision @ var / 2
    return (inverse, moments.marginal[1], value) if np.isfinite(value) else None


class MeanStep:
    """Newton's step on the energy, with Levenberg's term in units of the variances.

    `point` is the given one with recomputed sites; `derivative` is along the step.
    """

    def __init__(self, point, levenberg):
        units, n = point.units, len(point.mean)
        correlations = _correlations(units.problem.side.inverse(point.sites.precision))
        # To full accuracy, which costs little with correlations at this point.
        start = point.sites._replace(correlations=correlations)
        self.point = point = evaluate(units, point.field, start)
        if point is None:
            raise LinAlgError("the sites of the point are not found.")
        scale = np.sqrt(point.var)
        excess = correlations.solve(np.eye(n))
        excess.flat[:: n + 1] -= 1
        by_mean, gradient = scale * point.log_variance_gradient(), scale * point.gradient()
        hessian = by_mean[:, None] * excess * (by_mean / 2)
        hessian += scale[:, None] * units.form.precision * scale
        hessian.flat[:: n + 1] += point.sites.precision * point.var + levenberg
        longest = 2 / (units.high - units.low)  # two units of log-odds
        step = newton_step(hessian, gradient, MIN_CURVATURE) / scale
        self.fields = np.clip(step, -longest, longest)
        self.derivative = gradient @ (scale * self.fields)

    def at(self, length):
        """Return the point at a length along the step; None if no sites match its variances."""
        point = self.point
        return evaluate(point.units, point.field + length * self.fields, point.sites)
