"""Which sets of effects are zero as a whole, from estimates and their covariance.

Estimates e ~ N(theta, C); the effects theta_s of a set are all zero, or all N(0, scale^2). By
expectation propagation with a Gaussian site exp(t'w - w'Tw / 2) of each set. Under its cavity
exp(h'w - w'Lw / 2) a set that is not zero has

    Q = L + 1 / scale^2,  mean Q^-1 h,  covariance Q^-1
    log Bayes factor  =  (h'Q^-1 h - ln det(Q) - n_own ln scale^2) / 2

A Cauchy slab is the mixture of normal ones of `fastmf.learning.evidence.edges`, with one variance
for all effects of a set: the moments of a set are then those of the sum over that mixture.

Sets of one effect have the sites of `fastmf.learning.evidence.edges` without blocks.
"""

from typing import NamedTuple

import numpy as np
from scipy import linalg

from fastmf._common.linalg import symmetrize
from fastmf.learning.evidence.edges import (
    BOUNDS,
    DEVIATION,
    LOG_OMEGA,
    LOG_OMEGA_WEIGHTS,
    Effects,
)
from fastmf.special import sigmoid

# Largest change of a log-odds at a fixed point, iterations, and weight of new sites in the old.
LOG_ODDS_TOL, MAX_SITE_ITERATIONS, SITE_STEP = 1e-7, 500, 0.7
# Probabilities below, or further from 1 than, this leave sites that are too sharp to be computed.
MIN_INCLUSION = 1e-9


class SlabMixture(NamedTuple):
    """Prior of the effects of a set that are not zero: a mixture of normal distributions.

    Parameters
    ----------
    variances, log_weights : array of shape (n_components,)
    least : float
        Smallest eigenvalue that the precision of a cavity is taken to have.
    """

    variances: np.ndarray
    log_weights: np.ndarray
    least: float

    @classmethod
    def of(cls, kind, scale):
        """The normal, or the Cauchy distribution of a scale."""
        if kind == "gaussian":
            return cls(np.array([scale**2]), np.zeros(1), -0.999 / scale**2)
        return cls(scale**2 * np.exp(LOG_OMEGA), LOG_OMEGA_WEIGHTS, 1e-3 / scale**2)

    def moments(self, precision, linear):
        """Log Bayes factor, mean and covariance of a set under its cavity."""
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


class EffectSets:
    """Estimates of sets of effects.

    Parameters
    ----------
    estimate : array of shape (n_effects,)
    covariance : array of shape (n_effects, n_effects)
    sets : sequence of int arrays of shape (n_own,)
        Effects of each set: all effects together.

    Raises
    ------
    ValueError
        If the covariance is singular, or no covariance.
    """

    def __init__(self, estimate, covariance, sets):
        self.sets, n = sets, len(estimate)
        errors = np.sqrt(np.maximum(covariance.diagonal(), 0))
        if not (np.isfinite(covariance).all() and (errors > 0).all()):
            raise ValueError("the covariance of the estimates must be finite, variances positive.")
        try:
            factor = linalg.cho_factor(covariance / np.outer(errors, errors), lower=True)
        except linalg.LinAlgError:
            raise ValueError(
                "the covariance of the estimates is singular: take fewer sites or states."
            ) from None
        self.precision = linalg.cho_solve(factor, np.eye(n)) / np.outer(errors, errors)
        self.linear = self.precision @ estimate
        log_det = 2 * (np.log(factor[0].diagonal()).sum() + np.log(errors).sum())
        self.constant = -(log_det + estimate @ self.linear + n * np.log(2 * np.pi)) / 2

    def posterior(self, prior_log_odds=0.0, scale=1.0, median=1.0, slab="gaussian"):
        """Posterior of the effects."""
        if prior_log_odds is None or scale is None:
            prior_log_odds, scale = self._learned(prior_log_odds, scale, median, slab)
        return self._fixed_point(prior_log_odds, scale, slab)

    def _fixed_point(self, prior_log_odds, scale, kind):
        """Posterior with parameters that are known."""
        n, slab = len(self.linear), SlabMixture.of(kind, scale)
        t, T = np.zeros(n), np.zeros((n, n))
        for own in self.sets:  # sites of the moments of the prior
            T[own, own] = 1 / (scale**2 * max(sigmoid(np.float64(prior_log_odds)), 1e-3))
        log_odds, change = np.zeros(len(self.sets)), np.inf
        for _ in range(MAX_SITE_ITERATIONS):
            marginal = self._gaussian(t, T)
            last, tilted = log_odds, []
            for own in self.sets:
                mean, covariance = marginal[0][own], marginal[1][np.ix_(own, own)]
                tilted.append(_tilted(own, mean, covariance, (t, T), prior_log_odds, slab))
            log_odds = np.array([one[0] for one in tilted])
            change = abs(log_odds - last).max()
            if change < LOG_ODDS_TOL:
                break
            for own, one in zip(self.sets, tilted, strict=True):
                t[own] += SITE_STEP * (one[3] - t[own])
                T[np.ix_(own, own)] += SITE_STEP * (one[4] - T[np.ix_(own, own)])
        return self._effects(marginal, tilted, prior_log_odds, scale, change < LOG_ODDS_TOL)

    def _gaussian(self, t, T):
        """Mean, covariance and log-partition of the Gaussian with these sites."""
        lower = linalg.cholesky(self.precision + T, lower=True)
        inverse = linalg.solve_triangular(lower, np.eye(len(t)), lower=True)
        mean = inverse.T @ (inverse @ (self.linear + t))
        log_partition = (self.linear + t) @ mean / 2 - np.log(lower.diagonal()).sum()
        return mean, inverse.T @ inverse, log_partition

    def _effects(self, marginal, tilted, prior_log_odds, scale, converged):
        mean, std = np.empty((2, len(self.linear)))
        evidence = self.constant + marginal[2]
        for own, (_, own_mean, own_covariance, *_, ratio) in zip(self.sets, tilted, strict=True):
            mean[own], std[own] = own_mean, np.sqrt(own_covariance.diagonal())
            evidence += ratio
        log_odds = np.array([one[0] for one in tilted])
        return Effects(log_odds, mean, std, prior_log_odds, scale, float(evidence), bool(converged))

    def _learned(self, log_odds, scale, median, slab):
        """Parameters of the largest evidence times their prior; what is given is kept."""
        from scipy import optimize  # not before it is used: its import takes a while

        free = np.array([scale is None, log_odds is None])
        point = np.array([0.0 if scale is None else np.log(scale / median), log_odds or 0.0])

        def loss(values):
            point[free] = values
            p, scale = sigmoid(point[1]), median * np.exp(point[0])
            prior = np.array([-((point[0] / DEVIATION) ** 2) / 2, np.log(p) + np.log1p(-p)])
            return -self._fixed_point(point[1], scale, slab).log_evidence - free @ prior

        bounds = [bound for bound, is_free in zip(BOUNDS, free, strict=True) if is_free]
        options = {"xatol": 1e-3, "fatol": 1e-5, "maxiter": 200}
        found = optimize.minimize(
            loss, point[free], method="Nelder-Mead", bounds=bounds, options=options
        )
        point[free] = found.x
        return float(point[1]), float(median * np.exp(point[0]))


def _tilted(own, mean, covariance, sites, prior_log_odds, slab):
    """A set under its cavity."""
    t, T = sites[0][own], sites[1][np.ix_(own, own)]
    precision = np.linalg.inv(covariance)
    cavity, linear = precision - T, precision @ mean - t
    log_bf, slab_mean, V = slab.moments(cavity, linear)
    log_odds = prior_log_odds + log_bf
    p = sigmoid(log_odds)
    at = np.clip(p, MIN_INCLUSION, 1.0)
    moments = _moments(at, slab_mean, V)
    inverse = symmetrize(np.linalg.inv(moments[1]))
    log_partition = np.logaddexp(0, log_odds) - np.logaddexp(0, prior_log_odds)
    of_gaussian = (mean @ precision @ mean + np.linalg.slogdet(covariance)[1]) / 2
    return (
        log_odds, *_moments(p, slab_mean, V), inverse @ moments[0] - linear, inverse - cavity,
        log_partition - of_gaussian,
    )  # fmt: skip


def _moments(p, mean, V):
    """Mean and covariance of a set that is zero, or has these."""
    return p * mean, p * V + p * (1 - p) * np.outer(mean, mean)
