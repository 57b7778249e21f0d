"""Selection of couplings item by item: regressions of each item on all others, joined to a graph.

The conditional distribution of item i given all others is a logistic regression, with the scores of
the others as predictors (of m_i + 1 categories: one of adjacent categories with a common slope).
Each is fitted on its own with an l1 penalty along a path, and of the path of item i the penalty is
chosen with the smallest

    EBIC_i = -2 l_i + k_i (log n + 2 gamma log(d - 1))

where l_i is the log-likelihood at the penalised estimate and k_i the number of neighbours (van
Borkulo et al. 2014, after Ravikumar, Wainwright & Lafferty 2010). Predictors are standardised. An
edge is there if each of its two items is a neighbour of the other ("and"), or one is ("or").
"""

import numpy as np

from fastmf.learning.pseudo_likelihood.fit import MAX_ITER, TOLERANCE_ROWS
from fastmf.learning.pseudo_likelihood.lbfgs import minimise
from fastmf.learning.pseudo_likelihood.ordinal.objective import OrdinalLikelihood
from fastmf.learning.pseudo_likelihood.selection import (
    N_PENALTIES,
    SMALLEST,
    SelectionPath,
)

RULES = ("and", "or")


class Regressions(OrdinalLikelihood):
    """Sum of the log-likelihoods of all regressions, each with coefficients of its own.

    Parameters are thresholds where the predictors are at their means, then coefficients of
    standardised predictors, one for each pair of a predictor and an item.
    """

    def __init__(self, states, weights, thresholds, pairs, n_threads=None):
        super().__init__(states, weights, thresholds, pairs=pairs, n_threads=n_threads)
        allowed = self.index >= 0
        self.predictor, self.item = np.nonzero(allowed)
        self.n_parameters = self.n_fields + len(self.item)
        self.mean = self.weights @ self.states
        spread = np.sqrt(self.weights @ np.square(self.states - self.mean))
        # A constant predictor has no effect on others, whatever its scale.
        self.spread = np.where(spread > 0, spread, 1.0)

    def unpacked(self, parameters):
        """Coefficients (predictor, item) of scores, and parameters of thresholds."""
        coefficients = np.zeros((self.n_units, self.n_units))
        coefficients[self.predictor, self.item] = parameters[self.n_fields :]
        coefficients /= self.spread[:, None]
        shift = (self.mean @ coefficients)[self.thresholds.item_of_parameter]
        return coefficients, parameters[: self.n_fields] - self.thresholds.slope * shift

    def value_and_gradient(self, parameters):
        """Value and its gradient."""

        def sums(rows):
            w, (p, residuals, values) = self.weights[rows], self.conditionals(parameters, rows)
            weighted = w[:, None] * residuals
            return w @ p, self.states[rows].T @ weighted, weighted.sum(0), w @ values

        expected, products, residuals, value = self.sums_over_blocks(sums)
        fields = self.thresholds.gradient(self.frequencies - expected)
        products = (products - np.outer(self.mean, residuals)) / self.spread[:, None]
        return value, np.append(fields, products[self.predictor, self.item])

    def log_likelihoods(self, parameters):
        """Log-likelihood of the regression of each item, of all rows together."""

        def sums(rows):
            p = self.conditionals(parameters, rows)[0]
            observed = np.take_along_axis(p, self.states[rows].astype(int)[None], 0)[0]
            return (self.weights[rows] @ np.log(np.maximum(observed, np.finfo(float).tiny)),)

        return self.total * self.sums_over_blocks(sums)[0]

    def lasso(self, start, l1, tol):
        """Maximum with a penalty of the modulus of each coefficient, array of one for each item."""

        def function(z, gradient):
            value, up = self.value_and_gradient(z)
            np.negative(up, out=gradient)
            return -value

        penalty = np.append(np.zeros(self.n_fields), l1[self.item])
        return minimise(
            function, start.copy(), tol=tol / 100 / TOLERANCE_ROWS, max_iter=MAX_ITER,
            l1=penalty, n_threads=self.n_threads,
        ).parameters  # fmt: skip


def nodewise_path(regressions, gamma, rule, tol):
    """Neighbours of each item along a path of penalties, and the edges that are chosen."""
    d, n = regressions.n_units, regressions.n_fields
    parameters = regressions.independent()
    slopes = abs(regressions.value_and_gradient(parameters)[1][n:])
    largest = np.zeros(d)
    np.maximum.at(largest, regressions.item, slopes)
    penalties = np.geomspace(1, SMALLEST, N_PENALTIES)[:, None] * largest
    cost = np.log(regressions.total) + 2 * gamma * np.log(max(d - 1, 1))
    neighbours, values, ebic = [], [], []
    for k, l1 in enumerate(penalties):
        # At the largest penalties, to rounding, no item has neighbours.
        if k:
            parameters = regressions.lasso(parameters, l1, tol)
        neighbour = np.zeros((d, d), bool)
        neighbour[regressions.predictor, regressions.item] = parameters[n:] != 0
        neighbours.append(neighbour)
        values.append(regressions.log_likelihoods(parameters))
        ebic.append(-2 * values[-1] + neighbour.sum(0) * cost)
        chosen = np.argmin(ebic, axis=0)
        if k - chosen.max() >= N_PENALTIES // 5:
            break
    neighbours = np.array(neighbours)
    directed = neighbours[chosen, :, np.arange(d)].T
    joined = directed & directed.T if rule == "and" else directed | directed.T
    path = SelectionPath(
        penalties[: len(values)], neighbours.sum(1), np.array(values), np.array(ebic), chosen
    )
    return path, np.argwhere(np.triu(joined))
