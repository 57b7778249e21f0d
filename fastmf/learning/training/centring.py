"""Gradients in coordinates in which units are counted from their means.

With offsets m and l, (v - m)' W (h - l) is v' W h but for fields: it is the same machine with
fields less W l and W' m. In these coordinates the gradient by W is

    G = dW - m dh' - dv l'

for gradients dv and dh by the fields, which then move by dv - G l and dh - G' m. Where a layer's
field is no tilt, its neighbours have no offsets. Compiled steps do the same by
`fastmf.kernels.training.ascent`. Sources: Montavon & Mueller (2012); Melchior, Fischer & Wiskott
(2016).
"""

import numpy as np

from fastmf.priors._queries import field_is_tilt


def offsets(model, gradient, means):
    """Offsets of the units on both sides of couplings, and derivatives by their fields."""
    centred = tilts(model.layers)
    of_fields = [
        layer.field if tilt else 0 * mean
        for layer, mean, tilt in zip(gradient.layers, means, centred, strict=True)
    ]
    pairs = []
    for k in range(len(means) - 1):
        below, above = means[k] * centred[k + 1], means[k + 1] * centred[k]
        sides = (below, of_fields[k]), (above, of_fields[k + 1])
        pairs.append(tuple(np.array(side, model.dtype) for side in sides))
    return pairs


def between_deviations(gradient, sides):
    """The gradient G by couplings between deviations; `sides` is a pair of `offsets`."""
    below, above = sides
    return gradient - (np.outer(below[0], above[1]) + np.outer(below[1], above[0]))


def moves_of_fields(gradients, step_dot, sides):
    """Moves of the fields of each layer by steps along the gradients G of couplings."""
    moves = [0] * (len(gradients) + 1)
    for k, (w, (below, _)) in enumerate(zip(gradients, sides, strict=True)):
        moves[k] = moves[k] + step_dot[k]
        # Not by BLAS: see kernels.statistics.
        moves[k + 1] = moves[k + 1] + np.einsum("i,ij->j", below[0], w)
    return moves


def with_moved_fields(layers, gradients, moves):
    """Gradients by the units of each layer, those by fields that are tilts less the moves."""
    return tuple(
        gradient._replace(field=gradient.field - move) if tilt else gradient
        for gradient, move, tilt in zip(gradients, moves, tilts(layers), strict=True)
    )


def tilts(layers):
    """Whether the field of each layer is a tilt."""
    return [field_is_tilt(prior) for prior in layers]
