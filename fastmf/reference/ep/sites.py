"""NumPy twin of `fastmf.kernels.ep.sites`."""

import numpy as np

from fastmf.priors._protocol import take
from fastmf.reference.units import log_partition as log_partition_of
from fastmf.reference.units import moments

MAX_RELATIVE_PRECISION = 1e9
BLOCK = 24


def tilt_sites(units, cavity, queue, tilted, log_partition):
    """Compute moments and log-partition of each unit under the tilt of its cavity."""
    tilted[:] = moments(units.prior, *cavity)
    log_partition[:] = log_partition_of(units.prior, *cavity)


def match_sites(units, settings, gaussian, site, queue, cavity, tilted, proposal):
    """Compute cavities, tilted moments, and new sites that match these moments."""
    precision = 1 / gaussian[1]
    cavity[:] = gaussian[0] * precision - site[0], precision - site[1]
    tilted[:] = moments(units.prior, *cavity)
    _, proposal[:] = new_sites(*settings, cavity, tilted, site)


# Units for which no cavity has the given moments diverge.
@np.errstate(over="ignore", divide="ignore", invalid="ignore")
def match_cavities(units, prior_precision, marginal, queue, cavity, log_partition):
    """Find cavities under which the units have given means and variances."""
    m, v = marginal

    def at(b, a):
        mean, var = moments(units.prior, b, a)
        log_z = log_partition_of(units.prior, b, a)
        mismatch = np.maximum(abs(mean - m) / np.sqrt(v), abs(var - v) / v)
        exist = np.isfinite(mismatch) & np.isfinite(log_z) & (var > 0)
        value = np.where(exist, b * m - a * (m * m + v) / 2 - log_z, -np.inf)
        return mean, var, np.where(exist, mismatch, np.inf), value

    proper = at(*cavity)[3] > -np.inf
    b, a = np.where(proper, cavity, [m / v, 1 / v])
    for _ in range(60):
        mean, var, mismatch, value = at(b, a)
        moving = (mismatch > 1e-12) & (mismatch < np.inf)
        if not moving.any():
            break
        weak = 1 / (abs(a) + 1e-12)
        scale = np.minimum((b * weak) ** 2 + weak, 100 * (1 / prior_precision + mean**2 + var))
        h = 1e-3 / np.sqrt(scale)
        up, down = (moments(units.prior, b + step, a)[1] for step in (h, -h))
        mixed = -(up - down) / (4 * h)
        square = ((up - 2 * var + down) / h**2 + 2 * var**2) / 4
        square = np.maximum(square, (1 + 1e-6) * mixed**2 / var)
        error = m - mean
        second = -(error * error + v - var) / 2
        determinant = var * square - mixed**2
        step2 = (var * second - mixed * error) / determinant
        step1 = (square * error - mixed * second) / determinant
        derivative = error * step1 + second * step2
        step1 += mean * step2
        length = np.where(moving, 1.0, 0.0)
        for _ in range(30):
            _, _, new_mismatch, new = at(b + length * step1, a + length * step2)
            worse = (new < value + 1e-4 * length * derivative) & (length > 0)
            worse &= new_mismatch >= mismatch / 2
            if not worse.any():
                break
            length = np.where(worse, length / 3, length)
        length = np.where(worse, 0, length)
        b, a = b + length * step1, a + length * step2
        if not length.any():
            break
    cavity[:] = b, a
    log_partition[:] = np.where(at(b, a)[2] <= 1e-7, log_partition_of(units.prior, b, a), np.nan)


def new_sites(prior_precision, damping, min_precision, cavity, tilted, site):
    """Return whether moments exist, and the sites that match them."""
    (mean, var), (c1, c2) = tilted, cavity
    exist = np.isfinite(mean) & (var < np.inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        largest = MAX_RELATIVE_PRECISION * np.maximum(abs(c2), prior_precision)
        precision = np.minimum(1 / var, largest)
        precision = c2 + np.maximum(precision - c2, min_precision)
        new = np.stack([mean * precision - c1, precision - c2])
        return exist, np.where(exist, (1 - damping) * new + damping * site, site)


def visit_block(units, settings, start, low_rank, rows, vector, site, updates):
    """Update the sites of a block of units one after another, each seeing the newest values."""
    rates, mismatches = updates[:, start : start + BLOCK]
    rates[:], mismatches[:] = 0, 0
    for k in range(min(BLOCK, site.shape[1] - start)):
        i = slice(start + k, start + k + 1)
        rows[k] -= (rates[:k] * rows[:k, k]) @ rows[:k]
        q, u, old = rows[k, k], vector[k], site[:, start + k]
        proper, marginal, cavity = marginal_and_cavity(low_rank, q, u, old)
        tilted = np.stack(moments(take(units.prior, i), *cavity[:, None]))
        prior_precision, *options = settings
        exist, new = new_sites(prior_precision[i], *options, cavity[:, None], tilted, site[:, i])
        mismatches[k] = np.inf
        if proper and exist[0]:
            scale = np.sqrt(max(1, tilted[1, 0], marginal[1]))
            mismatches[k] = (abs(tilted[:, 0] - marginal) / [scale, scale**2]).max()
            proper, new, rate, step = change_of(low_rank, q, u, cavity[1], old, new[:, 0])
            if proper:
                rates[k] = rate
                vector += step * rows[k]
                site[:, start + k] = new


def marginal_and_cavity(low_rank, q, u, site):
    """Return whether the Gaussian is proper, mean and variance of the unit, and its cavity."""
    t1, t2 = site
    if low_rank:
        relative_var = 1 - q / t2
        marginal = np.array([t1 + u, relative_var]) / t2
        return relative_var * t2 > 0, marginal, np.array([u + t1 * q / t2, q]) / relative_var
    return q > 0, np.array([u, q]), np.array([u / q - t1, 1 / q - t2])


def change_of(low_rank, q, u, cavity_precision, old, new):
    """Return whether a site leaves a proper Gaussian; the site, and rate and step of the change."""
    (t1, t2), (new1, new2) = old, new
    if low_rank:
        smallest = 1e-7 * (cavity_precision + abs(new2))
        if abs(new2) < smallest:
            new2 = smallest if new2 >= 0 else -smallest
        change, shift = 1 / new2 - 1 / t2, t1 / t2 - new1 / new2
    else:
        change, shift = new2 - t2, new1 - t1
    rate = change / (1 + change * q)
    proper = cavity_precision + new2 > 0 and (low_rank or 1 + change * q > 0)
    return proper, np.array([new1, new2]), rate, shift - rate * (u + shift * q)
