"""Arguments and working memory of `fastmf.kernels.pseudo_likelihood.binary.bslm`."""

from typing import NamedTuple

import numpy as np

from fastmf._jit.argument_types import Float64, Int8


class BSLMData(NamedTuple):
    """Distinct rows and their moments."""

    states: Float64[2]  # (n_units, n_rows): distinct rows of -1 and +1, transposed
    # int8 (n_units, n_rows): the same. Reading two spins per row and coupling from memory limits
    # the speed
    spins: Int8[2]
    weights: Float64[1]  # (n_rows,): adding up to one
    mean: Float64[1]  # (n_units,) and (n_units, n_units): weighted means of x_j and x_j x_k
    second: Float64[2]  # (n_units,) and (n_units, n_units)
    total: float  # weight of all rows, by which values are multiplied


class BSLMSettings(NamedTuple):
    """Penalties and stopping rule."""

    # Penalty l1 sum |J_jk| + l2 (sum J_jk^2 + sum h_j^2) / 2, over pairs, per unit of weight (this
    # and the next).
    l1: float
    l2: float
    tol: float  # stop after a sweep that raises the penalised log-pseudo-likelihood by no more
    max_iter: int
    odds_and_value: int  # addresses of the functions of these names (this and the next)
    sweep: int


class BSLMWorkspaces(NamedTuple):
    """Memory of each thread that calls `bslm`."""

    odds: Float64[3]  # (n_workers, n_units, n_rows): exp(2 eta_j)
    nll: Float64[2]  # (n_workers, n_rows): negative log-pseudo-likelihood of each row
    factors: Float64[2]  # (n_workers, n_rows): products over units
    value: Float64[1]  # (n_workers,): weighted mean log-pseudo-likelihood


def bslm_workspaces(n_workers, n_units, n_rows):
    """New `BSLMWorkspaces`."""
    shape = n_workers, n_rows
    odds = np.empty((n_workers, n_units, n_rows))
    return BSLMWorkspaces(odds, np.empty(shape), np.empty(shape), np.empty(n_workers))
