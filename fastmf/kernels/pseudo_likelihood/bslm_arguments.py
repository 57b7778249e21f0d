"""Arguments and working memory of `fastmf.kernels.pseudo_likelihood.binary.bslm`."""

from typing import NamedTuple

import numpy as np

from fastmf._jit.argument_types import Float64, Int8


class BSLMData(NamedTuple):
    """Distinct rows and their moments.

    Parameters
    ----------
    states : array of shape (n_units, n_rows)
        Distinct rows of -1 and +1, transposed.
    spins : int8 array of shape (n_units, n_rows)
        The same. Reading two spins per row and coupling from memory limits the speed.
    weights : array of shape (n_rows,)
        Adding up to one.
    mean, second : array of shape (n_units,) and (n_units, n_units)
        Weighted means of x_j and x_j x_k.
    total : float
        Weight of all rows, by which values are multiplied.
    """

    states: Float64[2]
    spins: Int8[2]
    weights: Float64[1]
    mean: Float64[1]
    second: Float64[2]
    total: float


class BSLMSettings(NamedTuple):
    """Penalties and stopping rule.

    Parameters
    ----------
    l1, l2 : float
        Penalty l1 sum |J_jk| + l2 (sum J_jk^2 + sum h_j^2) / 2, over pairs, per unit of weight.
    tol : float
        Stop after a sweep that raises the penalised log-pseudo-likelihood by no more.
    max_iter : int
    odds_and_value, sweep : int
        Addresses of the functions of these names.
    """

    l1: float
    l2: float
    tol: float
    max_iter: int
    odds_and_value: int
    sweep: int


class BSLMWorkspaces(NamedTuple):
    """Memory of each thread that calls `bslm`.

    Parameters
    ----------
    odds : array of shape (n_workers, n_units, n_rows)
        exp(2 eta_j).
    nll : array of shape (n_workers, n_rows)
        Negative log-pseudo-likelihood of each row.
    factors : array of shape (n_workers, n_rows)
        Products over units.
    value : array of shape (n_workers,)
        Weighted mean log-pseudo-likelihood.
    """

    odds: Float64[3]
    nll: Float64[2]
    factors: Float64[2]
    value: Float64[1]


def bslm_workspaces(n_workers, n_units, n_rows):
    """New `BSLMWorkspaces`."""
    shape = n_workers, n_rows
    odds = np.empty((n_workers, n_units, n_rows))
    return BSLMWorkspaces(odds, np.empty(shape), np.empty(shape), np.empty(n_workers))
