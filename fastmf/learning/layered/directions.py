"""Directions of steps: centred gradients, and natural gradients of layers that need them.

With offsets m and l, (v - m)' W (h - l) is v' W h but for fields. In the coordinates of a machine
with such units the gradient by W is

    G = dW - m dh' - dv l'

for gradients dv and dh by the fields, which then move by dv - G l and dh - G' m. Where a layer's
field is no tilt, its neighbours have no offsets (Montavon & Mueller 2012; Melchior, Fischer &
Wiskott 2016).

The Fisher matrix of W is the covariance of the products of units. For layers that are independent
of each other, with covariances C and D, it is their Kronecker product, and the natural gradient is
C^-1 G D^-1 (Amari 1998; Martens & Grosse 2015). Steps follow P G Q, and P g for gradients g by the
fields of a layer; where the gradient vanishes does not change. Two kinds of matrices are used::

    P = (1 + C / s)^-1       of `preconditioning` s, for all layers: steps along directions of a
                             variance c far above s are shorter by s / c;
    Q = (diag(1/p) + C)^-1   for hidden units of free scale, with precisions p.

The scale of hidden units that are real and without bounds is free where all their neighbours are
bounded: with h -> a h, W -> W / a, fields f -> f / a and p -> p / a^2 the machine stays the same.
Their precisions are held. Their variance grows with the number of visible units that agree, and
steps that suit binary units would oscillate. Where neighbours, of means m, are not centred, steps
follow (1 + m m' / s)^-1 G Q: the mean would be the direction of by far the largest curvature.
"""

from itertools import pairwise

import numpy as np
from scipy.linalg import lapack

from fastmf._threads.workers import one_blas_thread
from fastmf.priors._protocol import by_parts, joined, n_units, parts_of
from fastmf.priors._queries import field_is_tilt, fields_of, precisions, unbounded
from fastmf.priors._registry import REGISTRY

# Squared mean of all neighbours, s above, from which steps along it are shorter: of hundreds of
# pixels it is 40, and their largest variance 10.
MEAN_SCALE = 4.0


# --- centred gradients ----------------------------------------------------------------------------


def tilts(layers):
    """Whether the field of each layer is a tilt."""
    return [field_is_tilt(prior) for prior in layers]


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


# --- natural gradients ----------------------------------------------------------------------------


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

    def held(part, units):
        return part._replace(precision=np.where(units, 0, part.precision))

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


def preconditioner(mean, var, scale):
    """Compute (1 + C / scale)^-1, with the covariance C of units from their moments in each row."""
    n, x = mean.shape[1], mean - mean.mean(0, dtype=np.float64)
    within = np.broadcast_to(var, mean.shape).mean(0, dtype=np.float64)
    with one_blas_thread(n):
        precision = x.T @ x / (len(x) * scale)
        precision[np.diag_indices(n)] += 1 + within / scale
        factor, _ = lapack.dpotrf(precision)
        upper, _ = lapack.dpotri(factor)
    upper = np.triu(upper)
    return upper + np.triu(upper, 1).T


class NaturalGradient:
    """Gradients times the matrices of some units of each layer; None for no matrix.

    With `means`, gradients by couplings to layers that are `damped` are shorter along the means of
    their neighbours.
    """

    def __init__(self, layers, matrices, units, means=None, damped=()):
        self._layers, self._matrices, self._units, self._means = layers, matrices, units, means
        self._damped = damped or [False] * len(layers)

    def of_couplings(self, k, gradient):
        """The direction of the couplings k."""
        below, above = self._matrices[k : k + 2]
        gradient = gradient if below is None else below @ gradient
        gradient = gradient if above is None else gradient @ above
        if self._damped[k + 1]:
            gradient = _without_mean(gradient, self._means[k], self._units[k + 1])
        if self._damped[k]:
            gradient = _without_mean(gradient.T, self._means[k + 1], self._units[k]).T
        return gradient

    def of_fields(self, gradients):
        """Gradients by the units of each layer, those by fields multiplied."""

        def with_field(part, field):
            return part._replace(field=field.astype(part.field.dtype))

        directions = []
        parts = zip(self._layers, gradients, self._matrices, self._units, strict=True)
        for prior, gradient, matrix, units in parts:
            fields = fields_of(gradient)
            if matrix is not None:
                fields[units] = matrix[np.ix_(units, units)] @ fields[units]
            directions.append(_changed(prior, gradient, with_field, units, fields))
        return tuple(directions)

    def of_decay(self, l1):
        """The decay `l1` of each matrix of couplings, less as steps are, on average over units."""
        shares = [1.0 if q is None else float(q.diagonal().mean()) for q in self._matrices]
        return [l1 * below * above for below, above in pairwise(shares)]


def natural_of_scales(layers, means, products, free, centred):
    """The `NaturalGradient` of units of free scale, from means and `products_of_units`.

    `centred` says whether units are counted from their means where the field beside is a tilt.
    """
    matrices = [None]
    for layer, mean, product, units in zip(layers[1:], means[1:], products, free[1:], strict=True):
        if not units.any():
            matrices.append(None)
            continue
        mean = np.asarray(mean, np.float64)[units]
        covariance = product - np.outer(mean, mean) + np.diag(1 / precisions(layer)[units])
        matrix = np.eye(len(units))
        with one_blas_thread(len(mean)):
            matrix[np.ix_(units, units)] = np.linalg.inv(covariance)
        matrices.append(matrix.astype(layer.moments(0.0, 0.0)[0].dtype))
    parts = zip(matrices, tilts(layers), strict=True)
    damped = [matrix is not None and not (tilt and centred) for matrix, tilt in parts]
    return NaturalGradient(layers, matrices, free, means, damped)


def _without_mean(gradient, mean, columns):
    """(1 + m m' / s)^-1 times columns of a gradient, for the means m of the units of its rows."""
    mean, factors = mean.astype(gradient.dtype), mean @ gradient / (MEAN_SCALE + mean @ mean)
    return gradient - np.outer(mean, np.where(columns, factors, 0).astype(gradient.dtype))


def _changed(prior, gradient, change, units, values):
    """The gradient with change(part, values of the part) for parts with some of the units."""
    parts = parts_of(gradient), by_parts(prior, units), by_parts(prior, values)
    new = [
        change(part, x) if chosen.any() else part
        for part, (_, chosen), (_, x) in zip(*parts, strict=True)
    ]
    return joined(gradient, new)
