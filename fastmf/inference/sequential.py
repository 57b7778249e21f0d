"""Sequential expectation propagation: exact rank-one updates, put off a block at a time."""

import numpy as np
from scipy.linalg import inv
from scipy.linalg.blas import dgemm, dgemv, dtrsm

from fastmf.inference.gaussian import Dense, LowRank
from fastmf.inference.sites import energy, state_of
from fastmf.kernels.sites import visit_block

# Sites whose updates reach the large matrix together.
BLOCK = 32


class _Covariance:
    """What a sweep needs of a full matrix: the covariance, and the means."""

    low_rank = False

    def __init__(self, side):
        self.side = side

    def renew(self, site):
        """Start from these sites; False if there is no Gaussian."""
        covariance = self.side.covariance(site)
        if covariance is None:
            return False
        self.matrix = np.asfortranarray(covariance)
        self.vector = self.matrix @ (self.side.field + site[0])
        return True

    def block(self, units):
        """The columns z, their overlaps with the units, and the field of the units."""
        columns = np.asfortranarray(self.matrix[:, units])
        return columns, np.array(columns[units].T), self.vector[units].copy()


class _DataCovariance:
    """What a sweep needs of a linear model with few rows: B^-1, and B^-1 (y - X D t1)."""

    low_rank = True

    def __init__(self, side):
        self.side = side

    def renew(self, site):
        """Start from these sites."""
        # D has no room for a site of no precision at all; a negative one makes B indefinite.
        floor = 1e-3 * self.side.floor
        site[1] = np.where(abs(site[1]) < floor, floor, site[1])
        X, positive = self.side.X, np.maximum(site[1], 0)
        negative = np.flatnonzero(site[1] < 0)
        precision = np.where(site[1] > 0, positive, np.inf)
        B = self.side.data_covariance(precision)
        rest = self.side.y - self.side.predict(site[0] / precision)
        B = B + np.tril(B, -1).T
        if negative.size:
            columns = X[:, negative].astype(np.float64)
            B += (columns / site[1, negative]) @ columns.T
            rest -= columns @ (site[0, negative] / site[1, negative])
        self.matrix = np.asfortranarray(inv(B))
        self.vector = self.matrix @ rest
        return True

    def block(self, units):
        """The columns z, their overlaps with the units, and the field of the units."""
        X = np.array(self.side.X[:, units].T, np.float64).T
        columns = dgemm(1.0, self.matrix, X)
        return columns, dgemm(1.0, columns, X, trans_a=1).T, dgemv(1.0, X, self.vector, trans=1)


def sequential(problem, state, damping, trace):
    """Sweeps over the sites, each update seen by the next: the last state, and if it converged."""
    share = 0.0 if damping is None else damping
    n_units = problem.side.n_units
    if not isinstance(problem.side, Dense | LowRank):
        raise ValueError("schedule 'sequential' is not available for layered models.")
    keeper = (_DataCovariance if isinstance(problem.side, LowRank) else _Covariance)(problem.side)
    site, gaps = state.site.copy(), np.empty(n_units)
    rates, steps, moved = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK * BLOCK)
    for _ in range(problem.max_iter):
        if not keeper.renew(site):
            return state, False
        for first in range(0, n_units, BLOCK):
            units = slice(first, min(first + BLOCK, n_units))
            n = units.stop - first
            columns, overlap, field = keeper.block(units)
            among = moved[: n * n].reshape(n, n)
            visit_block(
                problem.prior, problem.own, first, keeper.low_rank, share, problem.least,
                overlap, field, site, gaps[units], rates[:n], steps[:n], among,
            )  # fmt: skip
            lower = np.eye(n, order="F") - np.tril(among, -1)
            columns = dtrsm(1.0, lower, columns, side=1, lower=1, trans_a=1, diag=1, overwrite_b=1)
            keeper.matrix = dgemm(-1.0, columns * rates[:n], columns, beta=1.0, c=keeper.matrix,
                                  trans_b=1, overwrite_c=1)  # fmt: skip
            keeper.vector += columns @ steps[:n]
        residual, converged = float(gaps.max()), False
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
