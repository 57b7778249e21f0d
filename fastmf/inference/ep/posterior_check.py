"""Check of a posterior of expectation propagation, made when its `reliable` is read.

A fixed point may be wrong although it has converged: correlated features that are in several
blocks, or share more effects than are summed over, have posteriors of more modes than it holds.
Chains over the models themselves (`model_chains`) need neither blocks nor Gaussians. Half of them
start from its likely features and half from none; after some steps all begin anew from what was
found, by its weight. The posterior is not reliable if

- the patterns that chains found have more evidence together than it says, a lower bound;
- an inclusion probability differs from that of the chains by more than 0.1 and three standard
  errors.

Of few features all patterns are summed in the place of chains (`model_sums`). If there are many,
only those that seem likely are allowed: others are likely to be zero.
"""

from typing import NamedTuple

import numpy as np

from fastmf._threads.workers import one_blas_thread
from fastmf.inference.ep.inclusion_patterns import (
    MAX_CHAINS,
    MAX_EFFECTS,
    N_STEPS,
    settled_chains,
)
from fastmf.inference.ep.model_chains import InclusionPosterior
from fastmf.inference.ep.model_sums import MAX_SUMMED, summed_patterns
from fastmf.priors.spike_and_slab import ALWAYS, GaussBernoulli
from fastmf.special import sigmoid

# Largest difference of probabilities, in standard errors of the chains, and nats.
MAX_DIFFERENCE, SIGNIFICANT_ERRORS, EVIDENCE_MARGIN = 0.1, 3.0, 0.1
# Features that chains may include, and the expected number of effects among the others at most.
MAX_CANDIDATES, MAX_LEFT_OUT = 400, 1.0


class Comparison(NamedTuple):
    """Result of chains or sums on the inclusion of some features.

    Parameters
    ----------
    features : int array of shape (n,)
    inclusion, error : array of shape (n,)
        Probabilities and their standard errors, 0 of sums over all patterns.
    log_weight : float
        Logarithm of the sum of the weights of the patterns found, against that of none.
    """

    features: np.ndarray
    inclusion: np.ndarray
    error: np.ndarray
    log_weight: float


def compared(model, included, max_chains=MAX_CHAINS):
    """The posterior of the inclusion by chains, or of few features by sums."""
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
        chains = settled_chains(posterior, included[units], max_chains)
        inclusion = chains.run(N_STEPS)
    error = inclusion.std(0, ddof=1) / np.sqrt(len(inclusion))
    return Comparison(units, inclusion.mean(0), error, chains.log_weight() + constant)


def _candidates(model, included, always):
    """The features that chains may include, ascending; None if others are likely, too."""
    n = len(included)
    if n <= MAX_CANDIDATES:
        return np.arange(n)
    z = np.asarray(model.X.T @ model.y, np.float64) / model.noise_variance + model.prior.field
    score = np.where(always, 2.0, included) + 1e-3 * abs(z) / abs(z).max(initial=1e-300)
    order = np.argsort(-score, kind="stable")
    left_out = included[order[MAX_CANDIDATES:]].sum()
    return None if left_out > MAX_LEFT_OUT else np.sort(order[:MAX_CANDIDATES])


def reason_of(found, included):
    """Why inclusion probabilities contradict those of chains; "" if they do not."""
    apart = abs(included[found.features] - found.inclusion)
    apart[apart < SIGNIFICANT_ERRORS * found.error] = 0
    k = int(apart.argmax())
    if apart[k] > MAX_DIFFERENCE:
        how = "chains over models" if found.error.any() else "a sum over all models"
        return (
            f"the inclusion probability of feature {found.features[k]} is "
            f"{included[found.features[k]]:.2f}, and {found.inclusion[k]:.2f} by {how}"
        )
    return ""


class PosteriorCheck(NamedTuple):
    """Problem and result of expectation propagation to be checked: see the module.

    Parameters
    ----------
    model : SparseLinearModel
    """

    model: object

    def __call__(self, found):
        """Reason why the result is not reliable, in a list; None if that cannot be checked."""
        model, prior = self.model, self.model.prior
        if not found.converged:
            return [""]
        if not isinstance(prior, GaussBernoulli):
            return None
        included = found.inclusion_probability
        if included is None:
            included = sigmoid(prior.tilted_log_odds(found.b, found.a))
        chains = compared(model, included)
        if chains is None:
            return None
        # Evidence of the pattern of no feature, whose weight is 1.
        none = -(model.y @ model.y / model.noise_variance) / 2 + model.log_absent
        none -= model.n_samples * np.log(2 * np.pi * model.noise_variance) / 2
        none -= np.logaddexp(0, prior.log_odds).sum()
        below = chains.log_weight + none - found.log_evidence
        if below > EVIDENCE_MARGIN:
            return [f"its log-evidence is {below:.3g} nats below that of some models"]
        return [reason_of(chains, included)]
