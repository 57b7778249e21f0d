"""Descent on the energy of expectation propagation as a function of the moments.

Expectation propagation seeks means m and variances v that the Gaussian, with sites t, and the
units, under cavities c, have in common. The energy of any moments is

    G(m, v) = max over t of [-ln Z(t) + t1 m - t2 (m^2 + v) / 2]
            + sum max over c of [c1 m - c2 (m^2 + v) / 2 - ln Zhat(c)] + sum ln(2 pi e v) / 2

whose stationary points are the fixed points, with the value of the energy of the double loop there
(`double_loop`; it is the Gibbs free energy of Opper & Winther 2005). Its derivatives are

    by m:   t1 + c1 - (t2 + c2) m
    by v:   (1 / v - t2 - c2) / 2

With the sites as variables, m and v are the moments of the Gaussian, so that the first maximum
needs no search; the second is a search unit by unit (`match_cavities`). So one factorisation gives
the energy exactly, without an inner loop. The Hessian is

    by m:   X'X / s2 and a diagonal. All units together, by one more factorisation.
    by v:   with S the covariance, (S * S)^-1 / 2 and a diagonal. Off its diagonal, S * S matters
            for the most correlated units, which are solved jointly; all others one by one.

Means and variances are decoupled as in Seeger & Nickisch (2011), but in the quadratic model of
Newton's method, not in nested loops. Levenberg's term, in units of the curvature of the marginals,
keeps steps short where the quadratic model is poor. For binary units, whose mean determines the
variance, no cavity gives arbitrary m and v: see `mean_descent`.
"""

from typing import NamedTuple

import numpy as np
from numpy.linalg import LinAlgError

from fastmf._common.linalg import newton_step, solve_positive_definite
from fastmf.inference.ep.sites import per_unit, state_with_moments, tilted_units
from fastmf.inference.gaussian.dense import GaussianMoments
from fastmf.kernels.ep.sites import match_cavities

# Smallest curvature, in units of the diagonal, where the energy is not convex.
MIN_CURVATURE = 0.01
# Units whose squared correlations sum to more than this are solved jointly, up to a number, for
# speed: without the bound, 200 x 500 columns of correlation .95 take four times as long; with 200
# of 300 units, nearly separable classes take a hundred steps instead of 15.
MIN_SQUARED_CORRELATION, MAX_JOINT_UNITS = 0.003, 600
# Step of finite differences, in units of the scale of a unit.
DIFFERENCE_STEP = 1e-3


class MomentPoint(NamedTuple):
    """Sites, the moments of the Gaussian, and cavities that give the units the same moments."""

    site: np.ndarray  # (2, n_units), as are the next two
    gaussian: np.ndarray
    cavity: np.ndarray
    inverse: object  # of the Gaussian side
    log_partition: float  # of the Gaussian
    value: float
    rounding_error: float  # of the value, estimated

    @property
    def tilted(self):
        """Moments of the units under their cavities, equal to the moments of the Gaussian."""
        return self.gaussian

    def state(self, problem):
        """Return the state of expectation propagation with these sites."""
        moments = GaussianMoments(self.gaussian, self.log_partition)
        return state_with_moments(problem, self.site, moments)

    def step(self, problem, levenberg):
        """Return Newton's step from this point, with a parameter of Levenberg's."""
        return MomentStep(problem, self, levenberg)


def first_point(problem, state):
    """Return the point of a state; None if no cavities match the moments of the Gaussian."""
    return evaluate(problem, state.site, state.cavity)


def evaluate(problem, site, cavity):
    """Compute the point of these sites, searching cavities from the given ones, or None."""
    inverse = problem.side.inverse(site[1])
    if inverse is None:
        return None
    moments = inverse.moments(site[0])
    mean, var = moments.marginal
    if not (var > 0).all():
        return None
    outputs = cavity, log_partition = cavity.copy(), np.empty(len(mean))
    per_unit(match_cavities, problem, (problem.prior_precision, moments.marginal), outputs)
    second = (mean * mean + var) / 2
    terms = np.stack([*(site * [mean, -second]), *(cavity * [mean, -second]), -log_partition,
                      np.log(2 * np.pi * np.e * var) / 2])  # fmt: skip
    value = terms.sum() - moments.log_partition
    if not np.isfinite(value):
        return None
    sizes = abs(terms).sum() + abs(moments.log_partition) + abs(problem.side.constant)
    error = 1e-15 * sizes
    return MomentPoint(site, moments.marginal, cavity, inverse, moments.log_partition, value, error)


class MomentStep:
    """Newton's step on the energy from a point, with Levenberg's term; `derivative` is along it."""

    def __init__(self, problem, point, levenberg):
        (mean, var), (t1, t2), (c1, c2) = point.gaussian, point.site, point.cavity
        self.problem, self.point = problem, point
        by_mean, by_var = t1 + c1 - (t2 + c2) * mean, (1 / var - c2 - t2) / 2
        by_means, mixed, by_vars = _unit_hessian(problem, point, levenberg)
        active = active_units(problem, point)
        single = np.ones(len(mean), bool)
        single[active] = False
        # Eliminate the variances of single units.
        elimination = np.where(single, mixed / by_vars, 0.0)
        precision = np.maximum(by_means - elimination * mixed, t2)
        right = elimination * by_var - by_mean
        inverse = problem.side.inverse(precision)
        if inverse is None:
            raise LinAlgError("the Gaussian is not proper.")
        # Eliminate the means, which leaves the variances of active units.
        scale = 1 / np.sqrt(by_vars[active])
        # Squares of correlations, with a ridge that makes them invertible.
        square = point.inverse.covariance(active) ** 2 / (var[active][:, None] * var[active])
        square.flat[:: len(square) + 1] += len(square) * np.finfo(float).eps
        coupling = mixed[active] * scale
        model = _variance_model(square, scale / var[active])
        model -= coupling[:, None] * inverse.covariance(active) * coupling
        gradient = by_var[active] * scale + coupling * inverse.solve(right)[active]
        change = np.zeros(len(mean))
        change[active] = scale * newton_step(model, gradient, MIN_CURVATURE)
        right[active] -= mixed[active] * change[active]
        means = inverse.solve(right)
        separate = -(by_var + mixed * means) / by_vars
        # Longer steps are beyond the quadratic model.
        change = np.where(single, np.clip(separate, -2 * var, 2 * var), change)
        self.derivative = by_mean @ means + by_var @ change
        self.means = means
        self.fields = right + (t2 - precision) * means
        self.relative = -change / var
        self.relative[active] = solve_positive_definite(square, self.relative[active])

    def at(self, length):
        """Return the point at a length along the step; None outside the domain.

        Decreasing precisions decrease exponentially, so that they stay positive without couplings.
        """
        (mean, var), (t1, t2) = self.point.gaussian, self.point.site
        relative = length * self.relative
        change = np.where(relative < 0, np.expm1(np.minimum(relative, 0)), relative) / var
        moved = mean + length * self.means
        site = np.stack([t1 + length * self.fields + change * moved, t2 + change])
        return evaluate(self.problem, site, self.point.cavity)


def _unit_hessian(problem, point, levenberg):
    """Compute the diagonal Hessian by m, by m and v, and by v, with Levenberg's term."""
    var, c2 = point.gaussian[1], point.cavity[1]
    first, mixed, second = unit_curvature(problem, point)
    determinant = first * second - mixed * mixed
    if not (determinant > 0).all():
        raise LinAlgError("the curvature of a unit is lost in rounding.")
    return (
        second / determinant - c2 + levenberg / var,
        mixed / determinant / 2,
        first / determinant / 4 + levenberg / (2 * var * var),
    )


def _variance_model(square, scale):
    """Compute the Hessian by scaled variances of the active units; its diagonal is about 1."""
    inverse = solve_positive_definite(square, np.eye(len(square)))
    model = scale[:, None] * inverse * scale / 2
    model.flat[:: len(scale) + 1] += 1 - scale * scale / 2
    return model


def unit_curvature(problem, point):
    """Compute the covariance of (e, -e^2 / 2) under each tilted unit, e = w - Gaussian mean."""
    (b, a), (mean, var) = point.cavity, point.tilted
    # The step must be small against the scale of the unit: of the cavity, or of the prior
    # if the cavity is flat.
    weak = 1 / (abs(a) + 1e-12)
    prior_scale = 100 * (1 / problem.prior_precision + mean * mean + var)
    h = DIFFERENCE_STEP / np.sqrt(np.minimum((b * weak) ** 2 + weak, prior_scale))
    third, fourth = _higher_cumulants(problem, point, h)
    # On a half-line a unit may be far from its cavity and much narrower: then differences of
    # variances, which are accurate to 1e-13, are rounding. Use the scale of the tilted unit.
    impossible = ~((fourth + 2 * var**2) * var > third**2)
    lost = (impossible | (h * h * var < 1e-10)) & (abs(third) * h < 1e-5 * var)
    if lost.any():
        h = np.where(lost, DIFFERENCE_STEP / np.sqrt(np.maximum(var, 1e-300)), h)
        third, fourth = _higher_cumulants(problem, point, h)
    shift = mean - point.gaussian[0]
    mixed = -(third / 2 + shift * var)
    square = (fourth + 2 * var**2) / 4 + shift * third + shift**2 * var
    floor = mixed**2 / np.maximum(var, 1e-300)
    return var, mixed, np.where(square > floor, square, floor)


def _higher_cumulants(problem, point, h):
    """Compute third and fourth cumulants of the tilted units, by differences with steps h."""
    (b, a), var = point.cavity, point.tilted[1]
    (_, up), (_, down) = (tilted_units(problem, np.stack([b + s * h, a]))[0] for s in (1, -1))
    return (up - down) / (2 * h), (up - 2 * var + down) / h**2


def active_units(problem, point):
    """Return the units that are solved jointly: the most correlated ones.

    The sum of the squared correlations r of a unit is the relative decrease of its variance when
    the precisions of all units rise: d ln v_i = -sum_j r_ij^2 v_j dt2_j. (The part 1 - t2 v of the
    precision that comes from neighbours is not suitable: with negative sites it may cancel.)
    """
    var = point.gaussian[1]
    rise = 1e-3  # a finite difference
    moments = problem.side.moments(np.stack([point.site[0], point.site[1] + rise / var]))
    if moments is None:  # because of rounding; any choice works, but more slowly
        return np.arange(min(len(var), MAX_JOINT_UNITS))
    squared = (1 - moments.marginal[1] / var) / rise - 1
    n_joint = np.clip((squared > MIN_SQUARED_CORRELATION).sum(), 1, MAX_JOINT_UNITS)
    return np.sort(np.argpartition(-squared, n_joint - 1)[:n_joint])
