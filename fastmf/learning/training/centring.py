"""Gradients in coordinates in which units are counted from their means."""

import numpy as np

from fastmf.learning.training.parameters import ModelParameters
from fastmf.priors._domain import field_is_tilt


def offsets(model, gradient, means):
    """Offsets of the units on both sides of couplings, and derivatives by their fields.

    Parameters
    ----------
    model : RBM or DBM
    gradient : ModelParameters
        Gradient of the log-likelihood by its parameters.
    means : list of arrays of shape (n_units,)
        Those of each layer over the data.

    Returns
    -------
    list of pairs of arrays of shape (2, n_units)
        Of the units below and above each matrix of couplings, in its type.

    Notes
    -----
    Montavon & Mueller (2012); Melchior, Fischer & Wiskott (2016). With offsets m and l,
    (v - m)' W (h - l) is v' W h but for fields: it is the same machine with fields less W l and
    W' m. In these coordinates the gradient by W is G = dW - m dh' - dv l', for gradients dv and dh
    by the fields, which then move by dv - G l and dh - G' m. Where a layer's field is no tilt, that
    is in priors without `moment_gradient`, its neighbours have no offsets.
    """
    tilts = _tilts(model)
    of_fields = [
        layer.field if tilt else 0 * mean
        for layer, mean, tilt in zip(gradient.layers, means, tilts, strict=True)
    ]
    pairs = []
    for k in range(len(means) - 1):
        below, above = means[k] * tilts[k + 1], means[k + 1] * tilts[k]
        sides = (below, of_fields[k]), (above, of_fields[k + 1])
        pairs.append(tuple(np.array(side, model.dtype) for side in sides))
    return pairs


def with_moved_fields(model, gradient, offsets, directions, step_dot):
    """The gradient in the ordinary coordinates, from that by couplings between deviations.

    Parameters
    ----------
    model : RBM or DBM
    gradient : ModelParameters
    offsets : list of pairs of arrays
        See the function of that name.
    directions : sequence of arrays of shape (n_below, n_above)
        Derivatives by couplings in the coordinates of the offsets.
    step_dot : sequence of arrays of shape (n_below,)
        Their products with the offsets above.

    Returns
    -------
    ModelParameters
    """
    layers = gradient.layers
    moves = [0] * len(layers)
    for k, (w, (below, _)) in enumerate(zip(directions, offsets, strict=True)):
        moves[k] = moves[k] + step_dot[k]
        # Not by BLAS: see kernels.statistics.
        moves[k + 1] = moves[k + 1] + np.einsum("i,ij->j", below[0], w)
    layers = [
        layer._replace(field=layer.field - move) if tilt else layer
        for layer, move, tilt in zip(layers, moves, _tilts(model), strict=True)
    ]
    return ModelParameters(couplings=tuple(directions), layers=tuple(layers))


def _tilts(model):
    """Of each layer, whether its field is a tilt."""
    return [field_is_tilt(prior) for prior in model.layers]
