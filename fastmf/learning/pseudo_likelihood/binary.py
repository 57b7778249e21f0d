"""The log-pseudo-likelihood of a fully visible Boltzmann machine, and its derivatives.

With the local field eta_ij = sum_k J_jk x_ik + h_j of unit j in row i and weights w_i that add up
to one (Nguyen & Wood 2016, Eq. 2.1):

    P        = sum_i w_i sum_j (x_ij eta_ij - ln cosh eta_ij - ln 2) - l2 |parameters|^2 / 2
    dP/dh_j  = sum_i w_i (x_ij - tanh eta_ij) - l2 h_j
    dP/dJ_jk = sum_i w_i (x_ik (x_ij - tanh eta_ij) + x_ij (x_ik - tanh eta_ik)) - l2 J_jk
    H        = -d^2P = sum_ij w_i sech^2(eta_ij) z_ij z_ij' + l2 I,   z_ij = d eta_ij / d parameters

Parameters are one vector: the field h_1..h_d, then the couplings J_jk, j < k, in lexicographic
order.

In fits of available cases (`fastmf.learning.pseudo_likelihood.rows`) some terms (i, j) are omitted.
The target x_ij of an omitted term is set to 0: its residual is then 0, and its value is -ln 2,
which is subtracted. Missing values of neighbours are also 0, but only occur in omitted terms.

The solver BSLM uses a bound on the curvature. Firth's penalty is half the log-determinant of H
(Firth 1993). The penalised objective, per unit of weight, is P + ln det H / (2 n) with the weight n
of all rows. With s = sech^2 eta, whose derivative is -2 s tanh eta, and the leverages z' H^-1 z of
the features z = [1, x] of eta_ij, the gradient of the penalty by eta_ij is -w_ij s tanh(eta) z'
H^-1 z / n.
"""

import numpy as np
from scipy.linalg import solve_triangular

from fastmf._common.linalg import LinAlgError, scaled_cholesky
from fastmf._threads.workers import in_parallel, workers_for
from fastmf.kernels.linear.product import pack
from fastmf.kernels.pseudo_likelihood import binary as pl_kernels
from fastmf.kernels.pseudo_likelihood.binary import BSLMData, BSLMSettings, bslm_workspaces
from fastmf.learning.pseudo_likelihood.existence import MAX_CONDITION, Existence, Items
from fastmf.learning.pseudo_likelihood.fit import MAX_ITER, TOLERANCE_ROWS, Fit, lbfgs
from fastmf.learning.pseudo_likelihood.pairwise import (
    MIN_SPIN_VARIANCE,
    Coordinates,
    PairwiseLikelihood,
    SeparateCoordinates,
)
from fastmf.learning.pseudo_likelihood.rows import available


class PseudoLikelihood(PairwiseLikelihood):
    """Mean log-pseudo-likelihood of weighted rows minus l2 / 2 times the squared parameters.

    `states` (n_rows, n_units) are -1 and +1, or 0 if missing. With missing values, the terms are
    available cases: `targets` are the states whose conditional probabilities are included, 0 for
    omitted terms. `edges` are the pairs j < k of coupled units, (n_edges, 2), by default all.
    """

    width = 2

    def __init__(self, states, weights=None, l2=0.0, n_threads=None, edges=None):
        states = np.ascontiguousarray(states, float)
        weights = np.ones(len(states)) if weights is None else weights
        pairs = None if edges is None else np.transpose(edges)
        super().__init__(states, weights, states.shape[1], pairs, n_threads)
        self.l2 = self.ridge = l2
        self.item_of_field, self.targets = np.arange(self.n_units), states
        absent, filled = states == 0, states
        if absent.any():
            self.targets = states * available(np.where(absent, -1, 1), edges)
            totals = self.weights @ ~absent
            means = self.weights @ states / np.where(totals > 0, totals, 1.0)
            filled = np.where(absent, means, states)
        self.mean = self.weights @ filled
        self.second = filled.T @ (self.weights[:, None] * filled)

    def term_weights(self):
        """Return the weights of the terms of each unit, normalised for each unit."""
        if self.targets is self.states:
            return super().term_weights()
        weights = self.weights[:, None] * (self.targets != 0)
        return weights / weights.sum(0)

    # --- parameters -----------------------------------------------------------------------------

    def independent(self, n_rows=TOLERANCE_ROWS):
        """Return the parameters of uncoupled units, with pseudocounts of half a row."""
        parameters = np.zeros(self.n_parameters)
        parameters[: self.n_units] = np.arctanh(n_rows / (n_rows + 1) * self.mean)
        return parameters

    def correlated(self):
        """Return the artanh of partial correlations, exact for two units without fields."""
        covariance = self.second - np.outer(self.mean, self.mean)
        covariance[np.diag_indices(self.n_units)] += MIN_SPIN_VARIANCE
        precision = np.linalg.inv(covariance)
        scale = np.sqrt(precision.diagonal())
        couplings = np.arctanh(np.tril(-precision / np.outer(scale, scale), -1))
        couplings += couplings.T
        couplings[~self.coupled] = 0
        return self.packed(couplings, self.independent()[: self.n_units] - couplings @ self.mean)

    def independent_curvature(self):
        """Return means and variances, and Hessian and slopes of fields, of uncoupled units."""
        variance = np.maximum(1 - self.mean**2, MIN_SPIN_VARIANCE)
        return self.mean, variance, np.diag(variance), np.ones(self.n_units)

    def coordinates(self, separate):
        """Return `Coordinates`, or `SeparateCoordinates`."""
        return (SeparateCoordinates if separate else Coordinates)(self)

    # --- value and gradient ---------------------------------------------------------------------

    def residuals(self, couplings, field, rows=slice(None), out=None):
        """Compute weight * (x - tanh eta), and weight * log-pseudo-likelihood, of rows."""
        states, weights = self.targets[rows], self.weights[rows]
        residuals = np.matmul(self.states[rows], couplings, out=out)
        values = np.empty(len(states))
        # A tanh and a softplus take the time of about six multiply-adds each.
        n_tasks = -(-len(states) // pl_kernels.ROWS_AT_A_TIME)
        n_workers = workers_for(n_tasks, 12 * residuals.size, self.n_threads)
        arguments = field, states, weights, np.zeros(1, np.int64), residuals, values
        in_parallel(pl_kernels.residuals, arguments, n_workers)
        if self.targets is not self.states:
            # Each omitted term is ln(1/2).
            values += weights * np.log(2) * (states == 0).sum(1)
        return residuals, values

    def _value_and_derivatives(self, parameters):
        """Compute the value, half its derivatives by couplings, and derivatives by fields."""
        (couplings, field), residuals = self.unpacked(parameters), np.empty(self.states.shape)

        def sums(rows):
            out, values = self.residuals(couplings, field, rows, residuals[rows])
            return values.sum(), self.states[rows].T @ out, np.ones(len(out)) @ out

        result, self._residuals = self.sums_over_blocks(sums), residuals
        return result

    def _residuals_at(self, parameters, rows):
        self.value_and_gradient(parameters)  # which keeps the residuals at the last parameters
        return self._residuals[rows]

    def __getstate__(self):
        """Leave the cached values at the last parameters, which are large, out of copies."""
        return vars(self) | {"_latest": None, "_residuals": None}

    # --- existence of the maximum ---------------------------------------------------------------

    def items(self, l1=0.0):
        """Return the `Items` of the rows."""
        states, free = self.states, (self.l2 == 0, self.l2 == 0 and not l1)
        labels, targets = ((x > 0) - (x == 0).astype(np.int8) for x in (states, self.targets))
        tables = [np.array([[-1.0], [1.0]])] * self.n_units
        remedies = "solver='firth', more rows or fewer units"
        return Items(labels, targets, states, tables, tables, self.coupled, free, "units", remedies)

    def look(self, parameters):
        """Return the smallest residual w p_b of each row, and whether all margins are positive."""
        # 2 (1 - p) of each observed value, times its weight; 0 for omitted terms.
        r = abs(self._residuals_at(parameters, slice(None)))
        return (r / 2 + (self.targets == 0)).min(1), (r / self.weights[:, None]).max() < 1

    # --- second derivatives ---------------------------------------------------------------------

    def weighted_sech2(self, parameters, rows=slice(None)):
        """Compute weight * sech^2 eta of rows, (n_rows, n_units)."""
        residuals = abs(self._residuals_at(parameters, rows))
        # With u = |x - tanh eta| this is u (2 - u).
        return (2 - residuals / self.weights[rows, None]) * residuals

    def _curvatures(self, parameters, rows):
        variances = self.weighted_sech2(parameters, rows)
        return np.diag(variances.sum(0)), variances, variances

    def leverages(self, inverse):
        """Compute z_ij' inverse z_ij for the features of eta_ij, (n_rows, n_units)."""
        z = np.hstack([np.ones((len(self.states), 1)), self.states])
        out = np.empty(self.states.shape)
        for j, coupled in enumerate(self.coupled):
            features = z[:, np.append(True, coupled)]
            indices = np.append(j, self.index[j, coupled])
            out[:, j] = ((features @ inverse[np.ix_(indices, indices)]) * features).sum(1)
        return out

    # --- scores ---------------------------------------------------------------------------------

    def _row_derivatives(self, parameters, rows):
        residuals = self._residuals_at(parameters, rows) / self.weights[rows, None]
        return residuals, residuals

    def _field_statistics(self, rows):
        return self.states[rows]

    def predictions(self, parameters):
        """Return rows, conditional means, hits of predicted values, and accuracy without them."""
        couplings, field = self.unpacked(parameters)
        states = self.states
        means = np.tanh(states @ couplings + field)
        mean = (self.term_weights() * states).sum(0)
        return states, means, (1 + np.sign(states * means)) / 2, (1 + abs(mean)) / 2

    def _slopes_of_means(self, parameters, factors):
        means = self.predictions(parameters)[1]
        slopes = factors * (1 - means**2)
        return slopes.sum(0), slopes

    def _with(self, states, weights, pairs):
        return PseudoLikelihood(states, weights, self.l2, self.n_threads, np.transpose(pairs))


# --- solvers --------------------------------------------------------------------------------------


def bslm(objective, starts, *, l1=0.0, tol=1e-5, max_iter=10 * MAX_ITER):
    """Maximise by the coordinate updates of Nguyen & Wood, from each of several starts."""
    couplings, field = objective.unpacked(np.array(starts))
    history = np.empty((len(starts), max_iter + 1))
    n_iter = np.zeros(len(starts), np.int64)
    x, total, addresses = objective.states.T, float(objective.total), pl_kernels.bslm_addresses()
    moments = objective.weights, objective.mean, objective.second, total
    data = BSLMData(pack(x), x.astype(np.int8, "C"), *moments)
    tol = float(tol) * total / TOLERANCE_ROWS
    settings = BSLMSettings(float(l1), float(objective.l2), tol, int(max_iter), *addresses)
    work = len(starts) * 100 * objective.states.size * objective.n_units
    n_workers = workers_for(len(starts), work, objective.n_threads, max_iter)
    workspaces = bslm_workspaces(n_workers, data.packed)
    queue = np.zeros(2, np.int64)
    arguments = data, settings, workspaces, queue, couplings, field, history, n_iter
    in_parallel(pl_kernels.bslm, arguments, n_workers)
    return [
        Fit(objective.packed(J, h), list(values[1 : abs(n) + 1]), bool(n > 0))
        for J, h, values, n in zip(couplings, field, history, n_iter, strict=True)
    ]


def penalty(objective, parameters):
    """Compute Firth's penalty per unit of weight, and its gradient."""
    factor = scaled_cholesky(objective.hessian(parameters))
    value = factor.half_log_determinant / objective.total
    couplings, field = objective.unpacked(parameters)
    states = objective.states
    terms = objective.weighted_sech2(parameters) * np.tanh(states @ couplings + field)
    terms *= -objective.leverages(factor.inverse()) / objective.total
    coupling_gradient = states.T @ terms
    return value, objective.packed(coupling_gradient + coupling_gradient.T, terms.sum(0))


def penalised(objective, parameters):
    """Compute the penalised value and its gradient; the value is -inf if H is singular."""
    value, gradient = objective.value_and_gradient(parameters)
    try:
        # The inverse may overflow for large parameters, at which units are certain.
        with np.errstate(over="ignore", invalid="ignore"):
            added, added_gradient = penalty(objective, parameters)
    except LinAlgError:
        return -np.inf, gradient
    if not np.isfinite(added_gradient).all():
        return -np.inf, gradient
    return value + added, gradient + added_gradient


class _Scaled:
    """Pseudo-likelihood with Firth's penalty, in coordinates in which H is 1 at a point."""

    def __init__(self, objective, point):
        self.objective = objective
        factor = scaled_cholesky(objective.hessian(point))
        self.lower, self.scale = factor.factor.lower, factor.scale

    def __getattr__(self, name):
        return getattr(self.objective, name)

    def value_and_gradient(self, parameters):
        return penalised(self.objective, parameters)

    def coordinates(self, separate):
        return self

    def to_parameters(self, z):
        return self.scale * solve_triangular(self.lower, z, lower=True, trans="T")

    def from_parameters(self, parameters):
        return self.lower.T @ (parameters / self.scale)

    def gradient(self, by_parameters):
        return solve_triangular(self.lower, self.scale * by_parameters, lower=True)


def firth(objective, start, *, tol=1e-5, max_iter=MAX_ITER, n_pairs=20):
    """Maximise with Firth's penalty by L-BFGS, rescaled by H after each `n_pairs` steps.

    H omits the second derivatives of the determinant, which are equally large for separated data,
    so that scoring steps H^-1 g converge slowly; L-BFGS learns them from gradients. Stop when the
    predicted gain of all rows, or of `TOLERANCE_ROWS` if these are more, is below tol^2.
    """
    if np.isinf(penalised(objective, start)[0]):
        return Fit(start, [objective.total * objective.value_and_gradient(start)[0]], False)
    # Convert to the tolerance of `lbfgs`; the determinant dominates if rows have little weight.
    tol = 100 * tol**2 * max(1.0, TOLERANCE_ROWS / objective.total)
    fit, history = Fit(start, [], False), []
    while len(history) < max_iter and not fit.stopped:
        n_iter = min(n_pairs, max_iter - len(history))
        fit = lbfgs(_Scaled(objective, fit.parameters), fit.parameters, tol=tol, max_iter=n_iter)
        history += fit.history
    return fit._replace(history=history)


def unique_with_firth(objective):
    """Decide whether the maximum is unique: the Hessian must not be singular."""
    # The rank does not depend on the values of sech^2, which are positive everywhere.
    values = np.linalg.eigvalsh(objective.hessian(np.zeros(objective.n_parameters)))
    return Existence(True) if values[0] > values[-1] / MAX_CONDITION else Existence(
        False, (), "the maximum is not unique: units depend on each other linearly; leave some out "
        "or give a ridge penalty l2",
    )  # fmt: skip
