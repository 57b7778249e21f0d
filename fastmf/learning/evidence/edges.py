"""Which of some effects are zero, from their estimates and the covariance of these.

With estimates e ~ N(theta, C), and a spike and a Gaussian slab for each effect theta_k, the
posterior is that of a spike-and-slab regression with L^-1 e = L^-1 theta + noise of variance 1,
where C = L L' (`fastmf.inference.ep`). For the couplings of a network, whose C is the sandwich
covariance of a composite likelihood, the effects are its edges.
"""

from typing import NamedTuple

import numpy as np
from scipy import linalg

from fastmf.learning.evidence import Hyperparameters, Regression, fixed_points, robust_solution
from fastmf.special import sigmoid

# Tolerance of fixed points, in the smallest standard error of an effect if others were known.
TOL = 1e-6
# Smallest eigenvalue of a matrix of correlations of estimates that are not collinear.
MIN_EIGENVALUE = 1e-10
# Effects up to which all patterns are enumerated, and of the largest block beyond, which correlate
# by more than this under the posterior without a spike. Without blocks, probabilities of few
# effects with large errors were wrong by 0.07.
MAX_ENUMERATED, MAX_BLOCK, MIN_CORRELATION = 10, 5, 0.1
# Factors of the scale for which the sensitivity is reported.
SCALES = (0.5, 1.0, 2.0)
# Deviation of the log of a scale that is learned, about a scale of 1, and bounds of the search for
# it and for log-odds.
DEVIATION, BOUNDS = 1.0, ((-7.0, 7.0), (-12.0, 12.0))


class Effects(NamedTuple):
    """Posterior of some effects.

    Parameters
    ----------
    log_odds : array of shape (n,)
        Posterior log-odds of an effect that is not zero.
    mean, std : array of shape (n,)
    prior_log_odds, scale : float
        Parameters of the prior, as given or learned.
    log_evidence : float
        Log-density of the estimates.
    converged : bool
    """

    log_odds: np.ndarray
    mean: np.ndarray
    std: np.ndarray
    prior_log_odds: float
    scale: float
    log_evidence: float
    converged: bool

    @property
    def probability(self):
        """Posterior probabilities of effects that are not zero."""
        return sigmoid(self.log_odds)


class Whitened(NamedTuple):
    """Estimates as rows of a regression with noise of variance 1.

    Parameters
    ----------
    X : array of shape (n, n)
    y : array of shape (n,)
    log_scale : float
        Log-determinant of `X`.
    """

    X: np.ndarray
    y: np.ndarray
    log_scale: float

    @classmethod
    def of(cls, estimate, covariance):
        """From estimates and their covariance.

        Raises
        ------
        ValueError
            If the covariance is singular, or no covariance.
        """
        errors = np.sqrt(np.maximum(np.diagonal(covariance), 0))
        if not (np.isfinite(covariance).all() and (errors > 0).all()):
            raise ValueError("the covariance of the estimates must be finite, variances positive.")
        correlation = covariance / np.outer(errors, errors)
        least = linalg.eigvalsh(correlation, subset_by_index=[0, 0])[0]
        if least < MIN_EIGENVALUE:
            raise ValueError(
                "the covariance of the estimates is singular, as that of the sandwich is of fewer "
                "different rows than parameters: take errors='naive', or fewer features."
            )
        lower = linalg.cholesky(correlation, lower=True)
        X = linalg.solve_triangular(lower, np.diag(1 / errors), lower=True)
        return cls(X, X @ estimate, -np.log(lower.diagonal()).sum() - np.log(errors).sum())

    @property
    def chi_square(self):
        """Squared length of the estimates in units of their covariance."""
        return float(self.y @ self.y)

    def posterior(self, prior_log_odds=0.0, scale=1.0):
        """Posterior of the effects.

        Parameters
        ----------
        prior_log_odds : float or None
            Log-odds of an effect that is not zero; None: learned from the evidence, with a uniform
            prior of the probability.
        scale : float or None
            Standard deviation of such an effect; None: learned, with a log-normal prior.

        Returns
        -------
        Effects
        """
        n = len(self.y)
        task = Regression(self.X, self.y, np.zeros(n, int))
        if prior_log_odds is None or scale is None:
            prior_log_odds, scale = _learned(task, prior_log_odds, scale)
        model = task.model(_parameters(prior_log_odds, scale))
        tol = TOL / np.sqrt(np.square(self.X).sum(0).max())
        result = robust_solution(model, tol=tol, blocks=_blocks(self.X, scale))
        log_odds = model.prior.tilted_log_odds(result.b, result.a)
        if (p := result.inclusion_probability) is not None:
            # Near 0 and 1 probabilities are rounded, and cavities say enough.
            inner = (p > 1e-12) & (p < 1 - 1e-12)
            p = np.where(inner, p, 0.5)
            log_odds = np.where(inner, np.log(p) - np.log1p(-p), log_odds)
        evidence = result.log_evidence + self.log_scale
        deviation = np.sqrt(np.maximum(result.var, 0))
        # With one block of all, rounding can end the iterations before the solver's own rule.
        converged = bool(result.converged or result.residual < tol)
        return Effects(log_odds, result.mean, deviation, prior_log_odds, scale, evidence, converged)


def _blocks(X, scale):
    """Labels of effects that have a site together: those that correlate most, joined greedily."""
    n = X.shape[1]
    if n <= MAX_ENUMERATED:
        return np.zeros(n, int)
    precision = X.T @ X + np.eye(n) / scale**2
    deviations = np.sqrt(precision.diagonal())
    correlation = abs(precision / np.outer(deviations, deviations))
    first, second = np.nonzero(np.triu(correlation > MIN_CORRELATION, 1))
    labels, sizes = np.arange(n), np.ones(n, int)
    for k in np.argsort(-correlation[first, second], kind="stable"):
        i, j = labels[first[k]], labels[second[k]]
        if i != j and sizes[i] + sizes[j] <= MAX_BLOCK:
            labels[labels == j] = i
            sizes[i] += sizes[j]
    return labels


def _parameters(log_odds, scale):
    return Hyperparameters(1.0, scale * scale, np.array([float(log_odds)]))


def _learned(task, log_odds, scale):
    """Prior log-odds and scale of the largest evidence times their prior; what is given is kept."""
    from scipy import optimize  # not before it is used: its import takes a while

    free = np.array([scale is None, log_odds is None])
    point = np.array([0.0 if scale is None else np.log(scale), log_odds or 0.0])

    def loss(values):
        point[free] = values
        found = fixed_points(task, _parameters(point[1], np.exp(point[0])))
        p = sigmoid(point[1])
        value = found.log_evidence - free[0] * (point[0] / DEVIATION) ** 2 / 2
        value += free[1] * (np.log(p) + np.log1p(-p))
        by_scale = 2 * found.gradient[1] - point[0] / DEVIATION**2
        return -value, -np.array([by_scale, found.gradient[2] + 1 - 2 * p])[free]

    bounds = [bound for bound, is_free in zip(BOUNDS, free, strict=True) if is_free]
    found = optimize.minimize(loss, point[free], jac=True, method="L-BFGS-B", bounds=bounds)
    point[free] = found.x
    return float(point[1]), float(np.exp(point[0]))
