"""What expectation propagation does site by site: cavities, tilted moments, new sites.

A site is a factor exp(t1 w - t2 w^2 / 2) that stands for the prior of one unit. With the mean m and
variance v of the unit under the Gaussian that has the sites in place of the priors,

    cavity            c1 = m / v - t1,  c2 = 1 / v - t2
    tilted moments    (mean, var) of the prior times exp(c1 w - c2 w^2 / 2)
    new site          t1 = mean / var - c1,  t2 = 1 / var - c2

so that Gaussian and tilted unit have the same moments. Pairs of natural parameters, and of moments,
are arrays of shape (2, n_units). The couplings between units belong to the Gaussian
(`fastmf.inference.gaussian`): here all units are independent.
"""

from typing import NamedTuple

import numpy as np

from fastmf._intrinsics import fetch_and_increment, larger, smaller
from fastmf._numba import kernel
from fastmf.priors._compiled import tilted_log_partition, tilted_moments

# Units that a worker takes at a time.
BLOCK_UNITS = 256
# Largest precision of a tilted unit, in units of that of its cavity (or of its prior, if larger):
# beyond, the precision of the cavity would be lost in the rounding of that of the marginal.
MAX_RELATIVE_PRECISION = 1e9
# Matching moments: largest number of Newton's steps, and of trial points in each; the relative
# mismatch that ends them, and the one that is accepted if rounding stops them earlier.
MAX_STEPS, MAX_TRIALS = 60, 30
GOAL_MISMATCH, ACCEPTED_MISMATCH = 1e-12, 1e-7


class SiteSettings(NamedTuple):
    """How new sites are made of tilted moments.

    Parameters
    ----------
    prior_precision : array of shape (n_units,)
        Inverse second moments of the units under their priors alone.
    damping : float
        Weight of the old site in the new one.
    min_precision : float
        Smallest precision of a new site; -inf for none.
    """

    prior_precision: np.ndarray
    damping: float
    min_precision: float


class TiltedUnit(NamedTuple):
    """A unit with a tilt exp(b w - a w^2 / 2), as arrays of one element.

    Parameters
    ----------
    b, a, mean, var, log_z : array of shape (1,)
    """

    b: np.ndarray
    a: np.ndarray
    mean: np.ndarray
    var: np.ndarray
    log_z: np.ndarray


@kernel
def tilt_sites(units, cavity, queue, tilted, log_partition):
    """Moments and log-partition of every unit under the tilt of its cavity.

    Parameters
    ----------
    units : Units
    cavity : array of shape (2, n_units)
        Tilt exp(c1 w - c2 w^2 / 2).
    queue : int64 array of shape (1,)
        Next block of units to be done; shared by all threads that call this.
    tilted : array of shape (2, n_units)
        Filled with means and variances.
    log_partition : array of shape (n_units,)
        Filled.
    """
    n_units = cavity.shape[1]
    while True:
        first = fetch_and_increment(queue) * BLOCK_UNITS
        if first >= n_units:
            break
        last = smaller(first + BLOCK_UNITS, n_units)
        b, a = cavity[0, first:last], cavity[1, first:last]
        tilted_moments(units, first, b, a, tilted[0, first:last], tilted[1, first:last])
        tilted_log_partition(units, first, b, a, log_partition[first:last])


@kernel
def match_sites(units, settings, gaussian, site, queue, cavity, tilted, proposal):
    """New sites that give each unit the moments of its prior under the cavity.

    Parameters
    ----------
    units : Units
    settings : SiteSettings
    gaussian : array of shape (2, n_units)
        Means and variances of the Gaussian that has the sites in place of the prior.
    site : array of shape (2, n_units)
        Its sites: linear coefficients and precisions.
    queue : int64 array of shape (1,)
        Next block of units to be done; shared by all threads that call this.
    cavity, tilted, proposal : array of shape (2, n_units)
        Filled with the cavities, the tilted means and variances, and the new sites. A unit whose
        tilted moments do not exist keeps its site.
    """
    n_units = site.shape[1]
    while True:
        first = fetch_and_increment(queue) * BLOCK_UNITS
        if first >= n_units:
            break
        last = smaller(first + BLOCK_UNITS, n_units)
        for i in range(first, last):
            precision = 1 / gaussian[1, i]
            cavity[0, i] = gaussian[0, i] * precision - site[0, i]
            cavity[1, i] = precision - site[1, i]
        mean, var = tilted[0, first:last], tilted[1, first:last]
        tilted_moments(units, first, cavity[0, first:last], cavity[1, first:last], mean, var)
        for i in range(first, last):
            t1, t2 = site[0, i], site[1, i]
            if np.isfinite(tilted[0, i]) and tilted[1, i] < np.inf:
                both = (tilted[0, i], tilted[1, i]), (cavity[0, i], cavity[1, i])
                t1, t2 = new_site(settings, i, *both, (t1, t2))
            proposal[0, i], proposal[1, i] = t1, t2


@kernel(inline=True)
def new_site(settings, i, tilted, cavity, site):
    """The site (t1, t2) of unit i that gives it the tilted mean and variance, damped."""
    (mean, var), (c1, c2), (t1, t2) = tilted, cavity, site
    damping = settings.damping
    precision = smaller(
        1 / var, MAX_RELATIVE_PRECISION * larger(abs(c2), settings.prior_precision[i])
    )
    precision = c2 + larger(precision - c2, settings.min_precision)
    return (
        (1 - damping) * (mean * precision - c1) + damping * t1,
        (1 - damping) * (precision - c2) + damping * t2,
    )


@kernel
def match_cavities(units, prior_precision, marginal, queue, cavity, log_partition):
    """Cavities under which the units have given means and variances.

    Parameters
    ----------
    units : Units
    prior_precision : array of shape (n_units,)
        Inverse second moments of the units under their priors alone: the scale of each.
    marginal : array of shape (2, n_units)
        Means and variances wanted.
    queue : int64 array of shape (1,)
        Next block of units to be done; shared by all threads that call this.
    cavity : array of shape (2, n_units)
        On entry where to start; filled with the tilts exp(c1 w - c2 w^2 / 2).
    log_partition : array of shape (n_units,)
        Filled with the log-partitions of the tilted units; NaN where no tilt gives such moments.

    Notes
    -----
    The cavity maximises the concave c1 m - c2 (m^2 + v) / 2 - log Zhat(c), unit by unit: Newton's
    method, with a line search. Third and fourth cumulants are differences of variances.
    """
    n_units = cavity.shape[1]
    unit = TiltedUnit(np.empty(1), np.empty(1), np.empty(1), np.empty(1), np.empty(1))
    differences = np.empty((3, 1))
    while True:
        first = fetch_and_increment(queue) * BLOCK_UNITS
        if first >= n_units:
            break
        for i in range(first, smaller(first + BLOCK_UNITS, n_units)):
            wanted = marginal[0, i], marginal[1, i]
            unit.b[0], unit.a[0] = cavity[0, i], cavity[1, i]
            _start(units, i, unit, wanted)
            matched = _match(units, i, prior_precision[i], wanted, unit, differences)
            cavity[0, i], cavity[1, i] = unit.b[0], unit.a[0]
            log_partition[i] = unit.log_z[0] if matched else np.nan


@kernel(inline=True)
def _tilt(units, i, unit):
    """Moments and log-partition of unit i under its tilt."""
    tilted_moments(units, i, unit.b, unit.a, unit.mean, unit.var)
    tilted_log_partition(units, i, unit.b, unit.a, unit.log_z)


@kernel(inline=True)
def _start(units, i, unit, wanted):
    """Tilt unit i; by the naturals of the moments wanted where it has no moments as it is."""
    mean, var = wanted
    _tilt(units, i, unit)
    exist = np.isfinite(unit.log_z[0]) and np.isfinite(unit.mean[0])
    if not (exist and 0 < unit.var[0] < np.inf):
        unit.b[0], unit.a[0] = mean / var, 1 / var
        _tilt(units, i, unit)


@kernel(inline=True)
def _mismatch(unit, wanted):
    """Largest relative difference between the moments of a unit and those wanted."""
    mean, var = wanted
    return larger(abs(unit.mean[0] - mean) / np.sqrt(var), abs(unit.var[0] - var) / var)


@kernel(inline=True)
def _match(units, i, prior_precision, wanted, unit, differences):
    """Newton's method from the tilt of unit i; whether its moments are those wanted."""
    matched = False
    for _ in range(MAX_STEPS):
        mismatch = _mismatch(unit, wanted)
        matched = mismatch <= ACCEPTED_MISMATCH
        if mismatch <= GOAL_MISMATCH or not mismatch < np.inf:
            break
        step = _step(units, i, prior_precision, wanted, unit, differences)
        if not _search(units, i, wanted, unit, step, mismatch):
            break
    return matched


@kernel(inline=True)
def _step(units, i, prior_precision, wanted, unit, differences):
    """Newton's step of the tilt, and the derivative of the objective along it."""
    (m, v), mean, var = wanted, unit.mean[0], unit.var[0]
    none, up, down = differences[0], differences[1], differences[2]
    # Covariance of (w - mean, -(w - mean)^2 / 2), and the gradient likewise centred.
    weak = 1 / (abs(unit.a[0]) + 1e-12)
    scale = smaller((unit.b[0] * weak) ** 2 + weak, 100 * (1 / prior_precision + mean**2 + var))
    h, centre = 1e-3 / np.sqrt(scale), unit.b[0]
    unit.b[0] = centre + h
    tilted_moments(units, i, unit.b, unit.a, none, up)
    unit.b[0] = centre - h
    tilted_moments(units, i, unit.b, unit.a, none, down)
    unit.b[0] = centre
    mixed = -(up[0] - down[0]) / (4 * h)
    square = ((up[0] - 2 * var + down[0]) / h**2 + 2 * var**2) / 4
    square = larger(square, (1 + 1e-6) * mixed**2 / var)
    error = m - mean
    second = -(error * error + v - var) / 2
    determinant = var * square - mixed**2
    step2 = (var * second - mixed * error) / determinant
    step1 = (square * error - mixed * second) / determinant
    return step1 + mean * step2, step2, error * step1 + second * step2


@kernel(inline=True)
def _search(units, i, wanted, unit, step, mismatch):
    """Line search along a step; whether one of the trials is better, else the unit is as it was."""
    m, v = wanted
    b, a, (step1, step2, derivative) = unit.b[0], unit.a[0], step
    value, length = b * m - a * (m * m + v) / 2 - unit.log_z[0], 1.0
    for _ in range(MAX_TRIALS):
        unit.b[0], unit.a[0] = b + length * step1, a + length * step2
        _tilt(units, i, unit)
        new = unit.b[0] * m - unit.a[0] * (m * m + v) / 2 - unit.log_z[0]
        enough = value + 1e-4 * length * derivative
        better = new >= enough or _mismatch(unit, wanted) < mismatch / 2
        if better and unit.var[0] > 0 and np.isfinite(unit.log_z[0]):
            return True
        length /= 3
    unit.b[0], unit.a[0] = b, a
    tilted_log_partition(units, i, unit.b, unit.a, unit.log_z)
    return False
