"""A sweep of sequential expectation propagation, a block of units at a time.

The Gaussian is kept as a symmetric matrix M and a vector g, of which every unit needs a diagonal
element q = x'Mx and a field u = x'g, and which its new site changes to

    M - rate z z'  and  g + step z,  where  z = M x:

of few units, their covariance and their means (then x picks out one unit); of a linear model with
few rows, the inverse B^-1 of the covariance of the data, B = s2 + X D X' with D the inverse site
precisions, and B^-1 (y - X D t1) (then x is a column of X).

A block of units has one row [overlap | z] for each: the products x_l'z with the units l of the
block, and z. So has the vector: [field | g]. Whatever a unit changes, its row is added to the
vector and subtracted from the rows after it; M itself is changed once per block.
"""

import numpy as np

from fastmf._numba import kernel
from fastmf.kernels.linear_model import WIDTH, pack_columns
from fastmf.kernels.product import product
from fastmf.kernels.sites import STIFFEST
from fastmf.priors._protocol import tilted_moments

# Units of a block: whole panels of every machine.
BLOCK = 24


@kernel
def project_block(X, start, matrix, rows, vector):
    """The rows of a block of units of a linear model, and their fields.

    Parameters
    ----------
    X : array of shape (n_rows, n_units)
    start : int
        First unit of the block.
    matrix : array of shape (n_panels, n_rows, width)
        M, packed for `product`.
    rows : array of shape (BLOCK, BLOCK + n_panels * width)
        Filled; with zeros for units that are not there.
    vector : array of shape (BLOCK + n_panels * width,)
        The vector; its fields are filled.
    """
    n_panels, n, _ = matrix.shape
    columns, turned = np.zeros((BLOCK // WIDTH, n, WIDTH)), np.empty((BLOCK, n))
    pack_columns(X[:, start : start + BLOCK], columns)
    for panel in range(len(columns)):
        first = panel * WIDTH
        field, target = vector[first : first + WIDTH], turned[first : first + WIDTH]
        field[:] = 0
        for i in range(n):
            x, g = columns[panel, i], vector[BLOCK + i]
            for c in range(WIDTH):
                field[c] += g * x[c]
                target[c, i] = x[c]
    for panel in range(n_panels):
        product(turned, BLOCK, 0, matrix, panel, rows, BLOCK + panel * WIDTH, n_panels * WIDTH)
    for panel in range(len(columns)):
        product(rows, BLOCK, BLOCK, columns, panel, rows, panel * WIDTH, BLOCK)


@kernel
def visit_block(prior, own, start, low_rank, damping, least, rows, vector, site, gaps, rates):
    """Update the sites of a block of units one after another, each seeing the newest values.

    Parameters
    ----------
    prior : unit prior
    own : array of shape (n_units,)
        Precisions of the uncoupled units: the scale of each.
    start : int
        First unit of the block.
    low_rank : bool
        What the Gaussian is kept as: False, its covariance; True, that of the data, inverted.
    damping : float
        Share of the old site in the new one.
    least : float
        New sites have at least this precision (-inf: any).
    rows : array of shape (BLOCK, BLOCK + n_padded)
        Those of M before the block; become those of which M - sum_k rates_k z_k z_k' is made.
    vector : array of shape (BLOCK + n_padded,)
        The vector; updated in place.
    site : array of shape (2, n_units)
        Updated in place.
    gaps : array of shape (n_units,)
        Filled, for this block, with the difference in mean or variance, the larger one, that each
        site had to mend.
    rates : array of shape (BLOCK,)
        Filled.

    Notes
    -----
    Exactly rank-one updates after every site (Hernández-Lobato & Hernández-Lobato 2011, Section
    3.1), put off. An update that would leave no proper Gaussian, or for which moments do not exist,
    is not made.
    """
    b, a, mean, var = np.empty(1), np.empty(1), np.empty(1), np.empty(1)
    n_block = min(BLOCK, site.shape[1] - start)
    rates[:] = 0
    for k in range(n_block):
        i, row = start + k, rows[k]
        for j in range(k):
            earlier = rows[j]
            factor = rates[j] * earlier[k]
            for c in range(len(row)):
                row[c] -= factor * earlier[c]
        q, u = row[k], vector[k]
        t1, t2 = site[0, i], site[1, i]
        if low_rank:
            share = 1 - q / t2  # t2 times the variance
            proper = share * t2 > 0
            a[0] = q / share
            marginal_mean, marginal_var = (t1 + u) / t2, share / t2
            b[0] = (u + t1 * q / t2) / share
        else:
            proper = q > 0
            marginal_mean, marginal_var = u, q
            a[0] = 1 / q - t2
            b[0] = u / q - t1
        tilted_moments(prior, i, b, a, mean, var)
        gaps[i] = np.inf
        if proper and np.isfinite(mean[0]) and var[0] < np.inf:
            gaps[i] = max(abs(mean[0] - marginal_mean), abs(var[0] - marginal_var))
            precision = min(1 / var[0], STIFFEST * max(abs(a[0]), own[i]))
            precision = a[0] + max(precision - a[0], least)
            new1 = (1 - damping) * (mean[0] * precision - b[0]) + damping * t1
            new2 = (1 - damping) * (precision - a[0]) + damping * t2
            if low_rank:
                # D has no room for a site of no precision at all.
                smallest = 1e-7 * (a[0] + abs(new2))
                if abs(new2) < smallest:
                    new2 = smallest if new2 >= 0 else -smallest
                change = 1 / new2 - 1 / t2
                push = t1 / t2 - new1 / new2
            else:
                change = new2 - t2
                push = new1 - t1
            if a[0] + new2 > 0 and (low_rank or 1 + change * q > 0):
                rates[k] = change / (1 + change * q)
                step = push - rates[k] * (u + push * q)
                site[0, i], site[1, i] = new1, new2
                for c in range(len(row)):
                    vector[c] += step * row[c]


@kernel
def downdate(rows, rates, matrix):
    """Subtract from M what a block of units has changed: sum_k rates_k z_k z_k'.

    Parameters
    ----------
    rows : array of shape (BLOCK, BLOCK + n_panels * width)
    rates : array of shape (BLOCK,)
    matrix : array of shape (n_panels, n, width)
        M, packed for `product`; updated in place.
    """
    n_panels, n, _ = matrix.shape
    turned, tile = np.empty((n_panels * WIDTH, BLOCK)), np.empty((n, WIDTH))
    scaled = np.empty((n_panels, BLOCK, WIDTH))
    for k in range(BLOCK):
        for panel in range(n_panels):
            first = panel * WIDTH
            z, here = rows[k, BLOCK + first : BLOCK + first + WIDTH], scaled[panel, k]
            for c in range(WIDTH):
                here[c] = rates[k] * z[c]
                turned[first + c, k] = z[c]
    for panel in range(n_panels):
        first = panel * WIDTH
        product(turned[first:], n - first, 0, scaled, panel, tile, 0, n_panels * WIDTH)
        lower = matrix[panel, first:]
        for i in range(n - first):
            row, change = lower[i], tile[i]
            for c in range(WIDTH):
                row[c] -= change[c]
        for other in range(panel + 1, n_panels):
            upper = matrix[other, first : first + WIDTH]
            for i in range(min(WIDTH, n - other * WIDTH)):
                row = lower[(other - panel) * WIDTH + i]
                for c in range(WIDTH):
                    upper[c, i] = row[c]
