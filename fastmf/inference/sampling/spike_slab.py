"""Draws of the coefficients of sparse linear models from their joint posterior, by Gibbs sampling.

Each draw is the last state of a separate chain. A sweep draws for each coefficient whether it is
zero, and its value, jointly with the coefficient of a correlated feature. Then, in each chain, one
effect is moved to a feature drawn among all, so that chains mix between interchangeable features,
or features that are identified only together. All steps leave the posterior invariant.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import expit, log_expit, log_ndtr, ndtri_exp

from fastmf._common.rows import blocks
from fastmf._common.stored_columns import column_squares
from fastmf.priors.spike_and_slab import ALWAYS

# Number of coefficients that are visited with products of one matrix; smallest squared correlation
# of two coefficients that may be drawn jointly.
COEFFICIENTS_AT_A_TIME, MIN_SQUARE = 64, 0.04


# A logistic variable is a mixture of Gaussians, whose standard deviations are distributed as twice
# a variable of Kolmogorov's distribution (Andrews & Mallows 1974). A mixture of these ten, with
# DENSITIES of the components at the centre, has a distribution function with an error of 2e-6.
TERMS, SCALES = np.arange(1, 20)[:, None], np.geomspace(0.7, 5.2, 10)
POWERS = np.exp(-((TERMS * SCALES) ** 2) / 2)
DENSITIES = np.sum((-1.0) ** (TERMS + 1) * TERMS**2 * SCALES * POWERS, axis=0)


class SparsePosterior(NamedTuple):
    """The posterior of a linear model with spike-and-slab coefficients."""

    X: np.ndarray  # (n_rows, n_units)
    # (n_rows,), or None: data are replaced by positive latent variables with the mean X w, as for
    # probit
    y: np.ndarray | None
    noise_variance: float
    log_odds: np.ndarray  # (n_units,): log-odds of the prior, and precisions of its slabs of mean 0
    precision: np.ndarray  # (n_units,)
    # Whether latent variables are logistic: then the noise has the first of `SCALES`.
    is_logistic: bool = False


def draw_coefficients(posterior, included, moments, n, rng, n_sweeps, order=None):
    """Draw coefficients jointly, each time from a separate chain."""
    n_rows, n_units = posterior.X.shape
    draws = np.empty((n, n_units))
    for chunk in blocks(n, n * max(n_rows, n_units)):
        shape = chunk.stop - chunk.start, n_units
        W = moments[0] + np.sqrt(moments[1]) * rng.normal(size=shape)
        W *= rng.random(shape) < included
        chains = _Chains(posterior, np.ascontiguousarray(W.T), rng)
        visits = np.arange(n_units) if order is None else np.asarray(order)
        for _ in range(n_sweeps):
            chains.sweep(visits)
        draws[chunk] = chains.W.T
    return draws


class _Chains:
    """States of chains, one a column: coefficients W and residuals E."""

    def __init__(self, posterior, W, rng):
        self.posterior, self.W, self._rng = posterior, W, rng
        X, y = posterior.X, posterior.y
        self._is_latent = y is None
        fit = np.asarray(X @ W, np.float64)
        self.E = -fit if y is None else y[:, None] - fit
        self._squares = column_squares(X) / posterior.noise_variance
        self._scale = self._squares + posterior.precision
        self._weight = posterior.log_odds + np.log(posterior.precision) / 2
        if self._is_latent:
            self.E += np.maximum(fit, 1.0)  # any positive values

    def sweep(self, visits):
        """Draw latent variables, then each coefficient in this order, then move an effect."""
        if self._is_latent:
            self._draw_latent()
        for first in range(0, len(visits), COEFFICIENTS_AT_A_TIME):
            self._visit(visits[first : first + COEFFICIENTS_AT_A_TIME])
        self._move()

    def _draw_latent(self):
        """Draw positive latent variables given the coefficients."""
        # E = u - m, truncated below at -m.
        m = np.asarray(self.posterior.X @ self.W, np.float64)
        log_u = np.log(self._rng.random(m.shape))
        if not self.posterior.is_logistic:
            self.E = -ndtri_exp(log_u + log_ndtr(m))
            return
        # Draw the residual of a logistic variable, its component, and the share that is noise.
        log_p = log_u + log_expit(m)
        residual = np.log(-np.expm1(log_p)) - log_p
        excess = (SCALES**-2 - SCALES[-1] ** -2)[:, None, None] / 2
        total = np.cumsum(DENSITIES[:, None, None] * np.exp(-excess * residual**2), axis=0)
        place = (total < self._rng.random(m.shape) * total[-1]).sum(0)
        share = (SCALES[0] / SCALES[place]) ** 2
        scatter = self._rng.normal(size=m.shape) * SCALES[0] * np.sqrt(1 - share)
        self.E = share * residual + scatter

    def _visit(self, units):
        """Draw some coefficients, one after another, in all chains."""
        X, before = np.asarray(self.posterior.X[:, units], np.float64), self.W[units]
        W, noise = before.copy(), self.posterior.noise_variance
        products, gram = X.T @ self.E / noise, X.T @ X / noise
        scale, weight = self._scale[units], self._weight[units]
        partners = self._partners(gram)
        for i, k in enumerate(partners):
            pair = [i] if k == i else [i, k]
            old = W[pair]
            along = products[pair] + gram[np.ix_(pair, pair)] @ old
            if len(pair) == 1:
                new = self._draw_one(along[0], scale[i], weight[i])[None]
            else:
                new = self._draw_pair(along, scale[pair], gram[i, k], weight[pair])
            change = new - old
            moved = np.flatnonzero(change.any(0))
            if moved.size:
                products[:, moved] -= gram[:, pair] @ change[:, moved]
                W[pair] = new
        self.W[units] = W
        self.E -= X @ (W - before)

    def _partners(self, gram):
        """Draw a partner for each unit by squared correlations; itself if there is none."""
        scale = np.where(gram.diagonal() > 0, gram.diagonal(), 1.0)
        squares = gram * gram / scale / scale[:, None]
        np.fill_diagonal(squares, 0)
        squares[squares < MIN_SQUARE] = 0
        total = np.cumsum(squares, axis=1)
        drawn = self._rng.random(len(gram)) * total[:, -1]
        partner = (total < drawn[:, None]).sum(1)
        return np.where(total[:, -1] > 0, partner, np.arange(len(gram)))

    def _draw_one(self, along, scale, weight):
        """Draw one coefficient, given its linear term without its own contribution."""
        odds = weight - np.log(scale) / 2 + along * along / (2 * scale)
        value = along / scale + self._rng.normal(size=len(along)) / np.sqrt(scale)
        return value * (self._rng.random(len(along)) < expit(odds))

    def _draw_pair(self, along, scale, coupling, weight):
        """Draw two coefficients jointly: one of four inclusion patterns, then the values."""
        conditional = scale[0] - coupling * coupling / scale[1]
        alone = weight[:, None] - np.log(scale)[:, None] / 2 + along**2 / (2 * scale[:, None])
        given = along[0] - coupling * along[1] / scale[1]
        both = alone[1] + weight[0] - np.log(conditional) / 2 + given * given / (2 * conditional)
        weights = np.stack([np.zeros(len(both)), *alone, both])
        pattern = np.argmax(weights + self._rng.gumbel(size=weights.shape), axis=0)
        values = self._rng.normal(size=along.shape)
        single = (along / scale[:, None] + values / np.sqrt(scale)[:, None]) * (
            pattern == [[1], [2]]
        )
        # Draw the first one with the second integrated out, then the second given the first.
        first = given / conditional + values[0] / np.sqrt(conditional)
        second = (along[1] - coupling * first) / scale[1] + values[1] / np.sqrt(scale[1])
        return np.where(pattern == 3, [first, second], single)

    def _move(self):
        """Redraw the feature and the size of one effect, given all others, in each chain."""
        free = (self.W != 0) & (self.posterior.log_odds < ALWAYS)[:, None]
        chains = np.flatnonzero(free.any(0))
        if not chains.size:
            return
        W, X = self.W[:, chains], self.posterior.X
        place = np.argmax(free[:, chains] * self._rng.random(W.shape), axis=0)
        columns = np.arange(len(chains))
        E = self.E[:, chains] + X[:, place] * W[place, columns]
        W[place, columns] = 0
        along = np.asarray(X.T @ E, np.float64) / self.posterior.noise_variance
        scale = self._scale[:, None]
        weight = self._weight[:, None] - np.log(scale) / 2 + along * along / (2 * scale)
        weight[(W != 0) | (self.posterior.log_odds >= ALWAYS)[:, None]] = -np.inf
        place = np.argmax(weight + self._rng.gumbel(size=W.shape), axis=0)
        scale = self._scale[place]
        new = along[place, columns] / scale + self._rng.normal(size=len(chains)) / np.sqrt(scale)
        W[place, columns] = new
        self.W[:, chains], self.E[:, chains] = W, E - X[:, place] * new
