"""Refits of a pseudo-likelihood with other weights of the rows, and resampled weights."""

import numpy as np

from fastmf.learning.pseudo_likelihood.existence import decided
from fastmf.learning.pseudo_likelihood.fit import MAX_NEWTON_PARAMETERS, factorised, lbfgs, newton


class Refits:
    """Refits of an objective with other weights of its rows, starting at its maximum.

    Newton's method starts with the Hessian at this maximum, which is factorised once.
    """

    def __init__(self, objective, parameters, l1=0.0, tol=1e-5):
        self.objective, self.parameters, self.l1, self.tol = objective, parameters, l1, tol
        self.factor = None
        # Objectives with a gauge have no coordinates for L-BFGS.
        if not l1 and (objective.n_parameters <= MAX_NEWTON_PARAMETERS or objective.singular):
            self.factor = factorised(objective, objective.hessian(parameters))

    def maximum(self, weights):
        """Return the `Fit` for new weights of the rows; `stopped` is False without a maximum."""
        objective = self.objective.reweighted(weights)
        if self.factor is None:
            fit = lbfgs(objective, self.parameters, l1=self.l1, tol=self.tol)
        else:
            fit = newton(objective, self.parameters, factor=self.factor, tol=self.tol)
        # The stopping rule may also hold for parameters that tend to infinity.
        exists = decided(objective, fit.parameters, self.l1).exists is not False
        return fit._replace(stopped=fit.stopped and exists)


def counts_of(weights):
    """Return frequency weights as integers; raise if they are not."""
    counts = np.rint(weights).astype(np.int64)
    if counts.sum() < 1 or abs(counts - weights).max() > 1e-6 * max(1, weights.max()):
        raise ValueError(
            f"weights must count rows, got a sum of {weights.sum():g}: multiply them; for "
            "bootstraps and stability, fit with clusters=range(len(X)) instead."
        )
    return counts


def with_replacement(rng, weights, sampling):
    """Draw weights of the rows for a bootstrap sample."""
    if sampling is None:
        return rng.multinomial(round(weights.sum()), weights / weights.sum()).astype(float)
    n = sampling.shape[0]
    return weights.sum() * (rng.multinomial(n, np.full(n, 1 / n)) @ sampling)


def without(rng, dropped, weights, sampling):
    """Draw weights of the rows after dropping a share of the rows, or of clusters."""
    if sampling is None:
        counts = counts_of(weights)
        n_kept = max(1, round((1 - dropped) * counts.sum()))
        return rng.multivariate_hypergeometric(counts, n_kept, method="marginals").astype(float)
    n = sampling.shape[0]
    drawn = np.zeros(n)
    drawn[rng.choice(n, max(1, round((1 - dropped) * n)), replace=False)] = 1
    return weights.sum() * (drawn @ sampling)
