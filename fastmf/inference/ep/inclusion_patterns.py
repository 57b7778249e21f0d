"""Which features of a sparse linear model are not zero together: sums over patterns, or chains."""

from typing import NamedTuple

import numpy as np

from fastmf._threads.workers import one_blas_thread
from fastmf.inference.ep.model_chains import InclusionPosterior, ModelChains
from fastmf.inference.ep.model_sums import MAX_SUMMED, summed_patterns

# Steps of chains: those before they begin anew, those after it that do not count, and those that
# do; and numbers of chains: by what a step costs.
N_FIRST, N_BETWEEN, N_STEPS = 25, 10, 45
MIN_CHAINS, MAX_CHAINS, STEP_COST = 20, 100, 4e6
# Expected number of effects up to which chains are run: more of them take too long.
MAX_EFFECTS = 40.0


class Patterns(NamedTuple):
    """Inclusion patterns and their probabilities.

    Parameters
    ----------
    included : bool array of shape (n_patterns, n_features)
    probability : array of shape (n_patterns,)
    posterior : InclusionPosterior, optional
        Of patterns that were drawn: where each effect is given the others.
    """

    included: np.ndarray
    probability: np.ndarray
    posterior: object = None

    def any_of(self, features):
        """Probability that at least one of these features is not zero."""
        return float(self.probability @ self.included[:, features].any(1))

    def places(self, remaining, likeness):
        """Remove the effect most alike from the patterns: probabilities of its place."""
        values = np.where(remaining, likeness, -1.0)
        place, rows = np.argmax(values, axis=1), np.flatnonzero(values.max(1) > 0)
        place, probability = place[rows], self.probability[rows]
        remaining[rows, place] = False
        if self.posterior is None:
            return np.bincount(place, probability, len(likeness))
        # Many features may have the effect of a pattern: each gets its conditional probability,
        # or the next of the pattern that is more alike.
        values[rows, place] = -1.0
        following = np.argmax(values[rows], axis=1)
        others, columns = self.included[rows], np.arange(len(likeness))
        others[np.arange(len(rows)), place] = False
        keys = np.packbits(np.hstack([others, columns == following[:, None]]), axis=1)
        _, first, row = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        weights, following = np.bincount(row.ravel(), probability, len(first)), following[first]
        log_weights = self.posterior.one_more(others[first])
        log_weights[:, likeness < 0] = -np.inf
        shares = np.exp(log_weights - log_weights.max(1, keepdims=True))
        shares *= (weights / shares.sum(1))[:, None]
        passed = likeness < values[rows[first], following][:, None]
        at = np.where(passed, 0.0, shares).sum(0)
        return at + np.bincount(following, (shares * passed).sum(1), len(at))


def inclusion_patterns(model, included, share=1.0):
    """Patterns of all features: summed, drawn by chains, or independent if these take long."""
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
        chains = settled_chains(posterior, included, share * MAX_CHAINS)
        patterns = chains.draw(N_STEPS)
    return Patterns(patterns, np.full(len(patterns), 1 / len(patterns)), posterior)


def settled_chains(posterior, included, max_chains=MAX_CHAINS):
    """Chains over patterns, half of which began at the likely features, and half at none.

    They begin anew at patterns that were found, by their weights.
    """
    cost = len(included) * (1 + included.sum())
    n_chains = 2 * int(np.clip(STEP_COST / cost, MIN_CHAINS, max(MIN_CHAINS, max_chains)) / 2)
    likely = _proper_start(posterior, np.flatnonzero(included > 0.5))
    starts = [likely, np.empty(0, np.int64)] * (n_chains // 2)
    chains = ModelChains(posterior, starts, np.random.default_rng(0))
    chains.run(N_FIRST)
    chains.begin_anew()
    chains.run(N_BETWEEN)
    return chains


def _proper_start(posterior, likely):
    """Likely features, without copies of others among them."""
    start = np.empty(0, np.int64)
    for j in likely[np.argsort(-(posterior.h[likely] ** 2))]:
        _, larger = posterior.extended(start[None], np.array([len(start)]))
        start = np.append(start, j) if np.isfinite(larger[0, j]) else start
    return start
