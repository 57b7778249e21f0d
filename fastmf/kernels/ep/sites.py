"""Expectation propagation site by site: cavities, tilted moments, new sites.

A site is a factor exp(t1 w - t2 w^2 / 2) that replaces the prior of one unit. With the mean m and
variance v of the unit under the Gaussian with all sites,

    cavity            c1 = m / v - t1,  c2 = 1 / v - t2
    tilted moments    (mean, var) of the prior times exp(c1 w - c2 w^2 / 2)
    new site          t1 = mean / var - c1,  t2 = 1 / var - c2

so that Gaussian and tilted unit have the same moments. Pairs of natural parameters, and of moments,
are arrays of shape (2, n_units). The couplings between units belong to the Gaussian
(`fastmf.inference.gaussian`): here all units are independent.
"""

from typing import NamedTuple

import numpy as np

from fastmf._jit.intrinsics import larger, smaller
from fastmf._jit.kernel import kernel
from fastmf._threads.workers import next_task
from fastmf.priors._compiled import tilted_log_partition, tilted_moments

# Number of units that a worker takes at a time.
UNITS_PER_TASK = 256
# Number of units whose cavities are searched together: enough for vectors, and few units wait.
MATCHED_UNITS = 32
# Number of units of a block of a sequential sweep.
BLOCK = 24
# Smallest modulus of the precision of a site, relative to site and cavity, if inverse site
# precisions are stored.
MIN_SITE_MODULUS = 1e-7
# Largest precision of a tilted unit, relative to its cavity (or its prior, if larger): beyond this,
# the precision of the cavity would be lost in rounding of the precision of the marginal.
MAX_RELATIVE_PRECISION = 1e9
# Matching of moments: largest number of Newton's steps, and of trial points in each; the relative
# mismatch that ends the search, and the one that is accepted if rounding stops it earlier.
MAX_STEPS, MAX_TRIAL_POINTS = 60, 30
GOAL_MISMATCH, ACCEPTED_MISMATCH = 1e-12, 1e-7


class SiteSettings(NamedTuple):
    """Settings for new sites from tilted moments."""

    prior_precision: np.ndarray  # (n_units,), inverse second moments under the priors alone
    damping: float  # weight of the old site in the new one
    min_precision: float  # smallest precision of a new site; -inf for none


@kernel
def tilt_sites(units, cavity, queue, tilted, log_partition):
    """Compute moments and log-partition of each unit under the tilt of its cavity."""
    n_units = cavity.shape[1]
    while True:
        first = next_task(queue) * UNITS_PER_TASK
        if first >= n_units:
            break
        last = smaller(first + UNITS_PER_TASK, n_units)
        b, a = cavity[0, first:last], cavity[1, first:last]
        tilted_moments(units, first, b, a, tilted[0, first:last], tilted[1, first:last])
        tilted_log_partition(units, first, b, a, log_partition[first:last])


@kernel
def match_sites(units, settings, gaussian, site, queue, cavity, tilted, proposal):
    """Compute cavities, tilted moments, and new sites that match these moments."""
    n_units = site.shape[1]
    while True:
        first = next_task(queue) * UNITS_PER_TASK
        if first >= n_units:
            break
        last = smaller(first + UNITS_PER_TASK, n_units)
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


@kernel(mode="inline")
def new_site(settings, i, tilted, cavity, site):
    """Return the damped site (t1, t2) of unit i that matches the tilted mean and variance."""
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
def visit_block(units, settings, start, low_rank, rows, vector, site, updates):
    """Update the sites of a block of units one after another, each seeing the newest values.

    A block has a row [overlap | z] for each unit: the products x_l'z with the units l of the block,
    and z = M x (see `fastmf.inference.ep.sequential`). The vector is [field | g]. When a site
    changes, multiples of the row of its unit are added to the vector and subtracted from the
    following rows.

    Notes
    -----
    These are rank-one updates after each site (Hernández-Lobato & Hernández-Lobato 2011, Section
    3.1); M is changed later. Updates that would make the Gaussian improper, or without moments, are
    skipped.
    """
    b, a, mean, var = np.empty(1), np.empty(1), np.empty(1), np.empty(1)
    updates[:, start : start + BLOCK] = 0
    for k in range(smaller(BLOCK, site.shape[1] - start)):
        i, row = start + k, rows[k]
        _subtract_earlier(rows, updates[0, start:], k)
        q, u, old = row[k], vector[k], (site[0, i], site[1, i])
        proper, marginal, cavity = _marginal_and_cavity(low_rank, q, u, old)
        b[0], a[0] = cavity
        tilted_moments(units, i, b, a, mean, var)
        updates[1, i] = np.inf
        if not (proper and np.isfinite(mean[0]) and var[0] < np.inf):
            continue
        scale = np.sqrt(larger(1.0, larger(var[0], marginal[1])))
        mismatch = abs(mean[0] - marginal[0]) / scale
        updates[1, i] = larger(mismatch, abs(var[0] - marginal[1]) / scale / scale)
        new = new_site(settings, i, (mean[0], var[0]), cavity, old)
        proper, new, rate, step = _change(low_rank, q, u, cavity[1], old, new)
        if proper:
            updates[0, i] = rate
            site[0, i], site[1, i] = new
            for c in range(len(row)):
                vector[c] += step * row[c]


@kernel(mode="inline")
def _subtract_earlier(rows, rates, k):
    """Subtract the changes of earlier units from the row of unit k."""
    row = rows[k]
    for j in range(k):
        earlier = rows[j]
        factor = rates[j] * earlier[k]
        for c in range(len(row)):
            row[c] -= factor * earlier[c]


@kernel(mode="inline")
def _marginal_and_cavity(low_rank, q, u, site):
    """Return whether the Gaussian is proper, mean and variance of the unit, and its cavity."""
    t1, t2 = site
    if low_rank:
        relative_var = 1 - q / t2  # t2 times the variance
        marginal = (t1 + u) / t2, relative_var / t2
        cavity = (u + t1 * q / t2) / relative_var, q / relative_var
        return relative_var * t2 > 0, marginal, cavity
    return q > 0, (u, q), (u / q - t1, 1 / q - t2)


@kernel(mode="inline")
def _change(low_rank, q, u, cavity_precision, old, new):
    """Return whether a site leaves a proper Gaussian; the site, and rate and step of the change."""
    (t1, t2), (new1, new2) = old, new
    if low_rank:
        # D is the inverse of the precisions, so that none may be zero.
        smallest = MIN_SITE_MODULUS * (cavity_precision + abs(new2))
        if abs(new2) < smallest:
            new2 = smallest if new2 >= 0 else -smallest
        change, shift = 1 / new2 - 1 / t2, t1 / t2 - new1 / new2
    else:
        change, shift = new2 - t2, new1 - t1
    rate = change / (1 + change * q)
    proper = cavity_precision + new2 > 0 and (low_rank or 1 + change * q > 0)
    return proper, (new1, new2), rate, shift - rate * (u + shift * q)


@kernel
def match_cavities(units, prior_precision, marginal, queue, cavity, log_partition):
    """Find cavities under which the units have given means and variances.

    Notes
    -----
    The cavity maximises the concave c1 m - c2 (m^2 + v) / 2 - log Zhat(c), unit by unit: Newton's
    method, with a line search. Third and fourth cumulants are differences of variances. Units are
    tilted in blocks, from the first to the last unit that still moves, which takes a quarter of the
    time of a search unit by unit.
    """
    n_units = cavity.shape[1]
    now, trial = np.empty((5, MATCHED_UNITS)), np.empty((5, MATCHED_UNITS))
    search = np.empty((7, MATCHED_UNITS))
    while True:
        first = next_task(queue) * UNITS_PER_TASK
        if first >= n_units:
            break
        last = smaller(first + UNITS_PER_TASK, n_units)
        for begin in range(first, last, MATCHED_UNITS):
            part = slice(begin, smaller(begin + MATCHED_UNITS, last))
            block = marginal[:, part], cavity[:, part]
            _match(units, begin, prior_precision[part], block, (now, trial, search))
            _conclude(block, now, log_partition[part])


# Rows of the moments, tilts exp(b w - a w^2 / 2) and log-partitions of some units.
MEAN, VAR, B, A, LOG_Z = range(5)
# Rows of a search: Newton's step, the derivative of the objective along it, and the fraction of it
# that is tried; the largest relative difference between the moments of a unit and the targets;
# whether the unit still moves, 1 or 0; and the change of b for differences of variances.
STEP_B, STEP_A, DERIVATIVE, LENGTH, MISMATCH, MOVING, DIFFERENCE = range(7)


@kernel(mode="inline")
def _tilt(units, first, tilted, begin, end):
    """Compute moments and log-partitions of units begin:end of a block that begins at `first`."""
    b, a = tilted[B, begin:end], tilted[A, begin:end]
    mean, var, log_z = tilted[MEAN, begin:end], tilted[VAR, begin:end], tilted[LOG_Z, begin:end]
    tilted_moments(units, first + begin, b, a, mean, var)
    tilted_log_partition(units, first + begin, b, a, log_z)


@kernel(mode="inline")
def _proper(tilted, i):
    """Return whether unit i has moments under its tilt."""
    exist = np.isfinite(tilted[LOG_Z, i]) and np.isfinite(tilted[MEAN, i])
    return exist and 0 < tilted[VAR, i] < np.inf


@kernel(mode="inline")
def _mismatch(tilted, i, wanted):
    """Return the largest relative difference between the moments of a unit and the targets."""
    mean, var = wanted[0, i], wanted[1, i]
    return larger(abs(tilted[MEAN, i] - mean) / np.sqrt(var), abs(tilted[VAR, i] - var) / var)


@kernel(mode="merged")
def _match(units, first, prior_precision, block, memory):
    """Run Newton's method from the cavities of some units."""
    (wanted, cavity), (now, _, search) = block, memory
    n = wanted.shape[1]
    for i in range(n):
        now[B, i], now[A, i], search[MOVING, i] = cavity[0, i], cavity[1, i], 1
    _tilt(units, first, now, 0, n)
    for i in range(n):
        if not _proper(now, i):
            now[B, i], now[A, i] = wanted[0, i] / wanted[1, i], 1 / wanted[1, i]
            _tilt(units, first, now, i, i + 1)
    for _ in range(MAX_STEPS):
        begin, end = n, 0
        for i in range(n):
            mismatch = _mismatch(now, i, wanted)
            search[MISMATCH, i] = mismatch
            if not (mismatch > GOAL_MISMATCH and mismatch < np.inf):
                search[MOVING, i] = 0
            if search[MOVING, i] == 1:
                begin, end = smaller(begin, i), i + 1
        if begin >= end:
            break
        _find_steps(units, first, (begin, end), prior_precision, wanted, memory)
        _search(units, first, (begin, end), wanted, memory)


@kernel(mode="inline")
def _difference(tilted, i, prior_precision):
    """Return the change of b for differences of variances: small against the scale of the unit."""
    weak = 1 / (abs(tilted[A, i]) + 1e-12)
    size = 1 / prior_precision + tilted[MEAN, i] ** 2 + tilted[VAR, i]
    return 1e-3 / np.sqrt(smaller((tilted[B, i] * weak) ** 2 + weak, 100 * size))


@kernel(mode="merged")
def _find_steps(units, first, moving, prior_precision, wanted, memory):
    """Compute Newton's steps of the tilts, and the derivatives of the objective along them."""
    (now, trial, search), (begin, end) = memory, moving
    up, down = trial[VAR], trial[LOG_Z]
    for i in range(begin, end):
        search[DIFFERENCE, i] = _difference(now, i, prior_precision[i])
    for sign, var in ((1.0, up), (-1.0, down)):
        for i in range(begin, end):
            trial[B, i] = now[B, i] + sign * search[DIFFERENCE, i]
        b, a = trial[B, begin:end], now[A, begin:end]
        tilted_moments(units, first + begin, b, a, trial[MEAN, begin:end], var[begin:end])
    for i in range(begin, end):
        mean, var, h = now[MEAN, i], now[VAR, i], search[DIFFERENCE, i]
        # Covariance of (w - mean, -(w - mean)^2 / 2), and the gradient likewise centred.
        mixed = -(up[i] - down[i]) / (4 * h)
        square = ((up[i] - 2 * var + down[i]) / h**2 + 2 * var**2) / 4
        square = larger(square, (1 + 1e-6) * mixed**2 / var)
        error = wanted[0, i] - mean
        second = -(error * error + wanted[1, i] - var) / 2
        determinant = var * square - mixed**2
        by_a = (var * second - mixed * error) / determinant
        by_b = (square * error - mixed * second) / determinant
        search[STEP_B, i], search[STEP_A, i] = by_b + mean * by_a, by_a
        search[DERIVATIVE, i] = error * by_b + second * by_a


@kernel(mode="inline")
def _objective(tilted, i, wanted):
    """Evaluate the objective that the cavity of unit i maximises."""
    mean, var = wanted[0, i], wanted[1, i]
    return tilted[B, i] * mean - tilted[A, i] * (mean * mean + var) / 2 - tilted[LOG_Z, i]


@kernel(mode="merged")
def _search(units, first, moving, wanted, memory):
    """Search along the steps; units for which no trial is better do not move any more."""
    (now, trial, search), (begin, end) = memory, moving
    for i in range(begin, end):
        search[LENGTH, i] = search[MOVING, i]
    for t in range(MAX_TRIAL_POINTS + 1):
        for i in range(begin, end):
            length = search[LENGTH, i]
            trial[B, i] = now[B, i] + (length * search[STEP_B, i] if length > 0 else 0.0)
            trial[A, i] = now[A, i] + (length * search[STEP_A, i] if length > 0 else 0.0)
        _tilt(units, first, trial, begin, end)
        n_worse = 0
        for i in range(begin, end):
            length = search[LENGTH, i]
            if length == 0:
                continue
            enough = _objective(now, i, wanted) + 1e-4 * length * search[DERIVATIVE, i]
            nearer = _mismatch(trial, i, wanted) < search[MISMATCH, i] / 2
            better = _objective(trial, i, wanted) >= enough or nearer
            if not (better and trial[VAR, i] > 0 and np.isfinite(trial[LOG_Z, i])):
                last = t >= MAX_TRIAL_POINTS - 1
                search[LENGTH, i] = 0 if last else length / 3
                search[MOVING, i] = 0 if last else 1
                n_worse += 1
        if n_worse == 0:
            break
    for i in range(begin, end):
        for k in range(5):
            now[k, i] = trial[k, i]


@kernel(mode="merged")
def _conclude(block, now, log_partition):
    """Write the cavities of some units, and log-partitions (NaN without a match) to the results."""
    wanted, cavity = block
    for i in range(wanted.shape[1]):
        cavity[0, i], cavity[1, i] = now[B, i], now[A, i]
        matched = _mismatch(now, i, wanted) <= ACCEPTED_MISMATCH
        log_partition[i] = now[LOG_Z, i] if matched else np.nan
