"""Keeping the parameters of a model where all its mean-field iterates exist.

A unit that can reach infinity exists only while its tilted precision is positive, and its
neighbours' variances take away from it: `precision_i > sum_j W_ij^2 var_j` is needed for every
variance that the neighbours can have. We ask for twice that. A unit's variance then never exceeds
2 / precision, and this closes the argument where both layers are unbounded.
"""

import numpy as np

from fastmf.priors._protocol import by_parts
from fastmf.priors._protocol import project as project_prior

MARGIN = 2.0


def largest_variance(prior):
    """Largest variance of each unit under any tilt that `project` permits: (n_units,)."""
    if hasattr(prior, "parts"):
        return np.concatenate([largest_variance(part) for part in prior.parts])
    values = getattr(prior, "support", None)
    if values is not None:
        return np.full(len(prior[0]), (max(values) - min(values)) ** 2 / 4)
    bounded = ~unbounded(prior)
    precision = getattr(prior, "precision", None)
    if precision is None:
        # A user's own prior: its variance without a tilt is all that is known.
        return prior.moments(0.0, 0.0)[1]
    variance = MARGIN / np.where(bounded, 1.0, precision)
    if bounded.any():
        # A spike at zero may lie outside the interval of its slab.
        spike = 0.0 if hasattr(prior, "log_odds") else prior.lower
        width = np.maximum(prior.upper, spike) - np.minimum(prior.lower, spike)
        variance[bounded] = width[bounded] ** 2 / 4
    return variance


def unbounded(prior):
    """Which units can reach infinity: (n_units,) booleans."""
    if hasattr(prior, "parts"):
        return np.concatenate([unbounded(part) for part in prior.parts])
    if hasattr(prior, "lower"):
        return ~(np.isfinite(prior.lower) & np.isfinite(prior.upper))
    return np.full(len(prior[0]), hasattr(prior, "precision"))


def _raise_precision(prior, least):
    """The prior with the precisions of its unbounded units at `least` or above."""
    if hasattr(prior, "parts"):
        parts = by_parts(prior, least)
        return prior._replace(parts=tuple(_raise_precision(*part) for part in parts))
    here = unbounded(prior)
    if not here.any():
        return prior
    precision = np.where(here, np.maximum(prior.precision, least), prior.precision)
    return prior._replace(precision=precision.astype(prior.precision.dtype))


def project(model, parameters):
    """The model of the kind of `model` with these couplings and the nearest admissible priors.

    Parameters
    ----------
    model : RBM or DBM
        Only its kind matters.
    parameters : ModelParameters

    Returns
    -------
    RBM or DBM

    Notes
    -----
    Sufficient condition of Tramel et al. (2018), Eqs. 67-69. Without unbounded units only
    `prior.project` acts.
    """
    couplings = parameters.couplings
    layers = [project_prior(layer) for layer in parameters.layers]
    for k, layer in enumerate(layers):
        if unbounded(layer).any():
            least = 0
            if k > 0:
                least = least + largest_variance(layers[k - 1]) @ couplings[k - 1] ** 2
            if k < len(couplings):
                least = least + couplings[k] ** 2 @ largest_variance(layers[k + 1])
            layers[k] = _raise_precision(layer, MARGIN * least)
    return model.rebuilt(couplings, tuple(layers))
