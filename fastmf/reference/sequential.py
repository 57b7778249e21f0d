"""NumPy twin of `fastmf.kernels.sequential`."""

import numpy as np

from fastmf.priors._protocol import take
from fastmf.reference.product import unpacked
from fastmf.reference.sites import new_sites

BLOCK = 24


def project_block(X, start, matrix, rows, vector):
    """The rows of a block of units of a linear model, and their fields."""
    n, x = len(X), X[:, start : start + BLOCK]
    n_block = x.shape[1]
    z = x.T @ unpacked(matrix, n)
    rows[:], vector[:BLOCK] = 0, 0
    rows[:n_block, BLOCK : BLOCK + n] = z
    rows[:n_block, :n_block] = z @ x
    vector[:n_block] = vector[BLOCK : BLOCK + n] @ x


def visit_block(prior, own, start, low_rank, damping, least, rows, vector, site, gaps, rates):
    """Update the sites of a block of units one after another, each seeing the newest values."""
    rates[:] = 0
    for k in range(min(BLOCK, site.shape[1] - start)):
        i = slice(start + k, start + k + 1)
        rows[k] -= (rates[:k] * rows[:k, k]) @ rows[:k]
        q, u = rows[k, k], vector[k]
        t1, t2 = site[:, start + k]
        share = 1 - q / t2
        proper = share * t2 > 0 if low_rank else q > 0
        marginal = np.array([(t1 + u) / t2, share / t2] if low_rank else [u, q])
        if low_rank:
            cavity = np.array([[(u + t1 * q / t2) / share], [q / share]])
        else:
            cavity = np.array([[u / q - t1], [1 / q - t2]])
        tilted = np.stack(take(prior, i).moments(*cavity))
        exist, new = new_sites(own[i], cavity, tilted, site[:, i], damping, least)
        gaps[i] = np.inf
        if proper and exist[0]:
            gaps[i] = abs(tilted[:, 0] - marginal).max()
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
                rates[k] = change / (1 + change * q)
                vector += (push - rates[k] * (u + push * q)) * rows[k]
                site[:, start + k] = new1, new2


def downdate(rows, rates, matrix):
    """Subtract from M what a block of units has changed: sum_k rates_k z_k z_k'."""
    n_panels, n, width = matrix.shape
    z = rows[:, BLOCK:]
    change = (z[:, :n].T * rates) @ z
    matrix -= change.reshape(n, n_panels, width).swapaxes(0, 1)
