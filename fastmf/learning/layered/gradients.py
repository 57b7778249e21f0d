"""Gradients of the log-likelihood of a layered machine by its couplings and its priors.

With L(x) = log sum_h exp(-energy(x, h)), the log-likelihood of a row is L(x) - log Z. Its gradient
is the difference of two averages, over the data and over the model::

    d/dW    <x h'>, with h the means of the hidden units given x
          - <m_v m_h' + W (v_v v_h')>
    d/dprior    <d log prior(x)> or <d log-partition(b, a)> over the data, minus the model's

with means m and variances v of the solutions; the term in W is of second order (Tramel et al. 2018,
Eqs. 40-42). At a mean-field solution the approximate log Z is stationary in m and v, so that these
are its derivatives. Gibbs samples of the visible units are averaged like data; in deep machines
samples are states of all even layers, given which the odd layers are independent.

*Directions of steps* are centred gradients, and for some layers natural gradients. Up to fields,
(v - m)' W (h - l) with offsets m and l equals v' W h. In the coordinates of a machine with units
centred in this way, the gradient by W is

    G = dW - m dh' - dv l'

for gradients dv and dh by the fields, which then move by dv - G l and dh - G' m. If the field of a
layer is not a tilt, its neighbours have no offsets (Montavon & Mueller 2012; Melchior, Fischer &
Wiskott 2016).

The Fisher matrix of W is the covariance of the products of units. For layers that are independent
of each other, with covariances C and D, it is their Kronecker product, and the natural gradient is
C^-1 G D^-1 (Amari 1998; Martens & Grosse 2015). Steps are P G Q, and P g for gradients g by the
fields of a layer, which leaves stationary points unchanged. There are two kinds of matrices::

    P = (1 + C / s)^-1       for `preconditioning` s, in all layers: steps along directions with a
                             variance c far above s are shortened by s / c;
    Q = (diag(1/p) + C)^-1   for hidden units of free scale, with precisions p.

Unbounded real hidden units have a free scale if all their neighbours are bounded: h -> a h,
W -> W / a, fields f -> f / a and p -> p / a^2 leave the distribution of the neighbours unchanged.
Their precisions are kept fixed. Their variance grows with the number of correlated visible units,
and steps that suit binary units would oscillate. If the neighbours, with means m, are not centred,
steps are (1 + m m' / s)^-1 G Q, because the mean is the direction of by far the largest curvature.
"""

from itertools import pairwise, starmap
from typing import NamedTuple

import numpy as np
from scipy.linalg import lapack

from fastmf._common.rows import column_sums, is_sparse
from fastmf._threads.workers import in_row_blocks, matrix_product, one_blas_thread
from fastmf.inference.ep.adaptive_tap import mean_covariance
from fastmf.inference.ep.expectation_propagation import ExpectationPropagation
from fastmf.inference.mean_field._layouts import layout_of
from fastmf.inference.mean_field.gaussian_layers import averages
from fastmf.inference.mean_field.likelihood import posterior
from fastmf.inference.mean_field.solutions import second_moments
from fastmf.inference.mean_field.tap import given_memory, moments_given, moments_in
from fastmf.kernels.training.ascent import Pairs
from fastmf.learning.layered.exact_averages import ExactAverages
from fastmf.learning.training.ascent import ModelParameters, added
from fastmf.models.layered import machine_of, places_on_sides
from fastmf.priors._groups import groups, has_groups
from fastmf.priors._protocol import (
    by_parts,
    joined,
    log_prob_gradient,
    map_parameters,
    n_units,
    parameter_names,
    parts_of,
)
from fastmf.priors._protocol import gradient as prior_gradient
from fastmf.priors._queries import average_gradient, field_is_tilt, fields_of, precisions, unbounded
from fastmf.priors._registry import REGISTRY
from fastmf.priors._values import mean_log_prob_gradient

# Squared norm s of the neighbours' means above which steps along these are shortened: for hundreds
# of pixels it is 40, and the largest variance is 10.
MEAN_SCALE = 4.0


# --- centred gradients ----------------------------------------------------------------------------


def offsets(sides, tilted):
    """Return offsets, and derivatives by fields, of the units on both sides of each coupling.

    `sides` has these of each layer, (2, n_units). Neighbours of layers whose fields are not
    `tilted` have no offsets, and the derivatives of such layers are 0.
    """
    if all(tilted):
        return list(pairwise(sides))
    masks = np.array(tilted, sides[0].dtype)[:, None]
    return [
        (below * masks[[k + 1, k]], above * masks[[k, k + 1]])
        for k, (below, above) in enumerate(pairwise(sides))
    ]


# --- natural gradients ----------------------------------------------------------------------------


def free_units(layers):
    """Return masks of the units of each layer whose scale is free."""
    without_bounds = [unbounded(layer) for layer in layers]
    free = [np.zeros(n_units(layers[0]), bool)]
    for k, layer in enumerate(layers[1:], start=1):
        registered = [np.full(n_units(p), type(p) in REGISTRY.values()) for p in parts_of(layer)]
        beside = any(units.any() for units in without_bounds[k - 1 : k + 2 : 2])
        free.append(without_bounds[k] & np.concatenate(registered) & (not beside))
    return free


def with_held_precisions(layers, gradients, free):
    """Set gradients by the precisions of units with free scale to 0."""

    def held(part, units):
        return part._replace(precision=np.where(units, 0, part.precision))

    parts = zip(layers, gradients, free, strict=True)
    return tuple(_changed(*part[:2], held, part[2], part[2]) for part in parts)


def products_of_units(free, moments):
    """Return the mean products of the units with free scale of each hidden layer, or None."""
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
    """Compute (1 + C / scale)^-1 for the covariance C of units, given their moments by row."""
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
    """Multiplies gradients by a matrix for some units of each layer; None for no matrix.

    With `means`, gradients by couplings to layers that are `damped` are shortened along the means
    of their neighbours.
    """

    def __init__(self, layers, matrices, units, means=None, damped=()):
        self._layers, self._matrices, self._units, self._means = layers, matrices, units, means
        self._damped = damped or [False] * len(layers)

    def of_couplings(self, k, gradient, n_threads=None):
        """Return the natural gradient by the couplings k."""
        below, above = self._matrices[k : k + 2]
        gradient = gradient if below is None else matrix_product(below, gradient, n_threads)
        gradient = gradient if above is None else matrix_product(gradient, above, n_threads)
        if self._damped[k + 1]:
            gradient = _without_mean(gradient, self._means[k], self._units[k + 1])
        if self._damped[k]:
            gradient = _without_mean(gradient.T, self._means[k + 1], self._units[k]).T
        return gradient

    def of_fields(self, gradients):
        """Return gradients by the units of each layer, with natural gradients by fields."""

        def with_field(part, field):
            return part._replace(field=field.astype(part.field.dtype))

        directions = []
        parts = zip(self._layers, gradients, self._matrices, self._units, strict=True)
        for prior, gradient, matrix, units in parts:
            fields = fields_of(gradient)
            if matrix is not None:
                chosen = np.where(units, fields, 0).astype(matrix.dtype)
                fields[units] = (matrix @ chosen)[units]  # `fields` is a copy
            directions.append(_changed(prior, gradient, with_field, units, fields))
        return tuple(directions)

    def of_decay(self, l1):
        """Return the decay `l1` of each matrix of couplings, scaled like steps on average."""
        shares = [1.0 if q is None else float(q.diagonal().mean()) for q in self._matrices]
        return [l1 * below * above for below, above in pairwise(shares)]


def natural_of_scales(layers, means, products, free, centred):
    """Return the `NaturalGradient` of units of free scale, given means and `products_of_units`.

    `centred` is whether units are centred next to layers whose fields are tilts.
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
    parts = zip(matrices, map(field_is_tilt, layers), strict=True)
    damped = [matrix is not None and not (tilt and centred) for matrix, tilt in parts]
    return NaturalGradient(layers, matrices, free, means, damped)


def _without_mean(gradient, mean, columns):
    """Multiply columns of a gradient by (1 + m m' / s)^-1, with the means m of its rows' units."""
    mean, factors = mean.astype(gradient.dtype), mean @ gradient / (MEAN_SCALE + mean @ mean)
    return gradient - np.outer(mean, np.where(columns, factors, 0).astype(gradient.dtype))


def _changed(prior, gradient, change, units, values):
    """Replace parts of a gradient that have any of the units by change(part, values)."""
    parts = parts_of(gradient), by_parts(prior, units), by_parts(prior, values)
    new = [
        change(part, x) if chosen.any() else part
        for part, (_, chosen), (_, x) in zip(*parts, strict=True)
    ]
    return joined(gradient, new)


# --- gradients ------------------------------------------------------------------------------------

ORDER_OF_GRADIENT = {"mean_field": 1, "tap": 2}
# Gradients computed from fixed points.
MEAN_FIELD = (*ORDER_OF_GRADIENT, "adaptive_tap")


def matrix_of(gradient, weights, sides=None, decay=(0.0, 0.0), n_threads=None):
    """Compute the gradient by couplings from `Pairs` or an array, minus the `decay` (l2, l1).

    With `sides`, a pair of `offsets`, it is the centred gradient G.
    """
    pairs = gradient if isinstance(gradient, Pairs) else added(weights, gradient)
    n_left, n_right = weights.shape
    of_kinds = zip(pairs.lefts, pairs.rights, pairs.columns, strict=True)
    kinds = [(len(x), x.T[:n_left], y[:, k : k + n_right]) for x, y, k in of_kinds]
    below, above = sides or [np.zeros((2, size), weights.dtype) for size in weights.shape]
    (l2, l1), out = decay, np.zeros_like(weights)

    def fill(rows):
        g, w = out[rows], weights[rows]
        for k, (n, x, y) in enumerate(kinds):
            if n:
                product = x[rows] @ y / weights.dtype.type(n if k % 2 else -n)
                g += w * product if k < 2 else product
        if len(pairs.added):
            g += pairs.added[rows]
        g -= l2 * w + below[:, rows].T @ above[::-1]
        if l1:
            g -= l1 * np.sign(w)

    n_products = n_right * sum(n for n, _, _ in kinds)
    in_row_blocks(fill, len(weights), n_products, n_threads)
    return out


def summed(gradient, model, n_threads=None):
    """Return a gradient with derivatives by couplings as arrays, given `Pairs` or arrays."""
    pairs = zip(gradient.couplings, model.couplings, strict=True)
    couplings = tuple(matrix_of(*pair, n_threads=n_threads) for pair in pairs)
    return ModelParameters(couplings=couplings, layers=gradient.layers)


def row_mean(rows):
    """Average over rows, (n_units,); long sums are in float64, as float32 would lose digits."""
    if is_sparse(rows):
        return column_sums(rows) / rows.shape[0]
    n_rows, flat = len(rows), rows.reshape(len(rows), -1)
    weights = np.full(min(n_rows, 100), 1 / n_rows, rows.dtype)
    if n_rows <= 100:
        return (weights @ flat).reshape(rows.shape[1:])
    blocks = (flat[k : k + 100] for k in range(0, n_rows, 100))
    return sum((weights[: len(x)] @ x).astype(np.float64) for x in blocks).reshape(rows.shape[1:])


class GradientRows(NamedTuple):
    """Rows of data, or of the model, whose averages are one term of the gradient."""

    # For each layer, states or means, and second moments, whose products are multiplied by the
    # couplings: (n_rows, n_units). The latter are empty, or None, for data.
    units: list
    second: list
    # By layer, averages of derivatives by its parameters, if more than its field is learned.
    derivatives: dict
    # For each matrix of couplings, a list of arrays to add.
    effects: list


def _averages(prior, x, derivatives, *arguments):
    """Average derivatives by the parameters of a layer over rows."""
    if is_sparse(x):
        return mean_log_prob_gradient(prior, x)
    return map_parameters(row_mean, derivatives(prior, *arguments))


def _covariance_times(mean, var, groups_, x):
    """Compute C x for the covariance C of a layer: v x, and m (x - m.x) in a group."""
    out = var * x
    for group in groups_:
        m, y = mean[:, group], x[:, group]
        out[:, group] = m * (y - np.einsum("ij,ij->i", m, y)[:, None])
    return out


def group_effects(weights, below, above):
    """Compute the terms of groups of states in the gradient of the log-partition by couplings.

    The second-order terms have the gradient C_v W C_h, with the covariances C of independent groups
    and units. Its diagonals are in W (v_v v_h'), with v + m^2 = m in place of v in a group. The
    remaining terms are products with the fields s = W' m of single groups: - m_i (C s_i)' on the
    rows of group i, and - (m r_k) m_k' with r_k = W m_k on the columns of group k above, with v r
    in place of m r for units below that are not groups.
    """
    total, mean, groups_above = np.zeros(weights.shape, weights.dtype), below[1], groups(above[0])
    for group in groups(below[0]):
        s = mean[:, group] @ weights[group]
        response = _covariance_times(*above[1:], groups_above, s)
        total[group] -= mean[:, group].T @ response / len(mean)
    second = second_moments(*below)
    for group in groups_above:
        m = above[1][:, group]
        r = m @ weights[:, group].T
        total[:, group] -= (second * r).T @ m / len(m)
    return total


class Gradients:
    """Gradients of the log-likelihood of machines with the same kinds of units as a given machine.

    Properties of the units, which determine the terms of a gradient, and memory are computed once
    for all steps. `options` are for mean-field solutions given data in deep machines.
    """

    def __init__(self, model, order=2, n_threads=None, **options):
        layers, free = model.layers, free_units(model.layers)
        self.order, self.n_threads = order, n_threads
        self.options = {"order": order, "n_threads": n_threads, **options}
        # Whether mean-field solvers integrate out Gaussian units, and whether there are groups.
        self.integrated, self.grouped = model.is_integrated, any(map(has_groups, layers))
        # For each layer, whether only its fields, which are tilts, are learned.
        self.field_alone = [field_is_tilt(p) and parameter_names(p) == ("field",) for p in layers]
        # The `free_units` of each layer; empty if there are none.
        self.free = free if any(map(np.any, free)) else []
        # Gradients for the hidden layers of a deep machine.
        if model.deep:
            self.above = Gradients(machine_of(model.couplings[1:], layers[1:]), order)
        # For each layer, means over the data, and derivatives by fields if only these are learned.
        self.sums = [np.zeros((2, n), model.dtype) for n in model.sizes]
        parts = zip(layers, self.field_alone, self.sums, strict=True)
        self._layers = [p._replace(field=x[1]) if alone else None for p, alone, x in parts]
        # Layers with further learned parameters; places of even and odd layers in their rows.
        self._others = [k for k, alone in enumerate(self.field_alone) if not alone]
        self._columns = places_on_sides(model.sizes)
        self._none = [added(w, np.zeros((0, 0))) for w in model.couplings]
        # See `_rows`, by their numbers.
        self._memory = {}

    def __call__(self, model, X, of_model, given=None):
        """Compute the gradient of the log-likelihood.

        `of_model` has solutions, samples or exact averages of the model, `given` the moments given
        X. Return the gradient, with `Pairs` for couplings, for each layer means over the data and
        derivatives by fields, (2, n_units), and the `products_of_units` with free scale. The
        next call overwrites them.

        Notes
        -----
        Tramel et al. (2018), Eqs. 40-42 (with l for the dummy index inside the first terms) and
        126-129. Adaptive TAP has the covariance of the Gaussian side, a a + C2, in the place of
        a a + W c c.
        """
        adaptive = isinstance(of_model, ExpectationPropagation)
        if isinstance(of_model, ExactAverages):
            model_rows = GradientRows([], [], dict(enumerate(of_model.layers)), [of_model.pairwise])
        elif isinstance(of_model, np.ndarray):
            odd = moments_given(model.bipartite(), of_model, self.order, self.n_threads)
            model_rows = self._of_states(model, of_model, odd)
        else:
            model_rows = self._of_solutions(model, of_model, 1 if adaptive else self.order)
            if adaptive:
                model_rows.effects[0].append(mean_covariance(model, of_model))
        data, moments = self._of_data(model, X, given)
        self._set_sums(data, model_rows)
        couplings = self._pairs(model, data, model_rows)
        for k in self._others:
            parts = data.derivatives[k], model_rows.derivatives[k]
            self._layers[k] = map_parameters(np.subtract, *parts)
        slope = ModelParameters(couplings=couplings, layers=tuple(self._layers))
        return slope, self.sums, products_of_units(self.free, moments) if self.free else []

    def _of_data(self, model, X, given):
        """Return rows of log sum_h exp(-energy(x, h)), and the moments of each hidden layer."""
        if not model.deep:
            if given is None:
                given = moments_given(model, X, self.order, self.n_threads)
            return self._of_states(model, X, given), [given[1:]]
        machine, solutions = posterior(model, X, **self.options)
        above = self.above._of_solutions(machine, solutions, self.order)
        second = [None, *above.second] if above.second else []
        derivatives = {k + 1: part for k, part in above.derivatives.items()}
        if not self.field_alone[0]:
            derivatives[0] = _averages(model.layers[0], X, log_prob_gradient, X)
        rows = GradientRows([X, *solutions.mean], second, derivatives, [[], *above.effects])
        return rows, list(zip(solutions.mean, solutions.var, strict=True))

    def _of_states(self, model, even, odd):
        """Return rows of states of the even layers, given which odd layers are independent.

        `odd` has the `moments_given` rows. The even layer of an RBM is the visible one.
        """
        sides = even, odd[1]
        units = [sides[k % 2][:, c] for k, c in enumerate(self._columns)] if model.deep else sides
        derivatives = {}
        for k in self._others:
            prior, arguments = model.layers[k], (units[k],)
            if k % 2 == 1:
                b, x, var = (part[:, self._columns[k]] for part in odd)
                arguments = b, b.dtype.type(0), x, var
            function = prior_gradient if k % 2 == 1 else log_prob_gradient
            derivatives[k] = _averages(prior, units[k], function, *arguments)
        return GradientRows(units, [], derivatives, [[] for _ in model.couplings])

    def _of_solutions(self, model, solutions, order):
        """Return rows of mean-field solutions, for the derivatives of their log-partitions."""
        second, effects, squares = [], [[] for _ in model.couplings], {}
        if self.integrated and not isinstance(solutions, ExpectationPropagation):
            responses, squares = averages(model, solutions, order)
            squares = {k: squares[k] for k in self._others if model.gaussian[model.bounds[k]].any()}
            effects = [[effect] for effect in responses]
        elif order == 2:
            second = solutions.var
            if self.grouped:
                units = list(zip(model.layers, solutions.mean, solutions.var, strict=True))
                second = list(starmap(second_moments, units))
                neighbours = zip(model.couplings, units, units[1:], strict=False)
                effects = [[effect] for effect in starmap(group_effects, neighbours)]
        derivatives = {}
        for k in self._others:
            prior, x = model.layers[k], solutions.mean[k]
            if k in squares:
                mean = row_mean(x)
                moments = np.array([mean, squares[k], np.ones(len(mean))])
                derivatives[k] = average_gradient(prior, moments)
            else:
                arguments = solutions.b[k], solutions.a[k], x, solutions.var[k]
                derivatives[k] = _averages(prior, x, prior_gradient, *arguments)
        return GradientRows(solutions.mean, second, derivatives, effects)

    def _pairs(self, model, data, model_rows):
        """Return gradients by couplings as products of rows, and added arrays."""
        kinds, dtype = (model_rows.second, data.second, model_rows.units, data.units), model.dtype
        if is_sparse(X := data.units[0]):
            data.effects[0].append(X.T @ (data.units[1] * dtype.type(1 / X.shape[0])))
        couplings = []
        for k, none in enumerate(self._none):
            lefts, rights = list(none.lefts), list(none.rights)
            for kind, rows in enumerate(kinds):
                if len(rows) and rows[k] is not None and not is_sparse(rows[k]):
                    lefts[kind] = np.ascontiguousarray(rows[k], dtype)
                    rights[kind] = np.ascontiguousarray(rows[k + 1], dtype)
            effects = [*data.effects[k], *(-effect for effect in model_rows.effects[k])]
            total = np.ascontiguousarray(sum(effects), dtype) if effects else none.added
            couplings.append(Pairs(tuple(lefts), tuple(rights), none.columns, total))
        return tuple(couplings)

    def _set_sums(self, data, model_rows):
        """Set means over the data, and derivatives by fields: their differences to the model's."""
        for k, sums in enumerate(self.sums):
            sums[:] = row_mean(data.units[k])
            if model_rows.units:
                sums[1] -= row_mean(model_rows.units[k])
            elif self.field_alone[k]:
                sums[1] -= model_rows.derivatives[k].field

    def given(self, model, X):
        """Return the `moments_given` dense rows of an RBM, which the next call overwrites."""
        layout = layout_of(model, self.order, "blocked")
        return moments_in(self._rows(layout, 0, len(X))[1], layout, X)

    def pairs(self, model, X, of_model, given):
        """Return the gradient by the couplings of an RBM, whose kernel sets gradients by fields.

        Rows are dense, and the next call overwrites them.
        """
        none = self._none[0]
        if isinstance(of_model, np.ndarray):
            layout = layout_of(model, self.order, "blocked")
            visible, memory, pairs = self._rows(layout, len(of_model), len(X))
            np.concatenate([of_model, X], out=visible)
            moments_in(memory, layout, visible)
            return pairs
        joined = vars(of_model).get("joined")  # by `SweepsFromData`
        moments = map(np.hstack, (of_model.mean, of_model.var)) if joined is None else joined[:2]
        mean, var = moments
        lefts = var if self.order == 2 else none.lefts[0], none.lefts[1], mean, X
        rights = var if self.order == 2 else none.rights[0], none.rights[1], mean, given[1]
        return Pairs(lefts, rights, (X.shape[1], 0) * 2, none.added)

    def _rows(self, layout, n_model, n):
        """Return rows of model and data, memory for the moments given these, and `Pairs`."""
        if (n_model, n) not in self._memory:
            none, memory = self._none[0], given_memory(layout, n_model + n, self.n_threads)
            visible = np.empty((n_model + n, none.lefts[0].shape[1]), none.added.dtype)
            sides = zip((none.lefts, none.rights), (visible, memory[0][1]), strict=True)
            lefts, rights = ((*empty[:2], x[:n_model], x[n_model:]) for empty, x in sides)
            pairs = none._replace(lefts=lefts, rights=rights)
            self._memory[n_model, n] = visible, memory, pairs
        return self._memory[n_model, n]
