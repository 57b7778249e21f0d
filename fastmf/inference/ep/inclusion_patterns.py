"""Joint inclusion of features in a sparse linear model, by sums over patterns or by chains.

With the rows a_j = (x_j / s, sqrt(slab precision) e_j) and b = (y / s, slab fields / roots of slab
precisions), the log-weight of a pattern S of features, relative to the empty pattern, is

    sum_S (log-odds + ln(precision) / 2 - field^2 / (2 precision)) + |b|^2 / 2 - |b - P_S b|^2 / 2
        - ln |a_S|

with the projection P_S on the a_j of S and the volume |a_S| that they span.
"""

from typing import NamedTuple

import numpy as np

from fastmf._threads.workers import one_blas_thread
from fastmf.inference.ep.model_chains import InclusionPosterior, ModelChains

# Maximum number of features whose patterns are summed: 65,536 patterns take some 0.1 s.
MAX_SUMMED = 16
# Steps of chains that are averaged, after half this number before the chains are redrawn and a
# quarter afterwards; the number of chains.
N_STEPS, MAX_CHAINS = 45, 100
# Maximum expected number of effects for chains: more of them take too long.
MAX_EFFECTS = 40.0


class Patterns(NamedTuple):
    """Inclusion patterns and their probabilities."""

    included: np.ndarray  # bool, (n_patterns, n_features)
    probability: np.ndarray  # (n_patterns,)
    posterior: object = None  # InclusionPosterior of patterns that were drawn

    def any_of(self, features):
        """Return the probability that at least one of these features is not zero."""
        return float(self.probability @ self.included[:, features].any(1))

    def places(self, remaining, likeness):
        """Remove the effect of largest likeness from each pattern; return its distribution."""
        values = np.where(remaining, likeness, -1.0)
        place, rows = np.argmax(values, axis=1), np.flatnonzero(values.max(1) > 0)
        place, probability = place[rows], self.probability[rows]
        remaining[rows, place] = False
        if self.posterior is None:
            return np.bincount(place, probability, len(likeness))
        # Many features may have the effect of a pattern: each receives its conditional probability,
        # unless the next feature of the pattern has a larger likeness, and receives it instead.
        values[rows, place] = -1.0
        following = np.argmax(values[rows], axis=1)
        without, columns = self.included[rows], np.arange(len(likeness))
        without[np.arange(len(rows)), place] = False
        keys = np.packbits(np.hstack([without, columns == following[:, None]]), axis=1)
        _, first, row = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        weights, following = np.bincount(row.ravel(), probability, len(first)), following[first]
        log_weights = self.posterior.one_more(without[first])
        log_weights[:, likeness < 0] = -np.inf
        shares = np.exp(log_weights - log_weights.max(1, keepdims=True))
        shares *= (weights / shares.sum(1))[:, None]
        passed = likeness < values[rows[first], following][:, None]
        at = np.where(passed, 0.0, shares).sum(0)
        return at + np.bincount(following, (shares * passed).sum(1), len(at))


def inclusion_patterns(model, included, share=1.0):
    """Return patterns of all features: summed, drawn by chains, or independent if that is slow."""
    n, rng = len(included), np.random.default_rng(0)
    if n <= MAX_SUMMED:
        patterns, probability, _ = summed_patterns(model, np.zeros(n, bool))
        return Patterns(patterns, probability)
    if included.sum() > MAX_EFFECTS:
        patterns = rng.random((MAX_CHAINS * N_STEPS, n)) < included
        return Patterns(patterns, np.full(len(patterns), 1 / len(patterns)))
    prior = model.prior
    parameters = prior.log_odds, prior.precision, prior.field
    posterior = InclusionPosterior.of(model.X, model.y, model.noise_variance, *parameters)
    with one_blas_thread(n):
        chains = settled_chains(posterior, included, share)
        patterns = chains.draw(N_STEPS)
    return Patterns(patterns, np.full(len(patterns), 1 / len(patterns)), posterior)


def settled_chains(posterior, included, share=1.0):
    """Run chains over patterns, fewer for a small share; half start at the likely features.

    After a burn-in, they are redrawn from the visited patterns, by weight.
    """
    likely = _proper_start(posterior, np.flatnonzero(included > 0.5))
    starts = [likely, np.empty(0, np.int64)] * round(max(20, share * MAX_CHAINS) / 2)
    chains = ModelChains(posterior, starts, np.random.default_rng(0))
    chains.run(N_STEPS // 2)
    chains.begin_anew()
    chains.run(N_STEPS // 4)
    return chains


def _proper_start(posterior, likely):
    """Return the likely features, without copies of likelier ones."""
    start = np.empty(0, np.int64)
    for j in likely[np.argsort(-(posterior.h[likely] ** 2))]:
        _, larger = posterior.extended(start[None], np.array([len(start)]))
        start = np.append(start, j) if np.isfinite(larger[0, j]) else start
    return start


def summed_patterns(model, always):
    """Return all patterns, their probabilities, and the log of the sum of their weights.

    The empty pattern has weight 1. The products of `model_chains` would lose nearly equal columns,
    and differences of nearly equal fits, in rounding. Here features are added one by one: each
    doubles the patterns, without and with it, and is projected out of all later features, so that
    2^d patterns cost a few products of their last columns.
    """
    prior, n = model.prior, model.n_features
    X, y = np.asarray(model.X, np.float64), model.y
    if len(X) > n:
        orthogonal, X = np.linalg.qr(X)
        y = orthogonal.T @ y
    roots = np.sqrt(prior.precision)
    scale = 1 / np.sqrt(model.noise_variance)
    columns = np.vstack([X * scale, np.diag(roots)]).T[None]
    target = np.concatenate([y * scale, prior.field / roots])[None]
    none = float(target[0] @ target[0]) / 2
    weights = prior.log_odds + np.log(roots) - (prior.field / roots) ** 2 / 2
    order = np.argsort(~always, kind="stable")
    columns, total = columns[:, order], np.zeros(1)
    for j in order:
        first, following = columns[:, 0], columns[:, 1:]
        length = np.sqrt(np.einsum("ki,ki->k", first, first))
        first = first / length[:, None]
        along = np.einsum("ki,ki->k", first, target)
        along_columns = np.einsum("kji,ki->kj", following, first)
        projected = following - along_columns[:, :, None] * first[:, None]
        with_first = total + weights[j] - np.log(length)
        residual = target - along[:, None] * first
        if not always[j]:
            with_first = np.concatenate([total, with_first])
            residual = np.concatenate([target, residual])
            projected = np.concatenate([following, projected])
        total, target, columns = with_first, residual, projected
    total = total - np.einsum("ki,ki->k", target, target) / 2
    log_weight = np.logaddexp.reduce(total)
    patterns = np.ones((len(total), n), bool)
    free = order[always.sum() :]
    patterns[:, free] = np.arange(len(total))[:, None] >> np.arange(len(free)) & 1
    return patterns, np.exp(total - log_weight), float(log_weight + none)
