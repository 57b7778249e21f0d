"""Sequential expectation propagation: exact rank-one updates, a block of units at a time.

The Gaussian is stored as a symmetric matrix M and a vector g. The update of a unit needs the
diagonal element q = x'Mx and the field u = x'g, and its new site changes M and g to

    M - rate z z'  and  g + step z,  where  z = M x:

For few units, M and g are covariance and means, and x selects one unit. For a linear model with few
rows, M is the inverse B^-1 of the covariance of the data, B = s2 + X D X' with D the inverse site
precisions, g = B^-1 (y - X D t1), and x is a column of X. M is changed once per block.
"""

import numpy as np
from scipy.linalg import inv

from fastmf.inference.gaussian import Dense, Latent, LowRank
from fastmf.kernels.ep.sites import BLOCK, SiteSettings, visit_block


def sequential_sweeps(problem, state, damping, trace):
    """Sweep over the sites, one after another; return the last state, and if it converged."""
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
    """Update all sites in place; return the largest mismatch, None if the Gaussian is improper."""
    side, low_rank = problem.side, isinstance(problem.side, LowRank)
    if low_rank:
        matrix, given = _inverse_data_covariance(side, site)
    elif (matrix := side.covariance(site)) is None:
        return None
    else:
        given = matrix @ (side.field + site[0])
    rows, vector = np.zeros((BLOCK, BLOCK + len(given))), np.append(np.zeros(BLOCK), given)
    starts = range(0, side.n_units, BLOCK)
    updates = np.zeros((2, len(starts) * BLOCK))
    settings = SiteSettings(problem.prior_precision, damping, problem.min_site_precision)
    for start in starts:
        n = min(BLOCK, side.n_units - start)
        units, z, field = slice(start, start + n), rows[:n, BLOCK:], vector[BLOCK:]
        if low_rank:
            x = np.asarray(side.X[:, units], np.float64, order="C")
            np.matmul(x.T, matrix, out=z)
            rows[:n, :n], vector[:n] = z @ x, field @ x
        else:
            z[:] = matrix[units]
            rows[:n, :n], vector[:n] = z[:, units], field[units]
        visit_block(problem.units, settings, start, low_rank, rows, vector, site, updates)
        matrix -= (z.T * updates[0, units]) @ z
    return float(updates[1].max())


def _inverse_data_covariance(side, site):
    """Compute B^-1 and B^-1 (y - X D t1) of a linear model with few rows."""
    # D is the inverse of the site precisions, so that none may be zero; a negative one makes B
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
