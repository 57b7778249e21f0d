"""Spike-and-slab posterior of effects, given their estimates and the covariance of the estimates.

Given estimates e ~ N(theta, C), and a spike-and-slab prior of each effect theta_k, the posterior is
the one of a spike-and-slab regression L^-1 e = L^-1 theta + noise of variance 1, where C = L L'
(`fastmf.inference.ep`). For the couplings of a network, C is the sandwich covariance of a composite
likelihood, and the effects are its edges.

A Cauchy slab of scale s is a mixture of normal slabs N(0, s^2 omega), where 1 / omega is the square
of a standard normal variable. For each effect, the mixture is replaced by the single normal slab,
and the log-odds, that give the same mean and probability under the Gaussian N(m, v) of all other
factors of the posterior:

    ln Z = ln sum_omega p(omega) N(m; 0, v + s^2 omega),  r = E[s^2 omega / (v + s^2 omega)]
    variance of the slab = v r / (1 - r)

These are found by iteration; the result is exact for independent estimates.

Many effects are treated item by item, with the covariance of the estimates of one item
(`SingleEffects.of_nodes`), because estimates of pairs without a common item hardly correlate.

Sets of effects are zero as a whole, or N(0, scale^2). Expectation propagation uses a Gaussian site
exp(t'w - w'Tw / 2) for each set; under its cavity exp(h'w - w'Lw / 2), a non-zero set has

    Q = L + 1 / scale^2,  mean Q^-1 h,  covariance Q^-1
    log Bayes factor  =  (h'Q^-1 h - ln det(Q) - n_effects ln scale^2) / 2

With a Cauchy slab these are summed over the mixture, with a common omega for all effects of a set.
"""

from typing import NamedTuple

import numpy as np
from scipy import linalg
from scipy.special import logsumexp

from fastmf._common.linalg import MIN_EIGENVALUE, symmetrize
from fastmf.learning.evidence import MAX_EP_ITER, evidence_gradient, robust_solution
from fastmf.models import SparseLinearModel
from fastmf.priors import GaussBernoulli
from fastmf.special import sigmoid

# Tolerance of fixed points, relative to the smallest standard error of an effect given all others,
# and of the iterations over slabs and sets, in log-odds and logarithms of variances.
EDGE_TOL, LOG_TOL = 1e-6, 1e-4
# Number of effects up to which all patterns are enumerated; beyond, largest size of a block.
# Without blocks, probabilities were wrong by up to 0.07.
MAX_ENUMERATED, MAX_BLOCK = 10, 5
# Bounds of learned parameters: ln(scale / median), and log-odds.
BOUNDS = (-7.0, 7.0), (-12.0, 12.0)
SLABS = ("gaussian", "cauchy")
# Grid of ln(omega) for the mixture of a Cauchy slab, and log-weights.
LOG_OMEGA = np.arange(-6.0, 60.0, 0.25)
LOG_OMEGA_WEIGHTS = np.log(0.25) - (np.log(2 * np.pi) + LOG_OMEGA + np.exp(-LOG_OMEGA)) / 2


class Effects(NamedTuple):
    """Posterior of effects."""

    log_odds: np.ndarray  # (n,): posterior log-odds that an effect is not zero
    mean: np.ndarray  # (n,)
    std: np.ndarray  # (n,)
    prior_log_odds: float  # parameters of the prior, as given or learned (this and the next)
    scale: float
    log_evidence: float  # log-density of the estimates
    converged: bool

    @property
    def probability(self):
        """Posterior probabilities that effects are not zero."""
        return sigmoid(self.log_odds)


class _Estimates:
    """Base class of estimates; subclasses define `_posterior` for given parameters."""

    def posterior(self, prior_log_odds=0.0, scale=1.0, slab="gaussian", median=1.0):
        """Compute the posterior of the effects.

        A parameter that is None is learned: it maximises the evidence times its prior, which is
        uniform for the inclusion probability, and log-normal with this median for the scale.
        """
        if prior_log_odds is None or scale is None:
            prior_log_odds, scale = self._learned(prior_log_odds, scale, slab, median)
        return self._posterior(prior_log_odds, scale, slab)

    def _learned(self, log_odds, scale, slab, median):
        """Return the parameters that maximise the evidence times their prior."""
        from scipy import optimize  # imported late, as it takes a while

        free = np.array([scale is None, log_odds is None])
        point = np.array([0.0 if scale is None else np.log(scale / median), log_odds or 0.0])
        # The evidence is stationary in the sites for normal slabs only.
        has_gradient = slab == "gaussian" and hasattr(self, "_gradient")

        def loss(values):
            point[free] = values
            p, scale = sigmoid(point[1]), median * np.exp(point[0])
            log_prior = free @ np.array([-(point[0] ** 2) / 2, np.log(p) + np.log1p(-p)])
            if not has_gradient:
                return -self._posterior(point[1], scale, slab).log_evidence - log_prior
            evidence, gradient = self._gradient(point[1], scale)
            return -evidence - log_prior, -(gradient + [-point[0], 1 - 2 * p])[free]

        method = {"method": "L-BFGS-B", "jac": True}
        if not has_gradient:
            method = {"method": "Nelder-Mead", "options": {"xatol": 1e-3, "fatol": 1e-4}}
        bounds = [bound for bound, is_free in zip(BOUNDS, free, strict=True) if is_free]
        point[free] = optimize.minimize(loss, point[free], bounds=bounds, **method).x
        return float(point[1]), float(median * np.exp(point[0]))


class Whitened(NamedTuple):
    """Estimates as rows of a regression with noise of variance 1."""

    X: np.ndarray  # (n, n)
    y: np.ndarray  # (n,)
    log_scale: float  # log-determinant of `X`

    @classmethod
    def of(cls, estimate, covariance):
        """Make rows from estimates and their covariance."""
        errors = np.sqrt(np.maximum(np.diagonal(covariance), 0))
        if not (np.isfinite(covariance).all() and (errors > 0).all()):
            raise ValueError("the covariance of the estimates must be finite, variances positive.")
        correlation = covariance / np.outer(errors, errors)
        smallest = linalg.eigvalsh(correlation, subset_by_index=[0, 0])[0]
        if smallest < MIN_EIGENVALUE:
            raise ValueError(
                "the covariance of the estimates is singular, as the sandwich is for fewer "
                "different rows than parameters: take errors='naive', or fewer features or states."
            )
        lower = linalg.cholesky(correlation, lower=True)
        X = linalg.solve_triangular(lower, np.diag(1 / errors), lower=True)
        return cls(X, X @ estimate, -np.log(lower.diagonal()).sum() - np.log(errors).sum())

    @property
    def chi_square(self):
        """Squared Mahalanobis length of the estimates."""
        return float(self.y @ self.y)

    def blocks(self):
        """Return labels of blocks, made by greedily joining the most correlated effects."""
        n = self.X.shape[1]
        if n <= MAX_ENUMERATED:
            return np.zeros(n, int)
        precision = self.X.T @ self.X
        deviations = np.sqrt(precision.diagonal())
        correlation = abs(precision / np.outer(deviations, deviations))
        first, second = np.nonzero(np.triu(correlation, 1))
        labels, sizes = np.arange(n), np.ones(n, int)
        for k in np.argsort(-correlation[first, second], kind="stable"):
            i, j = labels[first[k]], labels[second[k]]
            if i != j and sizes[i] + sizes[j] <= MAX_BLOCK:
                labels[labels == j] = i
                sizes[i] += sizes[j]
        return labels


class SingleEffects(_Estimates):
    """Estimates of effects in parts that are treated as independent.

    Parameters
    ----------
    parts : sequence of Whitened
    units : sequence of int arrays
        Effects of each part; an effect may be in several parts.
    n_effects : int
    """

    def __init__(self, parts, units, n_effects):
        self._parts, self._units, self._n_effects = parts, units, n_effects
        self._blocks = [part.blocks() for part in parts]
        self._repeats = sum(len(part.y) for part in parts) / n_effects

    @classmethod
    def of(cls, estimate, covariance):
        """Make effects from estimates and their joint covariance."""
        return cls([Whitened.of(estimate, covariance)], [slice(None)], len(estimate))

    @classmethod
    def of_nodes(cls, estimate, covariances, units):
        """Make effects from estimates of pairs of items, with a covariance matrix for each item."""
        parts = [Whitened.of(estimate[u], C) for u, C in zip(units, covariances, strict=True)]
        return cls(parts, units, len(estimate))

    def _mean(self, values):
        """Average values of each effect over its parts."""
        total, counts = np.zeros(self._n_effects), np.zeros(self._n_effects)
        for units, values_of_part in zip(self._units, values, strict=True):
            total[units] += values_of_part
            counts[units] += 1
        return total / counts

    def _posterior(self, prior_log_odds, scale, slab):
        """Compute the posterior; log-odds and moments of an effect are averaged over its parts.

        The evidence is divided by the mean number of parts of an effect.
        """
        results = [
            _posterior_of_part(part, prior_log_odds, scale, slab, blocks)
            for part, blocks in zip(self._parts, self._blocks, strict=True)
        ]
        log_odds, mean, variance = (
            self._mean([values(result) for result in results])
            for values in (lambda x: x.log_odds, lambda x: x.mean, lambda x: x.std**2)
        )
        evidence = sum(result.log_evidence for result in results) / self._repeats
        converged = all(result.converged for result in results)
        std = np.sqrt(variance)
        return Effects(log_odds, mean, std, prior_log_odds, scale, evidence, converged)

    def _gradient(self, log_odds, scale):
        """Compute the log-evidence with normal slabs, and its gradient by ln scale and log-odds."""
        evidence, gradient = 0.0, np.zeros(2)
        for part, blocks in zip(self._parts, self._blocks, strict=True):
            n = len(part.y)
            model, result = _solved(part, np.full(n, log_odds), np.full(n, scale**2), blocks)
            _, by_slab, by_odds = evidence_gradient(model, result, np.zeros(n, int), 1)
            evidence += result.log_evidence
            gradient += 2 * by_slab, by_odds[0]
        return evidence / self._repeats, gradient / self._repeats


def _posterior_of_part(part, log_odds, scale, slab, blocks):
    """Compute the posterior of one part."""
    n = len(part.y)
    change, variance, result = np.zeros(n), np.full(n, scale**2), None
    step, delta, is_normal = 1.0, np.inf, slab == "gaussian"
    for _ in range(MAX_EP_ITER):
        moments, result = _gaussian_posterior(part, log_odds + change, variance, blocks, result)
        if is_normal:
            break
        mixture = _cauchy(*moments[1:], variance, scale)
        moves = np.array([mixture.change - change, np.log(mixture.variance / variance)])
        last, delta = delta, abs(moves).max()
        step = 0.5 if delta > last else step  # against cycles
        change, variance = change + step * moves[0], variance * np.exp(step * moves[1])
        if delta < LOG_TOL:
            break
    evidence = result.log_evidence + part.log_scale
    evidence += (np.logaddexp(0, log_odds + change) - np.logaddexp(0, log_odds)).sum()
    posterior_odds, mean, spread = moments if is_normal else (moments[0], *mixture[2:])
    p = sigmoid(posterior_odds)
    std = np.sqrt(p * spread + p * sigmoid(-posterior_odds) * mean**2)
    converged = result.converged and (is_normal or delta < LOG_TOL)
    return Effects(posterior_odds, p * mean, std, log_odds, scale, evidence, converged)


def _solved(part, log_odds, variance, blocks, init=None):
    """Return the model of a part with normal slabs, and its fixed point."""
    prior = GaussBernoulli(np.zeros(len(part.y)), 1 / variance, log_odds)
    model = SparseLinearModel(part.X, part.y, 1.0, prior)
    tol = EDGE_TOL / np.sqrt(np.square(part.X).sum(0).max())
    return model, robust_solution(model, init, tol=tol, blocks=blocks)


def _gaussian_posterior(part, log_odds, variance, blocks, init=None):
    """Compute log-odds and moments of non-zero effects with normal slabs, and the fixed point."""
    _, result = _solved(part, log_odds, variance, blocks, init)
    precision, linear = part.X.T @ part.X, part.X.T @ part.y
    members = [np.flatnonzero(blocks == label) for label in np.unique(blocks)]
    if len(members) > 1:
        T = np.diag(result.sites[1])
        for units, matrix in result.block_sites or ():
            T[np.ix_(units, units)] = matrix
        covariance = linalg.inv(precision + T)
        mean = covariance @ (linear + result.sites[0])
    moments = np.empty((3, len(part.y)))
    for units in members:
        g, P = linear[units], precision[np.ix_(units, units)]
        if len(members) > 1:
            P = linalg.inv(covariance[np.ix_(units, units)])
            g, P = P @ mean[units] - result.sites[0, units], P - T[np.ix_(units, units)]
        moments[:, units] = _enumerated(P, g, log_odds[units], variance[units])
    return moments, result


def _enumerated(precision, linear, log_odds, variance):
    """Compute log-odds, and moments of non-zero effects, by enumerating the patterns of a block.

    Effects are added to the patterns one by one: a pivot of (1 + D P D, D g), where D contains the
    deviations of the slabs, transforms patterns without an effect to patterns with it.
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
    excluded = logsumexp(np.where(included, -np.inf, logs[:, None]), axis=0)
    weights, means = np.exp(with_effect - total), A[:, :c, c]
    mean = (weights * means).sum(0)
    spread = (weights * ((means - mean) ** 2 - np.einsum("kii->ki", A)[:, :c])).sum(0)
    return total - excluded, D * mean, variance * spread


class CauchySlab(NamedTuple):
    """Normal slab that replaces a Cauchy slab, if all other factors are Gaussian."""

    variance: np.ndarray  # (n,): variance of the normal slab with the same mean
    # (n,): log-ratio of the integrals with the Cauchy slab and with the normal slab
    change: np.ndarray
    mean: np.ndarray  # (n,): mean and variance of a non-zero effect
    spread: np.ndarray  # (n,)


def _cauchy(mean, spread, variance, scale):
    """Return the `CauchySlab`, given moments of non-zero effects with normal slabs."""
    # The mixture over the patterns of other effects can be as wide as the slab.
    precision = np.maximum(1 / spread - 1 / variance, 1e-6 / spread)
    m, v = mean / spread / precision, 1 / precision
    slabs = scale**2 * np.exp(LOG_OMEGA)
    total = v[:, None] + slabs
    logs = LOG_OMEGA_WEIGHTS - (np.log(total) + m[:, None] ** 2 / total) / 2
    log_sum = logsumexp(logs, axis=1)
    weights, shrink = np.exp(logs - log_sum[:, None]), slabs / total
    r = (weights * shrink).sum(1)
    slab = v * r / (weights * (v[:, None] / total)).sum(1)
    change = log_sum + (np.log(v + slab) + m**2 / (v + slab)) / 2
    return CauchySlab(slab, change, m * r, v * r + m**2 * ((weights * shrink**2).sum(1) - r**2))


class EffectSets(_Estimates):
    """Estimates of sets of effects.

    Parameters
    ----------
    estimate : array of shape (n_effects,)
    covariance : array of shape (n_effects, n_effects)
    sets : sequence of int arrays
        Effects of each set, which partition all effects.
    """

    def __init__(self, estimate, covariance, sets):
        self.sets, whitened = sets, Whitened.of(estimate, covariance)
        self.precision = whitened.X.T @ whitened.X
        self.linear = whitened.X.T @ whitened.y
        normaliser = len(estimate) * np.log(2 * np.pi) / 2
        self.constant = whitened.log_scale - whitened.chi_square / 2 - normaliser

    def _posterior(self, prior_log_odds, scale, slab):
        n, mixture = len(self.linear), SlabMixture.of(slab, scale)
        proper = sites = np.zeros((n, n + 1))  # precisions, and precisions times means
        for units in self.sets:  # with the moments of the prior
            sites[units, units] = 1 / (scale**2 * max(sigmoid(np.float64(prior_log_odds)), 1e-3))
        log_odds, change, step = np.zeros(len(self.sets)), np.inf, 1.0
        for _ in range(MAX_EP_ITER):
            try:
                mean, covariance, log_partition = self._gaussian(sites[:, n], sites[:, :n])
            except linalg.LinAlgError:  # improper: go half of the way back
                step, sites = step / 2, (sites + proper) / 2
                continue
            tilted, proper, last = [], sites.copy(), change
            for units in self.sets:
                block = np.ix_(units, units)
                marginal, site = (mean[units], covariance[block]), (sites[units, n], sites[block])
                tilted.append(_TiltedSet.of(*marginal, *site, prior_log_odds, mixture))
            previous, log_odds = log_odds, np.array([each.log_odds for each in tilted])
            change = abs(log_odds - previous).max()
            if change < LOG_TOL:
                break
            step = min(step, 0.5) if change > last else step  # against cycles
            for units, each in zip(self.sets, tilted, strict=True):
                block = np.ix_(units, [*units, n])
                sites[block] += step * (np.c_[each.precision, each.linear] - sites[block])
        mean, std = np.empty((2, n))
        for units, each in zip(self.sets, tilted, strict=True):
            mean[units], std[units] = each.mean, np.sqrt(each.covariance.diagonal())
        evidence = float(self.constant + log_partition + sum(each.log_ratio for each in tilted))
        return Effects(log_odds, mean, std, prior_log_odds, scale, evidence, bool(change < LOG_TOL))

    def _gaussian(self, t, T):
        """Return mean, covariance and log-partition of the Gaussian with these sites."""
        lower = linalg.cholesky(self.precision + T, lower=True)
        inverse = linalg.solve_triangular(lower, np.eye(len(t)), lower=True)
        mean = inverse.T @ (inverse @ (self.linear + t))
        log_partition = (self.linear + t) @ mean / 2 - np.log(lower.diagonal()).sum()
        return mean, inverse.T @ inverse, log_partition


class SlabMixture(NamedTuple):
    """Prior of the effects of a non-zero set: a mixture of normal distributions."""

    variances: np.ndarray  # (n_components,)
    log_weights: np.ndarray  # (n_components,)
    least: float  # lower bound for eigenvalues of the precision of a cavity

    @classmethod
    def of(cls, kind, scale):
        """Return the normal, or the Cauchy distribution with this scale."""
        if kind == "gaussian":
            return cls(np.array([scale**2]), np.zeros(1), -0.999 / scale**2)
        return cls(scale**2 * np.exp(LOG_OMEGA), LOG_OMEGA_WEIGHTS, 1e-3 / scale**2)

    def moments(self, precision, linear):
        """Compute log Bayes factor, mean and covariance of a set under its cavity."""
        values, vectors = np.linalg.eigh(precision)
        h, variances = vectors.T @ linear, self.variances[:, None]
        curvatures = np.maximum(values, self.least) + 1 / variances
        terms = h * h / curvatures - np.log(curvatures * variances)
        logs = self.log_weights + terms.sum(1) / 2
        log_bf = np.logaddexp.reduce(logs)
        weights, means = np.exp(logs - log_bf), h / curvatures
        mean = weights @ means
        spread = np.diag(weights @ (1 / curvatures))
        spread += ((means - mean) * weights[:, None]).T @ (means - mean)
        return log_bf, vectors @ mean, vectors @ spread @ vectors.T


class _TiltedSet(NamedTuple):
    """A set under its cavity: posterior, new site, and factor of the evidence."""

    log_odds: float
    mean: np.ndarray
    covariance: np.ndarray
    linear: np.ndarray
    precision: np.ndarray
    log_ratio: float

    @classmethod
    def of(cls, mean, covariance, t, T, prior_log_odds, mixture):
        """Compute the tilted set from the moments of the Gaussian and the site of the set."""
        precision = np.linalg.inv(covariance)
        cavity, linear = precision - T, precision @ mean - t
        log_bf, slab_mean, V = mixture.moments(cavity, linear)
        log_odds = prior_log_odds + log_bf

        def moments(p):
            return p * slab_mean, p * V + p * (1 - p) * np.outer(slab_mean, slab_mean)

        # Sites of smaller probabilities would be too sharp to be computed.
        site_mean, site_covariance = moments(max(sigmoid(log_odds), MIN_EIGENVALUE))
        inverse = symmetrize(np.linalg.inv(site_covariance))
        log_ratio = np.logaddexp(0, log_odds) - np.logaddexp(0, prior_log_odds)
        log_ratio -= (mean @ precision @ mean + np.linalg.slogdet(covariance)[1]) / 2
        site = inverse @ site_mean - linear, inverse - cavity
        return cls(log_odds, *moments(sigmoid(log_odds)), *site, log_ratio)
