"""Inclusion probabilities of fitted spike-and-slab models beside those of chains over models."""

import numpy as np

from fastmf.inference.ep.posterior_check import MAX_CHAINS, Comparison, compared, reason_of
from fastmf.models import SparseLinearModel
from fastmf.priors import GaussBernoulli

# Smallest number of chains at one value of the hyper-parameters.
FEWEST_CHAINS = 20


def reason_of_parts(values, weights, included, without):
    """Why inclusion probabilities are not reliable, "" if they are; None if that is not known."""
    known = True
    for parts in zip(*values, strict=True):
        units = parts[0].units
        compares = ~np.isin(units, without)
        if not compares.any():
            continue
        found = _averaged(parts, weights, np.where(compares, included[units], 0.0))
        if found is None:
            known = False
            continue
        kept = compares[found.features]
        features, inclusion, error = (part[kept] for part in found[:3])
        found = Comparison(units[features], inclusion, error, found.log_weight)
        if len(features) and (reason := reason_of(found, included)):
            return reason
    return "" if known else None


def _averaged(parts, weights, included):
    """A `Comparison` for one part, averaged over its values; None if that is not known."""
    inclusion, variance = 0.0, 0.0
    for part, weight in zip(parts, weights, strict=True):
        if part.y is None:
            return None
        prior = GaussBernoulli(np.zeros(len(included)), part.precision, part.log_odds)
        model = SparseLinearModel(part.X, part.y, part.noise_variance, prior)
        n_chains = max(FEWEST_CHAINS, 2 * int(MAX_CHAINS * weight / 2))
        found = compared(model, included, n_chains)
        if found is None:
            return None
        inclusion = inclusion + weight * found.inclusion
        variance = variance + (weight * found.error) ** 2
    return Comparison(found.features, inclusion, np.sqrt(variance), np.nan)
