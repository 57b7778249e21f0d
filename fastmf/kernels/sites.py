"""What expectation propagation does site by site: cavities, tilted moments, new sites.

A site is a factor exp(t1 w - t2 w^2 / 2) that stands for the prior of one unit. Pairs of natural
parameters, and of moments, are arrays of shape (2, n_units). The couplings between the units are
somebody else's business (`fastmf.inference.gaussian`): here all units are independent.
"""

import numpy as np

from fastmf._numba import fetch_and_increment, kernel
from fastmf.priors._protocol import tilted_log_partition, tilted_moments

# Units that one task of a worker is about.
UNITS = 256
# A unit that the tilt pins down gets at most so many times the precision of its cavity (or of its
# prior, if the cavity has less): beyond, the cavity would be lost in the rounding of the marginal.
STIFFEST = 1e9
# Matching moments: largest number of Newton's steps, and of trials in each; the relative gap that
# ends them, and the one that is good enough if rounding stops them earlier.
MATCHING, HALVINGS = 60, 30
CLOSEST, CLOSE = 1e-12, 1e-7


@kernel
def tilt_sites(prior, cavity, queue, tilted, log_partition):
    """Moments and log-partition of every unit under the tilt of its cavity.

    Parameters
    ----------
    prior : unit prior
    cavity : array of shape (2, n_units)
        Tilt exp(c1 w - c2 w^2 / 2).
    queue : int64 array of shape (1,)
        Next block of units that nobody has taken; shared by all threads that call this.
    tilted : array of shape (2, n_units)
        Filled with means and variances.
    log_partition : array of shape (n_units,)
        Filled.
    """
    n_units = cavity.shape[1]
    while True:
        first = fetch_and_increment(queue) * UNITS
        if first >= n_units:
            break
        last = min(first + UNITS, n_units)
        b, a = cavity[0, first:last], cavity[1, first:last]
        tilted_moments(prior, first, b, a, tilted[0, first:last], tilted[1, first:last])
        for i in range(first, last):
            one = slice(i, i + 1)
            log_partition[i] = tilted_log_partition(prior, i, cavity[0, one], cavity[1, one])


@kernel
def match_sites(prior, own, gaussian, site, damping, least, queue, cavity, tilted, proposal):
    """New sites that give each unit the moments of its prior under the cavity.

    Parameters
    ----------
    prior : unit prior
    own : array of shape (n_units,)
        Precisions of the uncoupled units: the scale of each.
    gaussian : array of shape (2, n_units)
        Means and variances of the Gaussian that has the sites in place of the prior.
    site : array of shape (2, n_units)
        Its sites: linear coefficients and precisions.
    damping : float
        Share of the old site in the new one.
    least : float
        New sites have at least this precision (-inf: any).
    queue : int64 array of shape (1,)
        Next block of units that nobody has taken; shared by all threads that call this.
    cavity, tilted, proposal : array of shape (2, n_units)
        Filled with the cavities, the tilted means and variances, and the new sites. A unit whose
        tilted moments do not exist keeps its site.
    """
    n_units = site.shape[1]
    while True:
        first = fetch_and_increment(queue) * UNITS
        if first >= n_units:
            break
        last = min(first + UNITS, n_units)
        for i in range(first, last):
            precision = 1 / gaussian[1, i]
            cavity[0, i] = gaussian[0, i] * precision - site[0, i]
            cavity[1, i] = precision - site[1, i]
        mean, var = tilted[0, first:last], tilted[1, first:last]
        tilted_moments(prior, first, cavity[0, first:last], cavity[1, first:last], mean, var)
        for i in range(first, last):
            m, v, c1, c2 = tilted[0, i], tilted[1, i], cavity[0, i], cavity[1, i]
            t1, t2 = site[0, i], site[1, i]
            if np.isfinite(m) and v < np.inf:
                precision = min(1 / v, STIFFEST * max(abs(c2), own[i]))
                precision = c2 + max(precision - c2, least)
                t1 = (1 - damping) * (m * precision - c1) + damping * t1
                t2 = (1 - damping) * (precision - c2) + damping * t2
            proposal[0, i], proposal[1, i] = t1, t2


@kernel
def match_cavities(prior, own, marginal, queue, cavity, log_partition):
    """Cavities under which the units have given means and variances.

    Parameters
    ----------
    prior : unit prior
    own : array of shape (n_units,)
        Precisions of the uncoupled units: the scale of each.
    marginal : array of shape (2, n_units)
        Means and variances wanted.
    queue : int64 array of shape (1,)
        Next block of units that nobody has taken; shared by all threads that call this.
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
    b, a, log_z = np.empty(1), np.empty(1), np.empty(1)
    mean, var, none, up, down = np.empty((5, 1))
    while True:
        first = fetch_and_increment(queue) * UNITS
        if first >= n_units:
            break
        for i in range(first, min(first + UNITS, n_units)):
            m, v = marginal[0, i], marginal[1, i]
            b[0], a[0] = cavity[0, i], cavity[1, i]
            tilted_moments(prior, i, b, a, mean, var)
            log_z[0] = tilted_log_partition(prior, i, b, a)
            if not (np.isfinite(log_z[0]) and np.isfinite(mean[0]) and 0 < var[0] < np.inf):
                b[0], a[0] = m / v, 1 / v
                tilted_moments(prior, i, b, a, mean, var)
                log_z[0] = tilted_log_partition(prior, i, b, a)
            gap, matched = np.inf, False
            for _ in range(MATCHING):
                gap = max(abs(mean[0] - m) / np.sqrt(v), abs(var[0] - v) / v)
                matched = gap <= CLOSE
                if gap <= CLOSEST or not gap < np.inf:
                    break
                # Covariance of (w - mean, -(w - mean)^2 / 2), and the gradient likewise centred.
                weak = 1 / (abs(a[0]) + 1e-12)
                scale = min((b[0] * weak) ** 2 + weak, 100 * (1 / own[i] + mean[0] ** 2 + var[0]))
                h, centre = 1e-3 / np.sqrt(scale), b[0]
                b[0] = centre + h
                tilted_moments(prior, i, b, a, none, up)
                b[0] = centre - h
                tilted_moments(prior, i, b, a, none, down)
                mixed = -(up[0] - down[0]) / (4 * h)
                square = ((up[0] - 2 * var[0] + down[0]) / h**2 + 2 * var[0] ** 2) / 4
                square = max(square, (1 + 1e-6) * mixed**2 / var[0])
                error = m - mean[0]
                second = -(error * error + v - var[0]) / 2
                determinant = var[0] * square - mixed**2
                step2 = (var[0] * second - mixed * error) / determinant
                step1 = (square * error - mixed * second) / determinant + mean[0] * step2
                slope = error * (step1 - mean[0] * step2) + second * step2
                value = centre * m - a[0] * (m * m + v) / 2 - log_z[0]
                precision, length, better = a[0], 1.0, False
                for _ in range(HALVINGS):
                    b[0], a[0] = centre + length * step1, precision + length * step2
                    tilted_moments(prior, i, b, a, mean, var)
                    log_z[0] = tilted_log_partition(prior, i, b, a)
                    new = b[0] * m - a[0] * (m * m + v) / 2 - log_z[0]
                    left = max(abs(mean[0] - m) / np.sqrt(v), abs(var[0] - v) / v)
                    better = new >= value + 1e-4 * length * slope or left < gap / 2
                    if better and var[0] > 0 and np.isfinite(log_z[0]):
                        break
                    better = False
                    length /= 3
                if not better:
                    b[0], a[0] = centre, precision
                    log_z[0] = tilted_log_partition(prior, i, b, a)
                    break
            cavity[0, i], cavity[1, i] = b[0], a[0]
            log_partition[i] = log_z[0] if matched else np.nan
