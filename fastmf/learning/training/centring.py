"""Gradients in coordinates in which units are counted from their means.

With offsets m and l, (v - m)' W (h - l) is v' W h but for fields: it is the same machine with
fields less W l and W' m. In these coordinates the gradient by W is

    G = dW - m dh' - dv l'

for gradients dv and dh by the fields, which then move by dv - G l and dh - G' m. Where a layer's
field is no tilt, its neighbours have no offsets. Compiled steps do the same by
`fastmf.kernels.training.ascent`. Sources: Montavon & Mueller (2012); Melchior, Fischer & Wiskott
(2016).
"""

from itertools import pairwise

import numpy as np

from fastmf.priors._queries import field_is_tilt


def offsets(model, gradients, means, tilted, centred=True):
    """Offsets of the units on both sides of couplings, and derivatives by their fields.

    All are zero unless `centred`.
    """
    sides = [np.zeros((2, n), model.dtype) for n in model.sizes]
    if not centred:
        return list(pairwise(sides))
    for side, mean, gradient, tilt in zip(sides, means, gradients, tilted, strict=True):
        side[0] = mean
        if tilt:
            side[1] = gradient.field
    if all(tilted):
        return list(pairwise(sides))
    without = np.array([[0], [1]], model.dtype)
    return [
        (below if tilted[k + 1] else without * below, above if tilted[k] else without * above)
        for k, (below, above) in enumerate(pairwise(sides))
    ]


def between_deviations(gradient, sides):
    """The gradient G by couplings between deviations; `sides` is a pair of `offsets`."""
    below, above = sides
    return gradient - (np.outer(below[0], above[1]) + np.outer(below[1], above[0]))


def with_moved_fields(gradients, moves, tilted):
    """Gradients by the units of each layer, less the moves of fields that are tilts.

    `moves` has the products of each step of couplings with the offsets above, and below.
    """
    fields = [
        gradient.field if tilt else 0 for gradient, tilt in zip(gradients, tilted, strict=True)
    ]
    for k, (of_below, of_above) in enumerate(moves):
        fields[k], fields[k + 1] = fields[k] - of_below, fields[k + 1] - of_above
    return tuple(
        gradient._replace(field=field) if tilt else gradient
        for gradient, field, tilt in zip(gradients, fields, tilted, strict=True)
    )


def tilts(layers):
    """Whether the field of each layer is a tilt."""
    return [field_is_tilt(prior) for prior in layers]
