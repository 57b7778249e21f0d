"""Keeping the parameters of a model where all its mean-field iterates exist.

The distribution of an unbounded unit exists only while its tilted precision is positive, which the
Onsager terms of its neighbours reduce: `precision_i > sum_j W_ij^2 var_j` is necessary for every
variance that the neighbours can have. `project` makes it twice that (`PRECISION_MARGIN`). The
variance of a unit is then at most 2 / precision, which is the bound for unbounded neighbours.
"""

from fastmf.priors._domain import (
    PRECISION_MARGIN,
    largest_variance,
    unbounded,
    with_min_precision,
)
from fastmf.priors._protocol import project as project_prior


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
    return model.rebuilt(couplings, tuple(project_layers(couplings, parameters.layers)))


def project_layers(couplings, layers):
    """The nearest admissible priors: see `project`.

    Parameters
    ----------
    couplings : sequence of arrays of shape (n_below, n_above)
    layers : sequence of unit priors

    Returns
    -------
    list of unit priors
    """
    layers = [project_prior(layer) for layer in layers]
    for k, layer in enumerate(layers):
        if unbounded(layer).any():
            reduction = 0
            if k > 0:
                reduction = reduction + largest_variance(layers[k - 1]) @ couplings[k - 1] ** 2
            if k < len(couplings):
                reduction = reduction + couplings[k] ** 2 @ largest_variance(layers[k + 1])
            layers[k] = with_min_precision(layer, PRECISION_MARGIN * reduction)
    return layers
