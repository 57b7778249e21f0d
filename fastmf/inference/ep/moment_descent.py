"""Descent on the energy of expectation propagation as a function of the moments themselves.

Expectation propagation seeks means m and variances v that the Gaussian, with sites t, and the
units, under cavities c, have in common. For any such moments there is an energy

    G(m, v) = max over t of [-ln Z(t) + t1 m - t2 (m^2 + v) / 2]
            + sum max over c of [c1 m - c2 (m^2 + v) / 2 - ln Zhat(c)] + sum ln(2 pi e v) / 2

whose stationary points are the fixed points, with the value of the energy of the double loop there
(`double_loop`; it is the Gibbs free energy of Opper & Winther 2005). Its derivatives are

    by m:   t1 + c1 - (t2 + c2) m
    by v:   (1 / v - t2 - c2) / 2

With the sites as variables the moments are those of the Gaussian, and the first maximum needs no
search; the second is a search unit by unit (`match_cavities`). So one factorisation gives the
energy exactly, without an inner loop. The Hessian is

    by m:   X'X / s2 and a diagonal. All units together, by one more factorisation.
    by v:   with S the covariance, (S * S)^-1 / 2 and a diagonal. Off its diagonal, S * S matters
            for the most correlated units: those are taken together, the others one by one.

Decoupled means and variances are those of Seeger & Nickisch (2011), here in the quadratic model of
Newton's method instead of in nested loops. Levenberg's term, in units of the marginals' own
curvature, keeps steps short where the quadratic model is poor. For binary units, whose variance
follows from the mean, no cavity gives arbitrary m and v: see `mean_descent`.
"""

from typing import NamedTuple

import numpy as np
from numpy.linalg import LinAlgError

from fastmf._common.linalg import newton_step, solve_positive_definite
from fastmf.inference.ep.curvature import active_units, unit_curvature
from fastmf.inference.ep.sites import per_unit, state_with_moments
from fastmf.inference.gaussian.side import GaussianMoments
from fastmf.kernels.ep.sites import match_cavities

# Smallest curvature, in units of the diagonal, where the energy is not convex.
MIN_CURVATURE = 0.01
# Added to the diagonal of the squared correlations, so that they have an inverse.
RIDGE = 1e-12
# Largest change of a variance in a step, in units of it, where units are taken one by one.
MAX_RELATIVE_CHANGE = 2


class MomentPoint(NamedTuple):
    """Sites, the moments of the Gaussian, and cavities that give the units the same moments.

    Parameters
    ----------
    site, gaussian, cavity : array of shape (2, n_units)
    inverse : inverse of the Gaussian side
    log_partition : float
        Log-partition of the Gaussian.
    value : float
        The energy.
    rounding_error : float
        Rounding error of the energy, estimated.
    """

    site: np.ndarray
    gaussian: np.ndarray
    cavity: np.ndarray
    inverse: object
    log_partition: float
    value: float
    rounding_error: float

    @property
    def tilted(self):
        """Moments of the units under their cavities."""
        return self.gaussian

    def state(self, problem):
        """The state of expectation propagation with these sites."""
        moments = GaussianMoments(self.gaussian, self.log_partition)
        return state_with_moments(problem, self.site, moments)

    def step(self, problem, levenberg):
        """Newton's step from here, with this parameter of Levenberg's."""
        return MomentStep(problem, self, levenberg)


def first_point(problem, state):
    """The point of a state; None if no cavities give the units the moments of the Gaussian."""
    return evaluate(problem, state.site, state.cavity)


def evaluate(problem, site, cavity):
    """The point of these sites, cavities sought from those given; None outside the domain."""
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
    """Newton's step on the energy from a point, with Levenberg's term.

    Parameters
    ----------
    problem : EPProblem
    point : MomentPoint
    levenberg : float
        Levenberg's parameter.

    Attributes
    ----------
    derivative : float
        Derivative of the energy along the step.
    """

    def __init__(self, problem, point, levenberg):
        (mean, var), (t1, t2), (c1, c2) = point.gaussian, point.site, point.cavity
        self.problem, self.point = problem, point
        by_mean, by_var = t1 + c1 - (t2 + c2) * mean, (1 / var - c2 - t2) / 2
        by_means, mixed, by_vars = _unit_hessian(problem, point, levenberg)
        active = active_units(problem, point)
        others = np.ones(len(mean), bool)
        others[active] = False
        # The others' variances are eliminated.
        elimination = np.where(others, mixed / by_vars, 0.0)
        precision = np.maximum(by_means - elimination * mixed, t2)
        right = elimination * by_var - by_mean
        inverse = problem.side.inverse(precision)
        if inverse is None:
            raise LinAlgError("the Gaussian is not proper.")
        # Then the means, which leaves the active units' variances.
        scale = 1 / np.sqrt(by_vars[active])
        square = _squared_correlations(point.inverse.covariance(active), var[active])
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
        longest = MAX_RELATIVE_CHANGE * var
        change = np.where(others, np.clip(separate, -longest, longest), change)
        self.derivative = by_mean @ means + by_var @ change
        self.means = means
        self.fields = right + (t2 - precision) * means
        self.relative = -change / var
        self.relative[active] = solve_positive_definite(square, self.relative[active])

    def at(self, length):
        """The point at some length along the step; None outside the domain.

        Precisions that fall do so exponentially: that of an uncoupled unit stays positive.
        """
        (mean, var), (t1, t2) = self.point.gaussian, self.point.site
        relative = length * self.relative
        change = np.where(relative < 0, np.expm1(np.minimum(relative, 0)), relative) / var
        moved = mean + length * self.means
        site = np.stack([t1 + length * self.fields + change * moved, t2 + change])
        return evaluate(self.problem, site, self.point.cavity)


def _unit_hessian(problem, point, levenberg):
    """The units' part of the Hessian by m, by m and v, and by v, with Levenberg's term.

    That of S * S, the part of the Gaussian, is in the last one unit by unit.
    """
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


def _squared_correlations(covariance, var):
    """Squares of correlations, with a ridge."""
    square = covariance * covariance / (var[:, None] * var)
    square.flat[:: len(var) + 1] += RIDGE
    return square


def _variance_model(square, scale):
    """The Hessian by scaled variances of the active units, of which the diagonal is about 1."""
    inverse = solve_positive_definite(square, np.eye(len(square)))
    model = scale[:, None] * inverse * scale / 2
    model.flat[:: len(scale) + 1] += 1 - scale * scale / 2
    return model
