"""A sweep of sequential expectation propagation, a block of units at a time.

The Gaussian is stored as a symmetric matrix M and a vector g, of which every unit needs a diagonal
element q = x'Mx and a field u = x'g, and which its new site changes to

    M - rate z z'  and  g + step z,  where  z = M x:

of few units, their covariance and their means (then x picks out one unit); of a linear model with
few rows, the inverse B^-1 of the covariance of the data, B = s2 + X D X' with D the inverse site
precisions, and B^-1 (y - X D t1) (then x is a column of X).

A block of units has one row [overlap | z] for each: the products x_l'z with the units l of the
block, and z. So has the vector: [field | g]. When a site changes, the row of its unit is added to
the vector and subtracted from the rows after it; M itself is changed once per block.
"""

import numpy as np

from fastmf._jit.intrinsics import larger, smaller
from fastmf._jit.kernel import kernel
from fastmf._threads.workers import next_task
from fastmf.kernels.ep.linear_model import PANEL_WIDTH, pack_columns
from fastmf.kernels.ep.sites import new_site
from fastmf.kernels.linear.product import product
from fastmf.priors._compiled import tilted_moments

# Units of a block: whole panels of every machine.
BLOCK = 24
# Smallest modulus of a site's precision, relative to site and cavity, where inverse site
# precisions are kept.
MIN_SITE_MODULUS = 1e-7


@kernel
def sweep_blocks(address, units, settings, X, matrix, vector, sites, queue):
    """Update the sites of all units of a linear model, block by block."""
    site, updates = sites
    rows = np.zeros((BLOCK, len(vector)))
    start = next_task(queue) * BLOCK
    while start < X.shape[1]:
        project_block(address, X, start, matrix, rows, vector)
        visit_block(units, settings, start, True, rows, vector, site, updates)
        downdate(address, rows, updates[0, start : start + BLOCK], matrix)
        start = next_task(queue) * BLOCK


@kernel
def project_block(address, X, start, matrix, rows, vector):
    """The rows of a block of units of a linear model, and their fields."""
    n_panels, n, _ = matrix.shape
    columns, transposed = np.zeros((BLOCK // PANEL_WIDTH, n, PANEL_WIDTH)), np.empty((BLOCK, n))
    pack_columns(X, start, smaller(start + BLOCK, X.shape[1]), columns)
    for panel in range(len(columns)):
        first = panel * PANEL_WIDTH
        field, target = vector[first : first + PANEL_WIDTH], transposed[first : first + PANEL_WIDTH]
        field[:] = 0
        for i in range(n):
            x, g = columns[panel, i], vector[BLOCK + i]
            for c in range(PANEL_WIDTH):
                field[c] += g * x[c]
                target[c, i] = x[c]
    product(address, transposed, BLOCK, 0, matrix, rows[:, BLOCK:], n_panels * PANEL_WIDTH)
    product(address, rows, BLOCK, BLOCK, columns, rows, BLOCK)


@kernel
def visit_block(units, settings, start, low_rank, rows, vector, site, updates):
    """Update the sites of a block of units one after another, each seeing the newest values.

    Notes
    -----
    Exactly rank-one updates after every site (Hernández-Lobato & Hernández-Lobato 2011, Section
    3.1); M is changed later. An update that would leave no proper Gaussian, or for which moments do
    not exist, is not made.
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
    """Subtract from the row of unit k what the units before it have changed."""
    row = rows[k]
    for j in range(k):
        earlier = rows[j]
        factor = rates[j] * earlier[k]
        for c in range(len(row)):
            row[c] -= factor * earlier[c]


@kernel(mode="inline")
def _marginal_and_cavity(low_rank, q, u, site):
    """Whether the Gaussian is proper, mean and variance of the unit, and its cavity."""
    t1, t2 = site
    if low_rank:
        relative_var = 1 - q / t2  # t2 times the variance
        marginal = (t1 + u) / t2, relative_var / t2
        cavity = (u + t1 * q / t2) / relative_var, q / relative_var
        return relative_var * t2 > 0, marginal, cavity
    return q > 0, (u, q), (u / q - t1, 1 / q - t2)


@kernel(mode="inline")
def _change(low_rank, q, u, cavity_precision, old, new):
    """Whether a site leaves a proper Gaussian; the site, and rate and step of the change."""
    (t1, t2), (new1, new2) = old, new
    if low_rank:
        # D is the inverse of the precisions: none of them may be zero.
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
def downdate(address, rows, rates, matrix):
    """Subtract from M the change by a block of units: sum_k rates_k z_k z_k'."""
    n_panels, n, _ = matrix.shape
    transposed, tile = np.empty((n_panels * PANEL_WIDTH, BLOCK)), np.empty((n, PANEL_WIDTH))
    scaled = np.empty((n_panels, BLOCK, PANEL_WIDTH))
    for k in range(BLOCK):
        for panel in range(n_panels):
            first = panel * PANEL_WIDTH
            z, scaled_z = rows[k, BLOCK + first : BLOCK + first + PANEL_WIDTH], scaled[panel, k]
            for c in range(PANEL_WIDTH):
                scaled_z[c] = rates[k] * z[c]
                transposed[first + c, k] = z[c]
    for panel in range(n_panels):
        first = panel * PANEL_WIDTH
        z = scaled[panel : panel + 1]
        product(address, transposed[first:], n - first, 0, z, tile, PANEL_WIDTH)
        lower = matrix[panel, first:]
        for i in range(n - first):
            row, change = lower[i], tile[i]
            for c in range(PANEL_WIDTH):
                row[c] -= change[c]
        _mirror(matrix, panel)


@kernel(mode="inline")
def _mirror(matrix, panel):
    """Copy the rows of M below a panel's own into the columns of the panels after it."""
    n_panels, n, _ = matrix.shape
    first = panel * PANEL_WIDTH
    for k in range(panel + 1, n_panels):
        upper, start = matrix[k, first : first + PANEL_WIDTH], k * PANEL_WIDTH
        for i in range(smaller(PANEL_WIDTH, n - start)):
            row = matrix[panel, start + i]
            for c in range(PANEL_WIDTH):
                upper[c, i] = row[c]
