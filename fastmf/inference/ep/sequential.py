"""Sequential expectation propagation: exact rank-one updates, put off a block at a time."""

import numpy as np
from scipy.linalg import inv

from fastmf.inference.ep.sites import energy, state_of
from fastmf.inference.gaussian import Dense, LowRank
from fastmf.kernels.product import pack
from fastmf.kernels.sequential import BLOCK, downdate, project_block, visit_block


def sequential(problem, state, damping, trace):
    """Sweeps over the sites, each update seen by the next: the last state, and if it converged."""
    if not isinstance(problem.side, Dense | LowRank):
        raise ValueError("schedule 'sequential' is not available for layered models.")
    site, share = state.site.copy(), 0.0 if damping is None else damping
    for _ in range(problem.max_iter):
        residual = _sweep(problem, share, site)
        if residual is None:
            return state, False
        converged = False
        if trace.wanted or residual <= problem.tol:
            new = state_of(problem, site.copy())
            state = state if new is None else new
            converged = new is not None and residual <= problem.tol >= state.residual()
        trace.add(residual, lambda state=state: energy(problem, state))
        if converged:
            break
    else:
        state = state_of(problem, site.copy()) or state
    return state, converged


def _sweep(problem, damping, site):
    """Update all sites in place: the largest gap there was, None if there is no Gaussian."""
    side, low_rank = problem.side, isinstance(problem.side, LowRank)
    kept = (_data_covariance if low_rank else _covariance)(side, site)
    if kept is None:
        return None
    matrix = pack(kept[0])
    n_panels, n, width = matrix.shape
    rows = np.zeros((BLOCK, BLOCK + n_panels * width))
    vector, rates, gaps = np.zeros(rows.shape[1]), np.empty(BLOCK), np.empty(side.n_units)
    vector[BLOCK : BLOCK + n] = kept[1]
    for first in range(0, side.n_units, BLOCK):
        if low_rank:
            project_block(side.X, first, matrix, rows, vector)
        else:
            _take_block(slice(first, min(first + BLOCK, n)), matrix, rows, vector)
        visit_block(
            problem.prior, problem.own, first, low_rank, damping, problem.least, rows, vector, site,
            gaps, rates,
        )  # fmt: skip
        downdate(rows, rates, matrix)
    return float(gaps.max())


def _take_block(units, matrix, rows, vector):
    """What `project_block` does, where the matrix is of units itself."""
    n_block = units.stop - units.start
    rows[:n_block, BLOCK:] = matrix[:, units].swapaxes(0, 1).reshape(n_block, -1)
    for whole in (*rows[:n_block], vector):
        whole[:n_block] = whole[BLOCK:][units]


def _covariance(side, site):
    """What a sweep needs of a full matrix: the covariance, and the means."""
    covariance = side.covariance(site)
    return None if covariance is None else (covariance, covariance @ (side.field + site[0]))


def _data_covariance(side, site):
    """What a sweep needs of a linear model with few rows: B^-1, and B^-1 (y - X D t1)."""
    # D has no room for a site of no precision at all; a negative one makes B indefinite.
    floor = 1e-3 * side.floor
    site[1] = np.where(abs(site[1]) < floor, floor, site[1])
    positive, negative = np.maximum(site[1], 0), np.flatnonzero(site[1] < 0)
    precision = np.where(site[1] > 0, positive, np.inf)
    B = side.data_covariance(precision)
    rest = side.y - side.predict(site[0] / precision)
    B = B + np.tril(B, -1).T
    if negative.size:
        columns = side.X[:, negative].astype(np.float64)
        B += (columns / site[1, negative]) @ columns.T
        rest -= columns @ (site[0, negative] / site[1, negative])
    inverse = inv(B)
    return inverse, inverse @ rest
