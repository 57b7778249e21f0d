"""Maximum pseudo-likelihood of a fully visible Boltzmann machine of {-1, +1} units.

With the local field eta_ij = sum_k J_jk x_ik + h_j of unit j in row i, of weight w_i, the
log-pseudo-likelihood (Eq. 2.1 of the paper) and its derivatives are

    P        = sum_i w_i sum_j (x_ij eta_ij - ln cosh eta_ij - ln 2)
             = -sum_ij w_i ln(1 + exp(-2 x_ij eta_ij))
    dP/dh_j  = sum_i w_i (x_ij - tanh eta_ij)
    dP/dJ_jk = sum_i w_i (2 x_ij x_ik - x_ik tanh eta_ij - x_ij tanh eta_ik)

BSLM maximises a quadratic minorant of one coordinate after the other (Eqs. 2.4, 2.7): with weights
that add up to one the curvature of -P is at most 1 for a field and 2 for a coupling, so that
h_j += dP/dh_j and J_jk += dP/dJ_jk / 2 never decrease P.

The paper is Nguyen & Wood, Neural Computation 28 (2016).
"""

from functools import cache
from typing import NamedTuple

import numpy as np

from fastmf._jit.argument_types import Float64, Int8, argument_types
from fastmf._jit.intrinsics import fetch_and_increment, larger, row, smaller
from fastmf._jit.kernel import REORDER, address_of, call, kernel
from fastmf._threads.workers import next_task, stopped
from fastmf.kernels.linear.product import product, product_address, set_to_zero
from fastmf.special import exp, log1p_of_fraction, log_of_normal


class BSLMData(NamedTuple):
    """Distinct rows and their moments."""

    # (n_panels, n_units, panel_width): distinct rows of -1 and +1, transposed and packed for
    # `product`
    packed: Float64[3]
    # int8 (n_units, n_rows): the same rows, as small as possible: reading two spins per row and
    # coupling limits the speed
    spins: Int8[2]
    weights: Float64[1]  # (n_rows,): adding up to one
    mean: Float64[1]  # (n_units,): weighted means of x_j
    second: Float64[2]  # (n_units, n_units): weighted means of x_j x_k
    total: float  # weight of all rows, by which values are multiplied


class BSLMSettings(NamedTuple):
    """Penalties and stopping rule."""

    # Penalty l1 sum |J_jk| + l2 (sum J_jk^2 + sum h_j^2) / 2, over pairs, per unit of weight (this
    # and the next).
    l1: float
    l2: float
    tol: float  # stop after a sweep that raises the penalised log-pseudo-likelihood by no more
    max_iter: int
    odds_and_value: int  # addresses of the functions of these names (this and the next two)
    sweep: int
    product: int


class BSLMWorkspaces(NamedTuple):
    """Memory of each thread that calls `bslm`."""

    odds: Float64[3]  # (n_workers, n_units + 1, n_panels * panel_width): exp(2 eta_j); spare ones
    nll: Float64[2]  # (n_workers, n_panels * panel_width): negative log-pseudo-likelihoods
    value: Float64[1]  # (n_workers,): weighted mean log-pseudo-likelihood


def bslm_workspaces(n_workers, packed):
    """Return new `BSLMWorkspaces`."""
    n_panels, n_units, width = packed.shape
    shapes = (n_workers, n_units + 1, n_panels * width), (n_workers, n_panels * width), (n_workers,)
    return BSLMWorkspaces(*map(np.ones, shapes))


# Rows of one task that a thread takes from the queue.
ROWS_AT_A_TIME = 64
# Larger odds exp(2 eta) are replaced by this bound, where tanh eta is 1 in double precision: the
# product of two of them is finite.
_MAX_ODDS = float(np.sqrt(np.finfo(np.float64).max / 4))


@kernel(fastmath=REORDER, views=True)
def residuals(field, states, weights, queue, out, value):
    """Compute residuals weight * (x - tanh eta) of rows, and their log-pseudo-likelihoods.

    On entry `out` holds the products of the states with the couplings.
    """
    n_rows, n_units = out.shape
    first = next_task(queue) * ROWS_AT_A_TIME
    while first < n_rows:
        for i in range(first, smaller(first + ROWS_AT_A_TIME, n_rows)):
            x, of_row = row(states, (i, 0), n_units), row(out, (i, 0), n_units)
            value[i] = _row_residuals(of_row, field, x, weights[i])
        first = next_task(queue) * ROWS_AT_A_TIME


@kernel(mode="merged")
def _row_residuals(out, field, x, weight):
    """Replace the products of a row by its residuals, and return its log-pseudo-likelihood."""
    zero, one, two = out.dtype.type(0), out.dtype.type(1), out.dtype.type(2)
    total = zero
    for j in range(out.shape[0]):
        t = -two * x[j] * (out[j] + field[j])
        e = exp(-abs(t))
        large = one / (one + e)
        total += larger(t, zero) + log1p_of_fraction(e)
        out[j] = two * weight * x[j] * (large if t > 0 else e * large)
    return -weight * total


@kernel(mode="inline", fastmath=REORDER)
def _update_and_average(change, weights, states, odds_j, odds_k, odds_l):
    """Update odds by a change of J_jk, and average x_l (1 - tanh eta_j) + x_j (1 - tanh eta_l)."""
    (x_j, x_k, x_l), total, up = states, 0.0, exp(2 * change)
    down = 1 / up  # as x is -1 or +1, one exponential serves all rows
    for i in range(weights.shape[0]):
        odds_k[i] *= up if x_j[i] > 0 else down
        odds_j[i] = new = odds_j[i] * (up if x_k[i] > 0 else down)
        p, q = smaller(new, _MAX_ODDS) + 1, smaller(odds_l[i], _MAX_ODDS) + 1
        total += weights[i] * (x_l[i] * q + x_j[i] * p) / (p * q)
    return 2 * total


@kernel(mode="by_address", views=True)
def _odds_and_value(data, settings, couplings, field, workspaces, worker):
    """Compute the odds of all units, and the weighted mean log-pseudo-likelihood."""
    n_units, n_rows = data.spins.shape
    nll, all_odds = row(workspaces.nll, (worker, 0), n_rows), workspaces.odds[worker]
    factors = row(workspaces.odds, (worker, n_units, 0), n_rows)  # the spare odds, 1 in the end
    set_to_zero(nll)
    product(settings.product, couplings, n_units, 0, data.packed, all_odds, n_rows)
    for j in range(n_units):
        odds, x = row(workspaces.odds, (worker, j, 0), n_rows), row(data.spins, (j, 0), n_rows)
        for i in range(n_rows):
            t = 2 * (odds[i] + field[j])
            e = exp(-abs(t))
            nll[i] += larger(-x[i] * t, 0.0)
            factors[i] *= 1 + e
            odds[i] = 1 / e if t > 0 else e
        # Take logarithms before the product of the factors, which are at most 2, could overflow.
        if (j + 1) % (np.finfo(np.float64).maxexp - 1) == 0 or j == n_units - 1:
            for i in range(n_rows):
                nll[i] += log_of_normal(factors[i])
                factors[i] = 1
    value = 0.0
    for i in range(n_rows):
        value -= data.weights[i] * nll[i]
    workspaces.value[worker] = value


@kernel(mode="merged")
def _penalty(settings, couplings, field):
    """Return l1 sum |J_jk| + l2 (sum J_jk^2 + sum h_j^2) / 2, over pairs."""
    absolute, squares = 0.0, 0.0
    for j in range(field.shape[0]):
        squares += field[j] * field[j]
        for k in range(j + 1, field.shape[0]):
            coupling = couplings[j, k]
            absolute += abs(coupling)
            squares += coupling * coupling
    return settings.l1 * absolute + settings.l2 / 2 * squares


@kernel(mode="merged")
def _maximiser(old, gradient, curvature, l1, l2):
    """Return the maximiser of the quadratic minorant of one coordinate less its penalties."""
    target = old + (gradient - l2 * old) / (curvature + l2)
    threshold = l1 / (curvature + l2)
    return larger(target - threshold, 0.0) + smaller(target + threshold, 0.0)


@kernel(mode="merged")
def _sweep_fields(data, settings, field, workspaces, worker):
    n_rows = data.weights.shape[0]
    for j in range(field.shape[0]):
        odds, total = row(workspaces.odds, (worker, j, 0), n_rows), 0.0
        # Weighted mean of 1 - tanh eta_j = 2 / (odds + 1).
        for i in range(n_rows):
            total += data.weights[i] / (odds[i] + 1)
        old, gradient = field[j], data.mean[j] - 1 + 2 * total
        change = _maximiser(old, gradient, 1.0, 0.0, settings.l2) - old
        field[j] = old + change
        factor = exp(2 * change)
        for i in range(n_rows):
            odds[i] *= factor


@kernel(mode="by_address", fastmath=REORDER, views=True)
def _sweep(data, settings, couplings, field, workspaces, worker):
    """Update all fields, then all couplings in lexicographic order, from the newest values."""
    _sweep_fields(data, settings, field, workspaces, worker)
    n_units, n_rows = data.spins.shape
    weights, mean = data.weights, data.mean
    for j in range(n_units - 1):
        x_j, odds_j = row(data.spins, (j, 0), n_rows), row(workspaces.odds, (worker, j, 0), n_rows)
        # Spare odds, before the first pair and after the last one, let one loop serve all pairs.
        change, x_k, odds_k = 0.0, x_j, row(workspaces.odds, (worker, n_units, 0), n_rows)
        for k in range(j + 1, n_units + 1):
            x_l = row(data.spins, (k % n_units, 0), n_rows)
            odds_l = row(workspaces.odds, (worker, k, 0), n_rows)
            average = _update_and_average(change, weights, (x_j, x_k, x_l), odds_j, odds_k, odds_l)
            if k < n_units:
                gradient = 2 * data.second[j, k] - mean[j] - mean[k] + average
                old = couplings[j, k]
                change = _maximiser(old, gradient, 2.0, settings.l1, settings.l2) - old
                couplings[j, k] = couplings[k, j] = old + change
                x_k, odds_k = x_l, odds_l


@kernel(views=True)
def bslm(data, settings, workspaces, queue, couplings, field, history, n_iter):
    """Maximise the penalised log-pseudo-likelihood, by coordinates, from several starts.

    Eqs. 2.4 and 2.7, in the paper's order: all fields, then all couplings, each to the maximum of a
    quadratic minorant, until a sweep raises the value by no more than `tol`.
    """
    worker = fetch_and_increment(row(queue, (1,), 1))
    start = next_task(queue)
    while start < couplings.shape[0]:
        J, h = couplings[start], row(field, (start, 0), field.shape[1])
        n_iter[start], before = -settings.max_iter, -np.inf
        for sweep in range(settings.max_iter + 1):
            if stopped(queue):
                return
            if sweep > 0:
                call(settings.sweep, (data, settings, J, h, workspaces, worker))
            call(settings.odds_and_value, (data, settings, J, h, workspaces, worker))
            value = data.total * (workspaces.value[worker] - _penalty(settings, J, h))
            history[start, sweep] = value
            if value - before <= settings.tol and sweep > 0:
                n_iter[start] = sweep
                break
            before = value
        start = next_task(queue)


@cache
def bslm_addresses():
    """Return addresses of the functions that `bslm` calls, the last fields of `BSLMSettings`."""
    state = BSLMData, BSLMSettings, Float64[2], Float64[1], BSLMWorkspaces, int
    arguments = argument_types(float, *state)
    functions = (address_of(function, *arguments) for function in (_odds_and_value, _sweep))
    return *functions, product_address(np.dtype(float))
