"""Steps of hidden units without bounds next to bounded ones, at the scale that these units have.

With h -> a h, couplings W -> W / a, fields f -> f / a and precisions p -> p / a^2 a machine of
hidden units h that are real and without bounds stays the same, where all their neighbours are
bounded. The scale of such units is free, and their precisions are held.

Their fields are large where a hundred visible units agree, and their variance with them. The
likelihood is more curved by the same factor, and steps that suit binary units, whose variance is
1/4 at most, oscillate and grow. Steps along the gradients G by couplings and g by fields are
therefore taken along G Q and Q g, with

    Q = (diag(1/p) + C)^-1

for the covariance C of the units over the rows of a batch: natural gradients, but for the visible
side (`fastmf.learning.layered.preconditioning`). All of C is needed: before they differ, hidden
units follow the same direction of the data together. Where neighbours, of means m, are not counted
from these, as for units with a spike, steps follow (1 + m m' / s)^-1 G Q: the mean would be the
direction of by far the largest curvature.
"""

from itertools import pairwise

import numpy as np

from fastmf._threads.workers import one_blas_thread
from fastmf.learning.training.centring import tilts
from fastmf.priors._protocol import by_parts, is_concatenated, n_units, parts_of
from fastmf.priors._queries import fields_of, precisions, unbounded
from fastmf.priors._registry import REGISTRY

# Squared mean of all neighbours, s above, from which steps along it are shorter: of hundreds of
# pixels it is 40, and their largest variance 10.
MEAN_SCALE = 4.0


def free_units(layers):
    """Units whose scale is free."""
    without_bounds = [unbounded(layer) for layer in layers]
    free = [np.zeros(n_units(layers[0]), bool)]
    for k, layer in enumerate(layers[1:], start=1):
        registered = [np.full(n_units(p), type(p) in REGISTRY.values()) for p in parts_of(layer)]
        beside = any(units.any() for units in without_bounds[k - 1 : k + 2 : 2])
        free.append(without_bounds[k] & np.concatenate(registered) & (not beside))
    return free


def with_held_precisions(layers, gradients, free):
    """Gradients by the units of each layer, with 0 by precisions of units whose scale is free."""

    def held(part, free):
        zero = part.precision.dtype.type(0)
        return part._replace(precision=np.where(free, zero, part.precision))

    parts = zip(layers, gradients, free, strict=True)
    return tuple(_changed(*part[:2], held, part[2], part[2]) for part in parts)


def products_of_units(free, moments):
    """Average products over rows of the units of each layer whose scale is free, or None."""
    averages = []
    for units, (mean, var) in zip(free[1:], moments, strict=True):
        if not units.any():
            averages.append(None)
            continue
        x = np.asarray(mean[:, units], np.float64)
        with one_blas_thread(x.shape[1]):
            products = x.T @ x / len(x)
        products[np.diag_indices(len(products))] += var[:, units].mean(0, dtype=np.float64)
        averages.append(products)
    return averages


class Scales:
    """Matrices that the gradients of one step are multiplied by.

    They follow from means of each layer over rows of data, the `products_of_units`, whether units
    next to layers whose field is a tilt are counted from their means, and the `free_units`.
    """

    def __init__(self, layers, means, products, centred, free):
        self._layers, self._free, self._means = layers, free, means
        self._matrices = [None]
        for k, free in enumerate(self._free[1:], start=1):
            self._matrices.append(self._matrix(k, products[k - 1]) if free.any() else None)
        self._damped = [
            matrix is not None and not (tilt and centred)
            for matrix, tilt in zip(self._matrices, tilts(layers), strict=True)
        ]

    def _matrix(self, k, products):
        """The matrix Q of a layer, (n_units, n_units): of other units the identity."""
        layer, free = self._layers[k], self._free[k]
        mean = np.asarray(self._means[k], np.float64)[free]
        covariance = products - np.outer(mean, mean)
        covariance[np.diag_indices(len(mean))] += 1 / precisions(layer)[free]
        matrix = np.eye(len(free))
        with one_blas_thread(len(mean)):
            matrix[np.ix_(free, free)] = np.linalg.inv(covariance)
        return matrix.astype(layer.moments(0.0, 0.0)[0].dtype)

    def of_couplings(self, k, gradient):
        """The gradient by the couplings k, scaled."""
        below, above = self._matrices[k : k + 2]
        gradient = gradient if below is None else below @ gradient
        gradient = gradient if above is None else gradient @ above
        if self._damped[k + 1]:
            gradient = _without_mean(gradient, self._means[k], self._free[k + 1])
        if self._damped[k]:
            gradient = _without_mean(gradient.T, self._means[k + 1], self._free[k]).T
        return gradient

    def of_fields(self, gradients):
        """Gradients by the units of each layer, those by fields scaled."""

        def with_field(part, field):
            return part._replace(field=field.astype(part.field.dtype))

        scaled = []
        parts = zip(self._layers, gradients, self._matrices, self._free, strict=True)
        for prior, gradient, matrix, free in parts:
            fields = fields_of(gradient)
            if matrix is not None:
                fields[free] = matrix[np.ix_(free, free)] @ fields[free]
            scaled.append(_changed(prior, gradient, with_field, free, fields))
        return tuple(scaled)

    def of_decay(self, l1):
        """The decay `l1` of each matrix of couplings, less as steps are, on average over units."""
        shares = [1.0 if q is None else float(q.diagonal().mean()) for q in self._matrices]
        return [l1 * below * above for below, above in pairwise(shares)]


def _without_mean(gradient, mean, columns):
    """(1 + m m' / s)^-1 times columns of a gradient, for the means m of the units of its rows."""
    mean, factors = mean.astype(gradient.dtype), mean @ gradient / (MEAN_SCALE + mean @ mean)
    return gradient - np.outer(mean, np.where(columns, factors, 0).astype(gradient.dtype))


def _changed(prior, gradient, change, units, values):
    """The gradient with change(part, values of the part) for parts with some of the units."""
    parts = parts_of(gradient), by_parts(prior, units), by_parts(prior, values)
    new = tuple(
        change(part, x) if chosen.any() else part
        for part, (_, chosen), (_, x) in zip(*parts, strict=True)
    )
    return gradient._make((new,)) if is_concatenated(gradient) else new[0]
