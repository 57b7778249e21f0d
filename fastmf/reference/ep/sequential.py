"""NumPy twin of `fastmf.kernels.ep.sequential`."""

import numpy as np

from fastmf.priors._protocol import take
from fastmf.reference.ep.sites import new_sites
from fastmf.reference.linear.product import unpacked
from fastmf.reference.units import moments

BLOCK = 24


def sweep_blocks(address, units, settings, X, matrix, vector, sites, queue):
    """Update the sites of all units of a linear model, block by block."""
    site, updates = sites
    rows = np.zeros((BLOCK, len(vector)))
    for start in range(0, X.shape[1], BLOCK):
        project_block(address, X, start, matrix, rows, vector)
        visit_block(units, settings, start, True, rows, vector, site, updates)
        downdate(address, rows, updates[0, start : start + BLOCK], matrix)


def project_block(address, X, start, matrix, rows, vector):
    """The rows of a block of units of a linear model, and their fields."""
    n, x = len(X), X[:, start : start + BLOCK]
    n_block = x.shape[1]
    z = x.T @ unpacked(matrix, n)
    rows[:], vector[:BLOCK] = 0, 0
    rows[:n_block, BLOCK : BLOCK + n] = z
    rows[:n_block, :n_block] = z @ x
    vector[:n_block] = vector[BLOCK : BLOCK + n] @ x


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
    """Whether the Gaussian is proper, mean and variance of the unit, and its cavity."""
    t1, t2 = site
    if low_rank:
        relative_var = 1 - q / t2
        marginal = np.array([t1 + u, relative_var]) / t2
        return relative_var * t2 > 0, marginal, np.array([u + t1 * q / t2, q]) / relative_var
    return q > 0, np.array([u, q]), np.array([u / q - t1, 1 / q - t2])


def change_of(low_rank, q, u, cavity_precision, old, new):
    """Whether a site leaves a proper Gaussian; the site, and rate and step of the change."""
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


def downdate(address, rows, rates, matrix):
    """Subtract from M the change by a block of units: sum_k rates_k z_k z_k'."""
    n_panels, n, width = matrix.shape
    z = rows[:, BLOCK:]
    change = (z[:, :n].T * rates) @ z
    matrix -= change.reshape(n, n_panels, width).swapaxes(0, 1)
