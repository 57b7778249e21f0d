"""Inclusion probabilities of fitted spike-and-slab models beside those of chains over models."""

import numpy as np

from fastmf.inference.ep.posterior_check import (
    MAX_CHAINS,
    Comparison,
    SpikeSlabData,
    compared,
    reason_of,
)

# Smallest number of chains at one value of the hyper-parameters.
FEWEST_CHAINS = 20


def reason_of_parts(values, weights, included, without):
    """Why inclusion probabilities are not reliable, "" if they are; None if that is not known.

    Parameters
    ----------
    values : list of list of FittedPart
        Independent parts, at each value of the hyper-parameters.
    weights : array of shape (n_values,)
        Weights of the values, of sum 1.
    included : array of shape (n_features,)
        Inclusion probabilities.
    without : int array
        Features that are not compared, which are constant in the parts.
    """
    known = True
    for parts in zip(*values, strict=True):
        units = parts[0].units
        kept = np.flatnonzero(~np.isin(units, without))
        found = _averaged(parts, weights, included[units], kept)
        if found is not None:
            features = units[kept[found.features]]
            reason = reason_of(found._replace(features=features), included)
            if reason:
                return reason
        known &= found is not None or not len(kept)
    return "" if known else None


def _averaged(parts, weights, included, kept):
    """A `Comparison` for one part, averaged over its values; None if that is not known."""
    inclusion, variance = 0.0, 0.0
    for part, weight in zip(parts, weights, strict=True):
        if part.y is None or not len(kept):
            return None
        prior = part.log_odds[kept], part.precision[kept], np.zeros(len(kept))
        X = part.X if len(kept) == part.X.shape[1] else part.X[:, kept]
        data = SpikeSlabData(X, part.y, part.noise_variance, *prior)
        n_chains = max(FEWEST_CHAINS, 2 * int(MAX_CHAINS * weight / 2))
        found = compared(data, included[kept], n_chains)
        if found is None:
            return None
        inclusion = inclusion + weight * found.inclusion
        variance = variance + (weight * found.error) ** 2
    return Comparison(found.features, inclusion, np.sqrt(variance), np.nan)
