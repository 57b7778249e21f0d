"""NumPy twin of `fastmf.kernels.sites`."""

import numpy as np

from fastmf.priors._protocol import take

STIFFEST = 1e9


def tilt_sites(prior, cavity, queue, tilted, log_partition):
    """Moments and log-partition of every unit under the tilt of its cavity."""
    tilted[:] = prior.moments(*cavity)
    log_partition[:] = prior.log_partition(*cavity)


def match_sites(prior, own, gaussian, site, damping, least, queue, cavity, tilted, proposal):
    """New sites that give each unit the moments of its prior under the cavity."""
    precision = 1 / gaussian[1]
    cavity[:] = gaussian[0] * precision - site[0], precision - site[1]
    tilted[:] = prior.moments(*cavity)
    _, proposal[:] = _new_sites(own, cavity, tilted, site, damping, least)


def _new_sites(own, cavity, tilted, site, damping, least):
    (mean, var), (c1, c2) = tilted, cavity
    exist = np.isfinite(mean) & (var < np.inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        precision = np.minimum(1 / var, STIFFEST * np.maximum(abs(c2), own))
        precision = c2 + np.maximum(precision - c2, least)
        new = np.stack([mean * precision - c1, precision - c2])
        return exist, np.where(exist, (1 - damping) * new + damping * site, site)


def visit_block(
    prior, own, start, low_rank, damping, least, overlap, field, site, gaps, rates, steps, moved
):
    """Update the sites of a block of units one after another, each seeing the newest values."""
    n_block = len(field)
    for k in range(n_block):
        i = slice(start + k, start + k + 1)
        q, u = overlap[k, k], field[k]
        t1, t2 = site[:, start + k]
        share = 1 - q / t2
        proper = share * t2 > 0 if low_rank else q > 0
        marginal = np.array([(t1 + u) / t2, share / t2] if low_rank else [u, q])
        if low_rank:
            cavity = np.array([[(u + t1 * q / t2) / share], [q / share]])
        else:
            cavity = np.array([[u / q - t1], [1 / q - t2]])
        tilted = np.stack(take(prior, i).moments(*cavity))
        exist, new = _new_sites(own[i], cavity, tilted, site[:, i], damping, least)
        rate = step = 0.0
        gaps[k] = np.inf
        if proper and exist[0]:
            gaps[k] = abs(tilted[:, 0] - marginal).max()
            (new1,), (new2,) = new
            c2 = cavity[1, 0]
            if low_rank:
                smallest = 1e-7 * (c2 + abs(new2))
                if abs(new2) < smallest:
                    new2 = smallest if new2 >= 0 else -smallest
                change, push = 1 / new2 - 1 / t2, t1 / t2 - new1 / new2
            else:
                change, push = new2 - t2, new1 - t1
            if c2 + new2 > 0 and (low_rank or 1 + change * q > 0):
                rate = change / (1 + change * q)
                step = push - rate * (u + push * q)
                site[:, start + k] = new1, new2
        rates[k], steps[k] = rate, step
        moved[k, :k] = -rates[:k] * overlap[:k, k]
        row = overlap[k, k + 1 :]
        field[k + 1 :] += step * row
        overlap[k + 1 :, k + 1 :] -= np.triu(rate * np.outer(row, row))


def column_products(Y, z, squares, products):
    """Sums of squares of the columns of Y, and their products with z."""
    np.einsum("ij,ij->j", Y, Y, out=squares)
    np.matmul(z, Y, out=products)
