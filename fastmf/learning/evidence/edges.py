"""Which of some effects are zero, from their estimates and the covariance of these.

With estimates e ~ N(theta, C), and a spike and a slab for each effect theta_k, the posterior is
that of a spike-and-slab regression with L^-1 e = L^-1 theta + noise of variance 1, where C = L L'
(`fastmf.inference.ep`). For the couplings of a network, whose C is the sandwich covariance of a
composite likelihood, the effects are its edges.

A Cauchy slab of scale s is a mixture of normal ones, N(0, s^2 omega) with 1 / omega the square of a
standard normal variable. Each effect has the one normal slab, and the log-odds, that give the same
mean and the same probability as the mixture where the rest of the posterior is a Gaussian N(m, v):

    ln Z = ln sum_omega p(omega) N(m; 0, v + s^2 omega),  r = E[s^2 omega / (v + s^2 omega)]
    variance of the slab = v r / (1 - r)

which is found by iteration, and exact for independent estimates.

Many effects are taken item by item, with the covariance of those of one item (`NodeBlocks`): two
estimates whose pairs have no item in common hardly correlate.
"""

from typing import NamedTuple

import numpy as np
from scipy import linalg
from scipy.special import logsumexp

from fastmf.learning.evidence import (
    Hyperparameters,
    Loci,
    Regression,
    fixed_points,
    robust_solution,
)
from fastmf.models import SparseLinearModel
from fastmf.priors import GaussBernoulli
from fastmf.special import sigmoid

# Tolerance of fixed points, in the smallest standard error of an effect if others were known.
EDGE_TOL = 1e-6
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
SLABS = ("gaussian", "cauchy")
# Logarithms of omega at which the mixture of a Cauchy slab is summed, and their log-weights.
LOG_OMEGA = np.arange(-6.0, 60.0, 0.25)
LOG_OMEGA_WEIGHTS = np.log(0.25) - (np.log(2 * np.pi) + LOG_OMEGA + np.exp(-LOG_OMEGA)) / 2
# Changes of log-odds and of logarithms of variances at which the iteration ends, and how many it
# takes at most.
MIXTURE_TOL, MAX_MIXTURES = 1e-4, 50


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
        """From estimates and their covariance."""
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

    def posterior(self, prior_log_odds=0.0, scale=1.0, slab="gaussian"):
        """Posterior of the effects."""
        return Parts((self,), (slice(None),), len(self.y)).posterior(prior_log_odds, scale, slab)


class Parts(NamedTuple):
    """Estimates of which some are taken together, and independent of others.

    Parameters
    ----------
    parts : tuple of Whitened
    units : tuple of int arrays
        Effects of each part; an effect may be in several.
    n_effects : int
    """

    parts: tuple
    units: tuple
    n_effects: int

    @property
    def repeats(self):
        """Number of parts in which an effect is."""
        return sum(len(part.y) for part in self.parts) / self.n_effects

    def mean(self, values):
        """Means over the parts of values of each effect."""
        total, counts = np.zeros(self.n_effects), np.zeros(self.n_effects)
        for units, own in zip(self.units, values, strict=True):
            total[units] += own
            counts[units] += 1
        return total / counts

    def posterior(self, prior_log_odds=0.0, scale=1.0, slab="gaussian"):
        """Posterior of the effects: see `Whitened.posterior`.

        Effects that are in several parts have the mean of their log-odds and moments there, and the
        evidence is divided by how many these are.
        """
        if prior_log_odds is None or scale is None:
            prior_log_odds, scale = _learned(self, prior_log_odds, scale, slab)
        found = [_posterior(part, prior_log_odds, scale, slab) for part in self.parts]
        odds, means, variances = (
            self.mean([values(one) for one in found])
            for values in (lambda x: x.log_odds, lambda x: x.mean, lambda x: x.std**2)
        )
        evidence = sum(one.log_evidence for one in found) / self.repeats
        converged = all(one.converged for one in found)
        return Effects(odds, means, np.sqrt(variances), prior_log_odds, scale, evidence, converged)


def _posterior(part, log_odds, scale, slab, blocks=None, tol=MIXTURE_TOL):
    """Posterior of one part with parameters that are known."""
    n = len(part.y)
    blocks = _blocks(part.X, scale) if blocks is None else blocks
    change, variance, result, moved = np.zeros(n), np.full(n, scale**2), None, 0.0
    for _ in range(MAX_MIXTURES):
        found, result = _gaussian_posterior(part, log_odds + change, variance, blocks, result)
        if slab == "gaussian":
            break
        mixture = _cauchy(*found[1:], variance, scale)
        moved = abs(np.append(mixture.change - change, np.log(mixture.variance / variance))).max()
        change, variance = mixture.change, mixture.variance
        if moved < tol:
            break
    evidence = result.log_evidence + part.log_scale
    evidence += (np.logaddexp(0, log_odds + change) - np.logaddexp(0, log_odds)).sum()
    posterior_odds, mean, spread = found if slab == "gaussian" else (found[0], *mixture[2:])
    p = sigmoid(posterior_odds)
    std = np.sqrt(p * spread + p * sigmoid(-posterior_odds) * mean**2)
    converged = result.converged and moved < tol
    return Effects(posterior_odds, p * mean, std, log_odds, scale, evidence, converged)


def _gaussian_posterior(part, log_odds, variance, blocks, init=None):
    """Log-odds, moments of effects that are not zero, and the fixed point, with normal slabs."""
    prior = GaussBernoulli(np.zeros(len(part.y)), 1 / variance, log_odds)
    model = SparseLinearModel(part.X, part.y, 1.0, prior)
    tol = EDGE_TOL / np.sqrt(np.square(part.X).sum(0).max())
    result = robust_solution(model, init, tol=tol, blocks=blocks)
    precision, linear = part.X.T @ part.X, part.X.T @ part.y
    members = [np.flatnonzero(blocks == label) for label in np.unique(blocks)]
    if len(members) > 1:
        T = np.diag(result.sites[1])
        for own, matrix in result.block_sites or ():
            T[np.ix_(own, own)] = matrix
        covariance = linalg.inv(precision + T)
        mean = covariance @ (linear + result.sites[0])
    found = np.empty((3, len(part.y)))
    for own in members:
        g, P = linear[own], precision[np.ix_(own, own)]
        if len(members) > 1:
            P = linalg.inv(covariance[np.ix_(own, own)])
            g, P = P @ mean[own] - result.sites[0, own], P - T[np.ix_(own, own)]
        found[:, own] = _enumerated(P, g, log_odds[own], variance[own])
    return found, result


def _enumerated(precision, linear, log_odds, variance):
    """Log-odds, and means and variances of effects that are not zero, by all patterns of a block.

    Effects enter the patterns one by one: a pivot of (1 + D P D, D g), with D the deviations of the
    slabs, turns the patterns without an effect into those with it.
    """
    c, D = len(linear), np.sqrt(variance)
    A, logs = np.zeros((1, c + 1, c + 1)), np.zeros(1)
    A[0, :c, :c] = np.eye(c) + D[:, None] * precision * D
    A[0, :c, c] = A[0, c, :c] = D * linear
    for i in range(c):
        column = A[:, i] / A[:, i, i, None]
        pivoted = A - A[:, i, :, None] * column[:, None]
        pivoted[:, i] = pivoted[:, :, i] = column
        pivoted[:, i, i] = -1 / A[:, i, i]
        logs = np.append(logs, logs + log_odds[i] - np.log(A[:, i, i]) / 2)
        A = np.concatenate([A, pivoted])
    logs = logs - A[:, c, c] / 2
    included = np.arange(len(logs))[:, None] >> np.arange(c) & 1 == 1
    with_effect = np.where(included, logs[:, None], -np.inf)
    total = logsumexp(with_effect, axis=0)
    without = logsumexp(np.where(included, -np.inf, logs[:, None]), axis=0)
    weights, means = np.exp(with_effect - total), A[:, :c, c]
    mean = (weights * means).sum(0)
    spread = (weights * ((means - mean) ** 2 - np.einsum("kii->ki", A)[:, :c])).sum(0)
    return total - without, D * mean, variance * spread


class CauchySlab(NamedTuple):
    """Cauchy slab of effects whose other factors are Gaussian.

    Parameters
    ----------
    variance : array of shape (n,)
        Variance of the normal slab with the same mean.
    change : array of shape (n,)
        Log of the integral with the Cauchy slab, less that with the normal one.
    mean, spread : array of shape (n,)
        Mean and variance of the effect if it is not zero.
    """

    variance: np.ndarray
    change: np.ndarray
    mean: np.ndarray
    spread: np.ndarray


def _cauchy(mean, spread, variance, scale):
    """The `CauchySlab` of effects of these moments if they are not zero, with normal slabs."""
    # A mixture over the patterns of other effects can be as wide as the slab.
    precision = np.maximum(1 / spread - 1 / variance, 1e-6 / spread)
    m, v = mean / spread / precision, 1 / precision
    slabs = scale**2 * np.exp(LOG_OMEGA)
    total = v[:, None] + slabs
    logs = LOG_OMEGA_WEIGHTS - (np.log(total) + m[:, None] ** 2 / total) / 2
    whole = logsumexp(logs, axis=1)
    weights, shrink = np.exp(logs - whole[:, None]), slabs / total
    r = (weights * shrink).sum(1)
    own = v * r / (weights * (v[:, None] / total)).sum(1)
    change = whole + (np.log(v + own) + m**2 / (v + own)) / 2
    second = (weights * shrink**2).sum(1) - r**2
    return CauchySlab(own, change, m * r, v * r + m**2 * second)


def node_blocks(estimate, covariances, units):
    """Estimates of pairs of items, with the covariances of those of each item alone."""
    parts = tuple(
        Whitened.of(estimate[own], block) for own, block in zip(units, covariances, strict=True)
    )
    return Parts(parts, tuple(units), len(estimate))


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


def _learned(estimates, log_odds, scale, slab):
    """Prior log-odds and scale of the largest evidence times their prior; what is given is kept.

    First with sites of single effects, then from there with those of the blocks that correlate most
    at that scale.
    """
    free = np.array([scale is None, log_odds is None])
    point = np.array([0.0 if scale is None else np.log(scale), log_odds or 0.0])
    point = _searched(estimates, point, free, [None] * len(estimates.parts))
    blocks = [_blocks(part.X, np.exp(point[0])) for part in estimates.parts]
    if slab == "gaussian":
        point = _searched(estimates, point, free, blocks)
    else:
        point = _searched_without_gradients(estimates, point, free, blocks)
    return float(point[1]), float(np.exp(point[0]))


def _log_prior(point, free):
    """Log-density of what is learned, and its gradient."""
    p = sigmoid(point[1])
    terms = np.array([-((point[0] / DEVIATION) ** 2) / 2, np.log(p) + np.log1p(-p)])
    return float(free @ terms), np.array([-point[0] / DEVIATION**2, 1 - 2 * p])


def _searched(estimates, point, free, blocks):
    """Maximum by gradients, with normal slabs."""
    from scipy import optimize  # not before it is used: its import takes a while

    point, share = point.copy(), 1 / estimates.repeats
    parts = tuple(
        Regression(part.X, part.y, np.zeros(len(part.y), int), blocks=labels)
        for part, labels in zip(estimates.parts, blocks, strict=True)
    )
    task = Loci(parts, estimates.units, np.zeros(estimates.n_effects, int))

    def loss(values):
        point[free] = values
        here = Hyperparameters(1.0, np.exp(2 * point[0]), point[1:])
        found = fixed_points(task, here)
        value, gradient = _log_prior(point, free)
        gradient = gradient + share * found.gradient[1:] * [2, 1]
        return -value - share * found.log_evidence, -gradient[free]

    bounds = [bound for bound, is_free in zip(BOUNDS, free, strict=True) if is_free]
    found = optimize.minimize(loss, point[free], jac=True, method="L-BFGS-B", bounds=bounds)
    point[free] = found.x
    return point


def _searched_without_gradients(estimates, point, free, blocks):
    """Maximum with Cauchy slabs, whose evidence is not stationary in the slabs of effects."""
    from scipy import optimize

    point = point.copy()

    def loss(values):
        point[free] = values
        found = [
            _posterior(part, point[1], np.exp(point[0]), "cauchy", labels, 10 * MIXTURE_TOL)
            for part, labels in zip(estimates.parts, blocks, strict=True)
        ]
        evidence = sum(one.log_evidence for one in found) / estimates.repeats
        return -evidence - _log_prior(point, free)[0]

    bounds = [bound for bound, is_free in zip(BOUNDS, free, strict=True) if is_free]
    options = {"xatol": 1e-3, "fatol": 1e-4, "maxiter": 200}
    found = optimize.minimize(
        loss, point[free], method="Nelder-Mead", bounds=bounds, options=options
    )
    point[free] = found.x
    return point
