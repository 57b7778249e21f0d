"""Maxima of a pseudo-likelihood for other weights of its rows, and weights of resampled rows."""

import numpy as np

from fastmf.learning.pseudo_likelihood.existence import decided
from fastmf.learning.pseudo_likelihood.fit import MAX_NEWTON_PARAMETERS, factorised, lbfgs, newton


class Refits:
    """Maxima near the maximum of an objective, for other weights of its rows.

    Newton's method starts with the Hessian at the first maximum, which is factorised once.
    """

    def __init__(self, objective, parameters, l1=0.0, tol=1e-5):
        self.objective, self.parameters, self.l1, self.tol = objective, parameters, l1, tol
        self.factor = None
        # Objectives with a gauge have no coordinates for L-BFGS.
        if not l1 and (objective.n_parameters <= MAX_NEWTON_PARAMETERS or objective.singular):
            self.factor = factorised(objective, objective.hessian(parameters))

    def maximum(self, weights):
        """`Fit` for these weights of the rows, not stopped if there is no maximum."""
        objective = self.objective.reweighted(weights)
        if self.factor is None:
            fit = lbfgs(objective, self.parameters, l1=self.l1, tol=self.tol)
        else:
            fit = newton(objective, self.parameters, factor=self.factor, tol=self.tol)
        # The predicted rise is small on the way to infinity, too.
        exists = decided(objective, fit.parameters, self.l1).exists is not False
        return fit._replace(stopped=fit.stopped and exists)


def counts_of(weights):
    """Weights as numbers of rows."""
    counts = np.rint(weights).astype(np.int64)
    if counts.sum() < 1 or abs(counts - weights).max() > 1e-6 * max(1, weights.max()):
        raise ValueError(
            f"weights must count rows, got a sum of {weights.sum():g}: multiply them, or fit with "
            "weights='sampling'."
        )
    return counts


def with_replacement(rng, weights, sampling):
    """Weights of the rows of a bootstrap sample."""
    if sampling is None:
        n_rows = round(weights.sum())
        return rng.multinomial(n_rows, weights / weights.sum()).astype(float)
    n = sampling.shape[0]
    return weights.sum() * (rng.multinomial(n, np.full(n, 1 / n)) @ sampling)


def without(rng, dropped, weights, sampling):
    """Weights of the rows that remain when a share of them, or of clusters, is dropped."""
    if sampling is None:
        counts = counts_of(weights)
        n_kept = max(1, round((1 - dropped) * counts.sum()))
        return rng.multivariate_hypergeometric(counts, n_kept, method="marginals").astype(float)
    n = sampling.shape[0]
    drawn = np.zeros(n)
    drawn[rng.choice(n, max(1, round((1 - dropped) * n)), replace=False)] = 1
    return weights.sum() * (drawn @ sampling)
