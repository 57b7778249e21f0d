"""Sequential expectation propagation: exact rank-one updates, a block of units at a time.

See `fastmf.kernels.ep.sequential` for the equations. The Gaussian is stored as the covariance and
means of the units, or with fewer rows than units as B^-1 and B^-1 (y - X D t1).
"""

import numpy as np
from scipy.linalg import inv

from fastmf._threads.workers import in_parallel
from fastmf.inference.gaussian import Dense, Latent, LowRank
from fastmf.kernels.ep.sequential import BLOCK, downdate, sweep_blocks, visit_block
from fastmf.kernels.ep.sites import SiteSettings
from fastmf.kernels.linear.product import pack, product_address


def sequential_sweeps(problem, state, damping, trace):
    """Sweep over the sites, each update seen by the next: the last state, and if it converged."""
    if isinstance(problem.side, Latent):
        problem = problem._replace(side=problem.side.low_rank())
    if not isinstance(problem.side, Dense | LowRank):
        raise ValueError("schedule 'sequential' is not available for layered models.")
    site, damping = state.site.copy(), 0.0 if damping is None else damping
    for _ in range(problem.max_iter):
        residual = _sweep(problem, damping, site)
        if residual is None:
            return state, False
        converged = False
        if trace.with_energies or residual <= problem.tol:
            new = problem.state_of(site.copy())
            state = state if new is None else new
            converged = new is not None and residual <= problem.tol and state.agrees(problem.tol)
        trace.add(residual, lambda state=state: problem.energy(state))
        if converged:
            break
    else:
        state = problem.state_of(site.copy()) or state
    return state, converged


def _sweep(problem, damping, site):
    """Update all sites in place: the largest mismatch before an update, None without a Gaussian."""
    side, low_rank = problem.side, isinstance(problem.side, LowRank)
    gaussian = (_inverse_data_covariance if low_rank else _covariance)(side, site)
    if gaussian is None:
        return None
    matrix = pack(gaussian[0])
    n_panels, n, width = matrix.shape
    rows = np.zeros((BLOCK, BLOCK + n_panels * width))
    vector = np.zeros(rows.shape[1])
    vector[BLOCK : BLOCK + n] = gaussian[1]
    starts = range(0, side.n_units, BLOCK)
    updates = np.zeros((2, len(starts) * BLOCK))
    settings = SiteSettings(problem.prior_precision, damping, problem.min_site_precision)
    address = product_address(np.float64)
    units = problem.units
    if low_rank:
        sites, queue = (site, updates), np.zeros(1, np.int64)
        arguments = address, units, settings, side.X, matrix, vector, sites, queue
        in_parallel(sweep_blocks, arguments, 1)
        return float(updates[1].max())
    for start in starts:
        _copy_block(slice(start, min(start + BLOCK, n)), matrix, rows, vector)
        visit_block(units, settings, start, False, rows, vector, site, updates)
        downdate(address, rows, updates[0, start : start + BLOCK], matrix)
    return float(updates[1].max())


def _copy_block(units, matrix, rows, vector):
    """The rows of a block of units and their fields, where M is the covariance of the units."""
    n_block = units.stop - units.start
    rows[:n_block, BLOCK:] = matrix[:, units].swapaxes(0, 1).reshape(n_block, -1)
    for row in (*rows[:n_block], vector):
        row[:n_block] = row[BLOCK:][units]


def _covariance(side, site):
    """Covariance and means of the units; None without a proper Gaussian."""
    covariance = side.covariance(site)
    return None if covariance is None else (covariance, covariance @ (side.field + site[0]))


def _inverse_data_covariance(side, site):
    """B^-1 and B^-1 (y - X D t1) of a linear model with few rows."""
    # D is the inverse of the site precisions: none of them may be zero, and a negative one makes B
    # indefinite.
    floor = 1e-3 * side.floor
    site[1] = np.where(abs(site[1]) < floor, floor, site[1])
    positive, negative = np.maximum(site[1], 0), np.flatnonzero(site[1] < 0)
    precision = np.where(site[1] > 0, positive, np.inf)
    B, residual = side.data_covariance(precision), side.y - side.predict(site[0] / precision)
    if negative.size:
        columns = side.X[:, negative].astype(np.float64)
        B += (columns / site[1, negative]) @ columns.T
        residual -= columns @ (site[0, negative] / site[1, negative])
    inverse = inv(B)
    return inverse, inverse @ residual
