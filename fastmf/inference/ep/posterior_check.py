"""Check of a posterior of expectation propagation, made when its `reliable` is read.

A converged fixed point may be wrong: if correlated features are in several blocks, or share more
effects than patterns include, the posterior has more modes than the approximation. Chains over
inclusion patterns (`model_chains`), or sums over the patterns of few features, need neither blocks
nor Gaussians. The posterior is not reliable if

- the visited patterns together, a lower bound, have more evidence than the result;
- an inclusion probability differs from the chains by more than 0.1 and three standard errors.

If there are many features, chains include only the likeliest: the others are likely to be zero.
"""

from typing import NamedTuple

import numpy as np

from fastmf._threads.workers import one_blas_thread
from fastmf.inference.ep.inclusion_patterns import (
    MAX_EFFECTS,
    MAX_SUMMED,
    N_STEPS,
    settled_chains,
    summed_patterns,
)
from fastmf.inference.ep.model_chains import InclusionPosterior
from fastmf.priors.spike_and_slab import ALWAYS, GaussBernoulli

# Largest difference of probabilities, and of the log-evidence; and of probabilities in standard
# errors.
MAX_DIFFERENCE, SIGNIFICANT_ERRORS = 0.1, 3.0
# Maximum number of features in chains; maximum expected number of effects among other features.
MAX_CANDIDATES, MAX_LEFT_OUT = 400, 1.0


class Comparison(NamedTuple):
    """Inclusion probabilities of some features, by chains, or by sums without standard errors."""

    features: np.ndarray  # int, (n,)
    inclusion: np.ndarray  # (n,), probabilities
    error: np.ndarray  # (n,), their standard errors
    log_weight: float  # log of the sum of the weights of patterns, relative to the empty pattern


def compared(model, included, share=1.0):
    """Compute inclusion probabilities by chains, or for few features by sums; None if too slow."""
    prior = model.prior
    always = prior.log_odds > ALWAYS
    units = _candidates(model, included, always)
    if units is None:
        return None
    if len(units) == len(included) and np.count_nonzero(~always) <= MAX_SUMMED:
        patterns, probability, log_weight = summed_patterns(model, always)
        units = np.flatnonzero(~always)
        inclusion = probability @ patterns[:, units]
        return Comparison(units, inclusion, np.zeros(len(units)), log_weight)
    parameters = (part[units] for part in (prior.log_odds, prior.precision, prior.field))
    posterior = InclusionPosterior.of(model.X[:, units], model.y, model.noise_variance, *parameters)
    posterior, constant = posterior.given(always[units])
    units = units[~always[units]]
    if included[units].sum() > MAX_EFFECTS or not len(units):
        return None
    with one_blas_thread(len(units)):
        chains = settled_chains(posterior, included[units], share)
        inclusion = chains.run(N_STEPS)
    error = inclusion.std(0, ddof=1) / np.sqrt(len(inclusion))
    return Comparison(units, inclusion.mean(0), error, chains.log_weight() + constant)


def _candidates(model, included, always):
    """Return the features that chains may include, ascending; None if too many are likely."""
    n = len(included)
    if n <= MAX_CANDIDATES:
        return np.arange(n)
    z = np.asarray(model.X.T @ model.y, np.float64) / model.noise_variance + model.prior.field
    score = np.where(always, 2.0, included) + 1e-3 * abs(z) / abs(z).max(initial=1e-300)
    order = np.argsort(-score, kind="stable")
    left_out = included[order[MAX_CANDIDATES:]].sum()
    return None if left_out > MAX_LEFT_OUT else np.sort(order[:MAX_CANDIDATES])


def reason_of(chains, included):
    """Return why inclusion probabilities contradict chains, "" if they do not."""
    apart = abs(included[chains.features] - chains.inclusion)
    apart[apart < SIGNIFICANT_ERRORS * chains.error] = 0
    k = int(apart.argmax())
    if apart[k] > MAX_DIFFERENCE:
        how = "chains over models" if chains.error.any() else "a sum over all models"
        return (
            f"the inclusion probability of feature {chains.features[k]} is "
            f"{included[chains.features[k]]:.2f}, and {chains.inclusion[k]:.2f} by {how}"
        )
    return ""


class PosteriorCheck(NamedTuple):
    """Check of results of expectation propagation for a model: see the module."""

    model: object  # SparseLinearModel

    def __call__(self, result):
        """Return a list of the reason why a result is not reliable; None if it is not checked."""
        model, prior = self.model, self.model.prior
        if not result.converged:
            return [""]
        if not isinstance(prior, GaussBernoulli):
            return None
        included = result.inclusion_probability
        chains = compared(model, included)
        if chains is None:
            return None
        # Log-evidence of the empty pattern, whose weight is 1.
        none = -(model.y @ model.y / model.noise_variance) / 2 + model.log_absent
        none -= model.n_samples * np.log(2 * np.pi * model.noise_variance) / 2
        none -= np.logaddexp(0, prior.log_odds).sum()
        below = chains.log_weight + none - result.log_evidence
        if below > MAX_DIFFERENCE:
            return [f"its log-evidence is {below:.3g} nats below that of some models"]
        return [reason_of(chains, included)]
