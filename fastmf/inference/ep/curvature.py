"""Curvatures of the energies: of every unit, and of the most correlated units together.

By the sites (t1, t2) the curvature of a log-partition is the covariance of (w, -w^2 / 2) under its
distribution. Centred at the Gaussian means, that of the Gaussian is block-diagonal, S and S * S / 2
with S the covariance of w; that of a tilted unit has its third and fourth cumulants, which are
derivatives of its variance by the linear tilt.
"""

from typing import NamedTuple

import numpy as np

from fastmf._common.linalg import ScaledCholesky, scaled_cholesky
from fastmf.inference.ep.sites import tilted_units
from fastmf.inference.gaussian.dense import Dense

# Up to so many units Newton's steps are with matrices of all units.
MAX_NEWTON_UNITS = 150
# With more, those are taken together in the curvature whose squared correlations with the others
# sum to more than this, at most so many: with 200 of 300, classes that are nearly separable take
# a hundred steps in place of 15.
MIN_SQUARED_CORRELATION, MAX_JOINT_UNITS = 0.03, 600
# Relative rise of all precisions by which the most correlated units are found.
PRECISION_RISE = 1e-3
# Step of the finite differences, in units of the scale of a unit.
RELATIVE_STEP = 1e-3
# Smallest square of a step, in units of the variance of a unit, by which second differences of
# variances that are accurate to 1e-13 have a few digits.
MIN_SQUARED_STEP = 1e-10


def few_units(problem):
    """Whether Newton's steps with matrices of all units are affordable."""
    return isinstance(problem.side, Dense) and problem.side.n_units <= MAX_NEWTON_UNITS


def unit_curvature(problem, point):
    """Covariance of (e, -e^2 / 2) under each tilted unit, where e = w - Gaussian mean."""
    (b, a), (mean, var) = point.cavity, point.tilted
    # The step must be small against the scale of the unit: that of the cavity, or that of the prior
    # if the cavity is flat.
    weak = 1 / (abs(a) + 1e-12)
    prior_scale = 100 * (1 / problem.prior_precision + mean * mean + var)
    h = RELATIVE_STEP / np.sqrt(np.minimum((b * weak) ** 2 + weak, prior_scale))
    third, fourth = _higher_cumulants(problem, point, h)
    # On a half-line a unit may be far from its cavity and much narrower: then differences are
    # nothing but rounding, and the scale is that of the tilted unit.
    impossible = ~((fourth + 2 * var**2) * var > third**2)
    lost = (impossible | (h * h * var < MIN_SQUARED_STEP)) & (abs(third) * h < 1e-5 * var)
    if lost.any():
        h = np.where(lost, RELATIVE_STEP / np.sqrt(np.maximum(var, 1e-300)), h)
        third, fourth = _higher_cumulants(problem, point, h)
    shift = mean - point.gaussian[0]
    mixed = -(third / 2 + shift * var)
    square = (fourth + 2 * var**2) / 4 + shift * third + shift**2 * var
    floor = mixed**2 / np.maximum(var, 1e-300)
    return var, mixed, np.where(square > floor, square, floor)


def _higher_cumulants(problem, point, h):
    """Third and fourth cumulants of the tilted units, from differences of these steps."""
    (b, a), var = point.cavity, point.tilted[1]
    (_, up), (_, down) = (tilted_units(problem, np.stack([b + s * h, a]))[0] for s in (1, -1))
    return (up - down) / (2 * h), (up - 2 * var + down) / h**2


def active_units(problem, point):
    """The units that are taken together: those correlated with the others.

    With r the correlations, sums of their squares are by how much variances fall when the
    precisions of all units rise together: d ln v_i = -sum_j r_ij^2 v_j dt2_j. (The part 1 - t2 v of
    a unit's precision from the others is no measure: with negative sites it may cancel.)
    """
    var, n = point.gaussian[1], problem.side.n_units
    if few_units(problem):
        return np.arange(n)
    raised = np.stack([point.site[0], point.site[1] + PRECISION_RISE / var])
    moments = problem.side.moments(raised)
    if moments is None:  # as rounding decides; any units do, only more slowly
        return np.arange(min(n, MAX_JOINT_UNITS))
    squared = (1 - moments.marginal[1] / var) / PRECISION_RISE - 1
    n_joint = np.clip((squared > MIN_SQUARED_CORRELATION).sum(), 1, MAX_JOINT_UNITS)
    return np.sort(np.argpartition(-squared, n_joint - 1)[:n_joint])


def joint_curvature(problem, point, active, unit):
    """Curvature of the inner objective by (t1, t2) of the active units, centred."""
    covariance = problem.side.covariance(point.site, active)
    n = len(active)
    curvature = np.zeros((2 * n, 2 * n))
    curvature[:n, :n] = covariance
    curvature[n:, n:] = covariance * covariance / 2
    first, mixed, second = unit[:, active]
    curvature[:n, n:] = curvature[n:, :n] = np.diag(mixed)
    curvature.flat[:: 2 * n + 1] += np.concatenate([first, second])
    return curvature


class InverseCurvature(NamedTuple):
    """Inverse of the curvature: the active units together, every other unit alone.

    Parameters
    ----------
    mean : array of shape (n_units,)
        Means of the Gaussian.
    first, mixed, second : array of shape (n_units,)
        Curvature of every unit alone by t1, by t1 and t2, and by t2.
    active : int array of shape (n_active,)
    joint : ScaledCholesky
        Factor of the curvature of the active units.
    """

    mean: np.ndarray
    first: np.ndarray
    mixed: np.ndarray
    second: np.ndarray
    active: np.ndarray
    joint: ScaledCholesky

    @classmethod
    def at(cls, problem, point):
        """The inverse of the curvature at an `InnerPoint`; LinAlgError if it is singular."""
        unit = np.array(unit_curvature(problem, point))
        mean, var = point.gaussian
        first, mixed, second = unit[0] + var, unit[1], unit[2] + var**2 / 2
        active = active_units(problem, point)
        joint = scaled_cholesky(joint_curvature(problem, point, active, unit))
        return cls(mean, first, mixed, second, active, joint)

    def __call__(self, vector):
        """Product with a vector of shape (2, n_units)."""
        # In coordinates (t1 - mean t2, t2), centred at the Gaussian means.
        one, two = vector[0], vector[1] + self.mean * vector[0]
        step = np.stack([self.second * one - self.mixed * two, self.first * two - self.mixed * one])
        step /= self.first * self.second - self.mixed**2
        right = np.concatenate([one[self.active], two[self.active]])
        step[:, self.active] = self.joint.solve(right).reshape(2, -1)
        step[0] += self.mean * step[1]
        return step
