"""Gradients of the log-likelihood of a layered machine by its couplings and its priors.

With L(x) = log sum_h exp(-energy(x, h)), the log-likelihood of a row is L(x) - log Z. Its gradient
is the difference of two averages, over the data and over the model:

    d/dW    <x h'>, with h the means of the hidden units given x
          - <m_v m_h' + W (v_v v_h')>
    d/dprior    <d log prior(x)> or <d log-partition(b, a)>, less the same over the model

with means m and variances v of the solutions; the term in W is of second order (Tramel et al. 2018,
Eqs. 40-42). At a mean-field solution the approximate log Z is stationary in m and v, so that these
are its derivatives. Gibbs samples of the visible units are averaged like data; in deep machines
they are of all even layers, given which the odd ones are independent.
"""

from contextlib import nullcontext
from functools import reduce
from itertools import pairwise, starmap
from typing import NamedTuple

import numpy as np

from fastmf._common.memory import Scratch
from fastmf._common.rows import column_sums, is_sparse
from fastmf._threads.workers import SHARED_WORK, one_blas_thread
from fastmf.inference.ep.adaptive_tap import mean_covariance
from fastmf.inference.ep.expectation_propagation import ExpectationPropagation
from fastmf.inference.mean_field.free_energy import second_moments
from fastmf.inference.mean_field.gaussian_layers import averages
from fastmf.inference.mean_field.posterior import posterior
from fastmf.kernels.linear.product import fill_panels, panel_width
from fastmf.kernels.training.ascent import Pairs
from fastmf.learning.layered.directions import free_units, products_of_units
from fastmf.learning.layered.exact_averages import ExactAverages
from fastmf.learning.training.parameters import ModelParameters
from fastmf.models.dbm import machine_of
from fastmf.priors._groups import groups, has_groups
from fastmf.priors._protocol import gradient as prior_gradient
from fastmf.priors._protocol import log_prob_gradient, map_parameters, parameter_names
from fastmf.priors._queries import average_gradient, field_is_tilt
from fastmf.priors._rows import data_fields, mean_log_prob_gradient

ORDER_OF_GRADIENT = {"mean_field": 1, "tap": 2}
# Gradients that are made of fixed points.
MEAN_FIELD = (*ORDER_OF_GRADIENT, "adaptive_tap")


def pairs_of(shape, dtype, first, second=(), added=(), scratch=None, name=0):
    """Averages over rows of products of two layers, times their factors, as `Pairs`.

    Terms are (rows of one layer, rows of the other, factor); products of second order are
    multiplied by the couplings, too. Sparse rows are of first order. Arrays can be added.
    """
    scratch, width = scratch or Scratch(), panel_width(dtype)
    sparse = [term for term in first if is_sparse(term[0])]
    terms = [*second, *(first if not sparse else (t for t in first if not is_sparse(t[0])))]
    n_second, n_rows = sum(len(term[0]) for term in second), sum(len(term[0]) for term in terms)
    lefts = scratch.take(("lefts", name), (n_rows, shape[0]), dtype)
    packed = scratch.take(("rights", name), (-(-shape[1] // width), n_rows, width), dtype)
    if terms:
        np.concatenate([term[0] for term in terms], out=lefts, casting="same_kind")
        rights = scratch.take("rights", (n_rows, shape[1]), dtype)
        start = 0
        for _, right, factor in terms:
            np.multiply(right, factor / len(right), out=rights[start : start + len(right)])
            start += len(right)
        fill_panels(rights, packed)
    total = np.zeros((0, 0), dtype)
    if added or sparse:
        total = scratch.take(("added", name), shape, dtype)
        total[:] = reduce(np.add, added) if added else 0
    for left, right, factor in sparse:
        total += left.T @ (right * dtype.type(factor / left.shape[0]))
    return Pairs(n_second, lefts, packed, total)


def summed(gradient, model):
    """Return a gradient whose derivatives by couplings are `Pairs`, or arrays, with arrays."""
    couplings = list(gradient.couplings)
    for k, (w, pairs) in enumerate(zip(model.couplings, couplings, strict=True)):
        if isinstance(pairs, Pairs):
            n, lefts, rights, total = pairs
            rights = rights.swapaxes(0, 1).reshape(len(lefts), -1)[:, : w.shape[1]]
            with one_blas_thread():
                couplings[k] = lefts[n:].T @ rights[n:] + w * (lefts[:n].T @ rights[:n])
            couplings[k] += total if len(total) else 0
    return ModelParameters(couplings=tuple(couplings), layers=gradient.layers)


def conditional_moments(model, X):
    """Fields, means and variances of the hidden units given the visible ones."""
    weights = model.couplings[0]
    # BLAS takes one thread for small products.
    with nullcontext() if X.shape[0] * weights.size < SHARED_WORK else one_blas_thread():
        b = data_fields(model.layers[0], X, weights)
    return b, *model.layers[1].moments(b, b.dtype.type(0))


def row_mean(rows):
    """Average over rows, (n_units,); long sums, in which float32 would lose digits, in float64."""
    if is_sparse(rows):
        return column_sums(rows) / rows.shape[0]
    n_rows = len(rows)
    if n_rows <= 100:
        return np.add.reduce(rows) / n_rows
    total = sum(np.add.reduce(rows[k : k + 100]).astype(np.float64) for k in range(0, n_rows, 100))
    return total / n_rows


class Kinds(NamedTuple):
    """Properties of units that decide on the terms of a gradient, constant in a run."""

    # Whether mean-field solvers integrate Gaussian units out, and whether there are groups.
    integrated: bool
    grouped: bool
    # For each layer whether its fields, which are tilts, are all that is learned.
    field_alone: tuple
    # The `free_units` of each layer; empty if there are none.
    free: list
    # The same of the hidden layers of a deep machine; else None.
    above: tuple

    @classmethod
    def of(cls, model):
        """Return the kinds of the units of a machine."""
        layers, free = model.layers, free_units(model.layers)
        field_alone = (field_is_tilt(p) and parameter_names(p) == ("field",) for p in layers)
        free = free if any(map(np.any, free)) else []
        above = None
        if model.deep:
            above = cls.of(machine_of(model.couplings[1:], layers[1:]))
        grouped = any(map(has_groups, layers))
        return cls(model.is_integrated, grouped, tuple(field_alone), free, above)


def _unit_averages(prior, field_alone, mean, derivatives, *arguments):
    """Means of the units of a layer over rows, and of derivatives by their parameters.

    Of a field that is a tilt, and all that is learned, the mean is returned itself.
    """
    averages = row_mean(mean)
    if field_alone:
        return averages, averages
    if is_sparse(mean):
        return averages, mean_log_prob_gradient(prior, mean)
    return averages, map_parameters(row_mean, derivatives(prior, *arguments))


class Averages(NamedTuple):
    """Averages over data, or over a model, whose difference is the gradient."""

    # For each of the couplings a list of pairs of units whose products count, another one of those
    # that are multiplied by the couplings, and arrays to add, or 0.
    first: list
    second: list
    effects: list
    # Derivatives by the parameters, or by the fields if these are all, and means of each layer.
    layers: list
    means: list


def _of_data(model, X, order, n_threads, kinds, hidden, **options):
    """Derivatives of the average over rows of log sum_h exp(-energy(x, h)).

    Also returns means and variances of each hidden layer.
    """
    if not model.deep:
        return _of_rows(model, X, hidden, kinds), [hidden[1:]]
    machine, solutions = posterior(model, X, order=order, n_threads=n_threads, **options)
    above = _of_solutions(machine, solutions, order, kinds.above)
    prior, alone = model.layers[0], kinds.field_alone[0]
    mean, visible = _unit_averages(prior, alone, X, log_prob_gradient, X)
    averages = Averages(
        [[(X, solutions.mean[0])], *above.first],
        [[], *above.second],
        [[], *above.effects],
        [visible, *above.layers],
        [mean, *above.means],
    )
    return averages, list(zip(solutions.mean, solutions.var, strict=True))


def _of_rows(model, even, odd, kinds):
    """Derivatives at states of the even layers, given which the odd ones are independent.

    `odd` has the `conditional_moments`. For an RBM, even layers are the visible units.
    """
    units, averages, starts = [], [], [0, 0]
    layers = zip(model.layers, kinds.field_alone, model.sizes, strict=True)
    for k, (prior, alone, size) in enumerate(layers):
        columns = slice(starts[k % 2], starts[k % 2] + size)
        starts[k % 2] += size
        if k % 2 == 0:
            x = even[:, columns] if model.deep else even
            averages.append(_unit_averages(prior, alone, x, log_prob_gradient, x))
        else:
            b, x, var = (part[:, columns] for part in odd)
            given = b, b.dtype.type(0), x, var
            averages.append(_unit_averages(prior, alone, x, prior_gradient, *given))
        units.append(x)
    pairs = [[pair] for pair in pairwise(units)]
    means, of_priors = zip(*averages, strict=True)
    return Averages(pairs, [[]] * len(pairs), [[]] * len(pairs), of_priors, means)


def _of_solutions(model, solutions, order, kinds):
    """Derivatives of the average log-partition over mean-field solutions."""
    layers = model.layers
    parts = list(zip(solutions.b, solutions.a, solutions.mean, solutions.var, strict=True))
    pairs = [[pair] for pair in pairwise(solutions.mean)]
    of_variances, effects = [[]] * len(pairs), [[] for _ in pairs]
    squares = [None] * len(layers)  # mean squares of the Gaussian units that are integrated out
    if kinds.integrated and not isinstance(solutions, ExpectationPropagation):
        covariances, squares = averages(model, solutions, order)
        bounds = zip(squares, model.bounds, strict=True)
        squares = [x2 if model.gaussian[units].any() else None for x2, units in bounds]
        effects = [[effect] for effect in covariances]
    elif order == 2:
        second = solutions.var
        if kinds.grouped:
            units = [(prior, *part[2:]) for prior, part in zip(layers, parts, strict=True)]
            second = list(starmap(second_moments, units))
            neighbours = zip(model.couplings, units, units[1:], strict=False)
            effects = [[effect] for effect in starmap(group_effects, neighbours)]
        of_variances = [[pair] for pair in pairwise(second)]
    units = []
    for prior, alone, part, square in zip(layers, kinds.field_alone, parts, squares, strict=True):
        if square is not None:
            mean = row_mean(part[2])
            moments = np.array([mean, square, np.ones(len(mean))])
            units.append((mean, average_gradient(prior, moments)))
        else:
            units.append(_unit_averages(prior, alone, part[2], prior_gradient, *part))
    means, of_priors = zip(*units, strict=True)
    return Averages(pairs, of_variances, effects, of_priors, means)


def _covariance_times(mean, var, groups_, x):
    """C x with the covariance C of a layer: v x, and in a group m (x - m.x)."""
    out = var * x
    for group in groups_:
        m, y = mean[:, group], x[:, group]
        out[:, group] = m * (y - np.einsum("ij,ij->i", m, y)[:, None])
    return out


def group_effects(weights, below, above):
    """Terms of groups of states in the gradient of the log-partition by the couplings.

    With C the covariances of independent groups and units, the terms of second order have the
    gradient C_v W C_h, whose diagonals W (v_v v_h') holds, v + m^2 = m in the place of v in a
    group. The remaining terms are products with the fields s = W' m of single groups,
    - m_i (C s_i)' on the rows of group i, and - (m r_k) m_k' with r_k = W m_k on the columns of
    group k above, with v r in the place of m r for units below that are no groups.
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


def gradient_of(
    model, X, of_model, order=2, n_threads=None, hidden=None, kinds=None, scratch=None, **options
):
    """Gradient of the log-likelihood, as solutions, samples or exact averages see the model.

    Derivatives by couplings are `Pairs`. Also returns the means of each layer over the data, and
    the `products_of_units` whose scale is free. The `conditional_moments` of the hidden units of an
    RBM, and the `Kinds`, can be given.

    Notes
    -----
    Tramel et al. (2018), Eqs. 40-42 (with l for the dummy index inside the first terms) and
    126-129. Adaptive TAP has the covariance of the Gaussian side, a a + C2, in the place of
    a a + W c c.
    """
    kinds = Kinds.of(model) if kinds is None else kinds
    adaptive = isinstance(of_model, ExpectationPropagation)
    if hidden is None and not model.deep:
        hidden = conditional_moments(model, X)
    if isinstance(of_model, ExactAverages):
        less = Averages([[]], [[]], [of_model.pairwise], of_model.layers, [])
    elif isinstance(of_model, np.ndarray):
        given = conditional_moments(model.bipartite(), of_model)
        less = _of_rows(model, of_model, given, kinds)
    else:
        less = _of_solutions(model, of_model, 1 if adaptive else order, kinds)
        if adaptive:
            less.effects[0].append(mean_covariance(model, of_model))
    data, moments = _of_data(model, X, order, n_threads, kinds, hidden, **options)
    couplings = []
    for k, w in enumerate(model.couplings):
        terms = [
            [*((*pair, 1) for pair in plus), *((*pair, -1) for pair in minus)]
            for plus, minus in ((data.first[k], less.first[k]), (data.second[k], less.second[k]))
        ]
        added = [*data.effects[k], *(-effect for effect in less.effects[k])]
        pairs = pairs_of(w.shape, w.dtype, *terms, added, scratch, k)
        couplings.append(pairs)
    layers = []
    for prior, of_data, of_units in zip(model.layers, data.layers, less.layers, strict=True):
        if isinstance(of_data, np.ndarray):
            field = of_units if isinstance(of_units, np.ndarray) else of_units.field
            layers.append(prior._replace(field=of_data - field))
        else:
            layers.append(map_parameters(np.subtract, of_data, of_units))
    products = products_of_units(kinds.free, moments) if kinds.free else []
    return ModelParameters(couplings=tuple(couplings), layers=tuple(layers)), data.means, products


def gradient(model, X, of_model, order=2, n_threads=None, **options):
    """The gradient and moments of `gradient_of`, with sums of the `Pairs`."""
    terms, *moments = gradient_of(model, X, of_model, order, n_threads, **options)
    return summed(terms, model), *moments
