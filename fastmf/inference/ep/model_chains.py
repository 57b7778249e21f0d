"""Chains over the inclusion patterns of a sparse linear model, coefficients integrated out.

With Q = X'X / s2 + slab precisions and h = X'y / s2 + slab fields, the log-weight of a pattern S of
features, relative to the empty pattern, is

    sum_S (log-odds + ln(precision) / 2 - field^2 / (2 precision)) + h_S' Q_SS^-1 h_S / 2
        - ln det(Q_SS) / 2

A factorisation of Q_SS gives the weights of all patterns with one feature more. A step redraws the
feature of one effect among all features, and then proposes to add or to remove an effect: so chains
move between similar features. They are an independent check of expectation propagation; the weights
of distinct patterns sum to a lower bound of the evidence.
"""

from typing import NamedTuple

import numpy as np

from fastmf._common.linalg import MIN_EIGENVALUE
from fastmf._common.rows import BLOCK_ENTRIES


class InclusionPosterior(NamedTuple):
    """The posterior of the set of non-zero coefficients."""

    Q: np.ndarray  # (n_features, n_features)
    h: np.ndarray  # (n_features,)
    weight: np.ndarray  # (n_features,), log-weight of each feature without the terms of Q and h

    @classmethod
    def of(cls, X, y, noise_variance, log_odds, precision, field=0.0):
        """Make the posterior from columns and the parameters of the prior."""
        X = np.asarray(X, np.float64)
        Q = X.T @ X / noise_variance + np.diag(precision)
        weight = log_odds + np.log(precision) / 2 - field * field / (2 * precision)
        return cls(Q, X.T @ y / noise_variance + field, weight)

    def given(self, always):
        """Return the posterior, and a constant, given features that are in every pattern."""
        if not always.any():
            return self, 0.0
        lower = np.linalg.cholesky(self.Q[np.ix_(always, always)])
        couplings = self.Q[np.ix_(always, ~always)]
        along = np.linalg.solve(lower, np.column_stack([couplings, self.h[always]]))
        Q = self.Q[np.ix_(~always, ~always)] - along[:, :-1].T @ along[:, :-1]
        log_weight = along[:, -1] @ along[:, -1] / 2 - np.log(lower.diagonal()).sum()
        h = self.h[~always] - along[:, -1] @ along[:, :-1]
        return InclusionPosterior(Q, h, self.weight[~always]), float(
            log_weight + self.weight[always].sum()
        )

    def one_more(self, included):
        """Return log-weights of patterns, bool (n, n_features), with one feature more each."""
        sizes = included.sum(1)
        patterns = np.argsort(~included, axis=1, kind="stable")[:, : max(sizes.max(initial=0), 1)]
        step = max(1, int(BLOCK_ENTRIES / (included.shape[1] * (1 + patterns.shape[1]))))
        parts = [slice(first, first + step) for first in range(0, len(sizes), step)]
        weights = [self.extended(patterns[part], sizes[part])[1] for part in parts]
        return np.concatenate([np.empty((0, included.shape[1])), *weights])

    def extended(self, patterns, sizes):
        """Return log-weights of patterns, and of each pattern with each further feature."""
        diagonal, n = self.Q.diagonal(), len(patterns)
        places = patterns[:, : max(sizes.max(initial=0), 1)]
        counts = np.arange(places.shape[1]) < sizes[:, None]
        rows = self.Q[places] * counts[:, :, None]
        square = np.take_along_axis(rows, places[:, None, :], axis=2) * counts[:, None, :]
        square += np.where(counts, 0.0, 1.0)[:, :, None] * np.eye(places.shape[1])
        linear = self.h[places] * counts
        lower = np.linalg.cholesky(square)
        # Products with small inverses take a third of the time of solutions with many columns.
        along = np.linalg.inv(lower) @ np.concatenate([rows, linear[:, :, None]], axis=2)
        variance = diagonal - np.einsum("nkj,nkj->nj", along[:, :, :-1], along[:, :, :-1])
        residual = self.h - np.einsum("nkj,nk->nj", along[:, :, :-1], along[:, :, -1])
        log_weights = (along[:, :, -1] ** 2).sum(1) / 2 + (self.weight[places] * counts).sum(1)
        log_weights -= np.log(np.einsum("nkk->nk", lower)).sum(1)
        proper = variance > MIN_EIGENVALUE * diagonal  # otherwise a copy of included features
        row, place = np.nonzero(counts)
        proper[row, places[row, place]] = False
        variance = np.where(proper, variance, 1.0)
        gain = self.weight + residual * residual / variance / 2 - np.log(variance) / 2
        return log_weights, np.where(proper, log_weights.reshape(n, 1) + gain, -np.inf)


class ModelChains:
    """Chains over patterns, from given starting patterns: see the module."""

    def __init__(self, posterior, starts, rng):
        self._posterior, self._rng, self._visited = posterior, rng, {}
        self._begin(starts)

    def _begin(self, starts):
        """Set the patterns of the chains."""
        self.sizes = np.array([len(start) for start in starts])
        self.patterns = np.zeros((len(starts), self.sizes.max() + 1), np.int64)
        for pattern, start in zip(self.patterns, starts, strict=True):
            pattern[: len(start)] = start

    def run(self, n_steps):
        """Run some steps; return inclusion probabilities averaged over the steps of each chain."""
        inclusion = np.zeros((len(self.sizes), len(self._posterior.h)))
        for _ in range(n_steps):
            inclusion += self._move()
            self._grow_or_shrink()
        return inclusion / n_steps

    def draw(self, n_steps):
        """Return the patterns of all chains after each step, (n_steps * n_chains, n_features)."""
        included = np.zeros((n_steps, len(self.sizes), len(self._posterior.h)), bool)
        for patterns in included:
            self._move()
            self._grow_or_shrink()
            row, place = np.nonzero(np.arange(self.patterns.shape[1]) < self.sizes[:, None])
            patterns[row, self.patterns[row, place]] = True
        return included.reshape(-1, included.shape[2])

    def log_weight(self):
        """Return the log of the sum of the weights of all visited patterns: a lower bound."""
        return float(np.logaddexp.reduce(list(self._visited.values())))

    def begin_anew(self):
        """Redraw the patterns of all chains from the visited patterns, by their weights.

        So no chain stays at an unlikely pattern because of its start.
        """
        keys, weights = list(self._visited), np.array(list(self._visited.values()))
        weights = np.exp(weights - weights.max())
        drawn = self._rng.choice(len(keys), len(self.sizes), p=weights / weights.sum())
        self._begin([np.frombuffer(keys[k], np.int64) for k in drawn])

    def _move(self):
        """Redraw the feature of one effect of each chain; return probabilities of inclusion."""
        moved = self.sizes > 0
        self.patterns, fewer = self._without_one(), np.maximum(self.sizes - 1, 0)
        _, log_weights = self._posterior.extended(self.patterns, fewer)
        drawn, weights = self._drawn(log_weights)
        rows = np.flatnonzero(moved & np.isfinite(log_weights).any(1))
        self.patterns[rows, fewer[rows]] = drawn[rows]
        included = weights * moved[:, None]
        row, place = np.nonzero(np.arange(self.patterns.shape[1]) < fewer[:, None])
        included[row, self.patterns[row, place]] = 1.0
        return included

    def _grow_or_shrink(self):
        """Propose to add an effect, drawn by the weights, or to remove one, in each chain."""
        grow = self._rng.random(len(self.sizes)) < 0.5
        threshold = np.log(self._rng.random(len(self.sizes)))
        up, down = np.flatnonzero(grow), np.flatnonzero(~grow & (self.sizes > 0))
        if len(down):
            without, fewer = self._without_one()[down], self.sizes[down] - 1
            log_weights, back = self._posterior.extended(without, fewer)
            ratio = log_weights + np.log(fewer + 1.0) - np.logaddexp.reduce(back, axis=1)
            accepted = threshold[down] < ratio
            self.patterns[down[accepted]] = without[accepted]
            self.sizes[down[accepted]] -= 1
        if len(up):
            log_weights, larger = self._posterior.extended(self.patterns[up], self.sizes[up])
            self._visit(up, log_weights)
            drawn, _ = self._drawn(larger)
            ratio = np.logaddexp.reduce(larger, axis=1) - log_weights - np.log(self.sizes[up] + 1.0)
            accepted = threshold[up] < ratio
            up, drawn = up[accepted], drawn[accepted]
            self.patterns[up, self.sizes[up]] = drawn
            self.sizes[up] += 1
        if self.sizes.max() == self.patterns.shape[1]:
            self.patterns = np.pad(self.patterns, ((0, 0), (0, 4)))

    def _without_one(self):
        """Swap a random feature of each pattern to its last place, from where it is removed."""
        rows, last = np.arange(len(self.sizes)), np.maximum(self.sizes - 1, 0)
        place = (self._rng.random(len(rows)) * self.sizes).astype(np.int64)
        patterns = self.patterns.copy()
        patterns[rows, place], patterns[rows, last] = (
            self.patterns[rows, last], self.patterns[rows, place],
        )  # fmt: skip
        return patterns

    def _drawn(self, log_weights):
        """Draw a feature in each row; return it and the normalised weights."""
        top = log_weights.max(1, keepdims=True)
        weights = np.exp(log_weights - np.where(np.isfinite(top), top, 0.0))
        total = np.cumsum(weights, axis=1)
        last = np.maximum(total[:, -1:], np.finfo(float).tiny)
        drawn = (total < self._rng.random((len(total), 1)) * last).sum(1)
        return np.minimum(drawn, log_weights.shape[1] - 1), weights / last

    def _visit(self, rows, log_weights):
        """Store the log-weights of the current patterns of some chains."""
        patterns, sizes = self.patterns[rows], self.sizes[rows]
        counts = np.arange(patterns.shape[1]) < sizes[:, None]
        ordered = np.sort(np.where(counts, patterns, -1), axis=1)
        for row, weight in zip(ordered, log_weights, strict=True):
            self._visited[row[row >= 0].tobytes()] = weight
