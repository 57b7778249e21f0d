"""Gradients of the log-likelihood of a layered machine by its couplings and its priors.

With L(x) = log sum_h exp(-energy(x, h)), the log-likelihood of a row is L(x) - log Z. Its gradient
is the difference of two averages, over the data and over the model:

    d/dW    <x h'>, with h the means of the hidden units given x
          - <m_v m_h' + W (v_v v_h') + W^2 (k_v k_h') / 2>
    d/dprior    <d log prior(x)> or <d log-partition(b, a)>, less the same over the model

with means m, variances v and third cumulants k of the solutions. The terms in W are those of second
and third order (Tramel et al. 2018, Eqs. 40-42; Gabrie et al. 2015). At a mean-field solution the
approximate log Z is stationary in m and v, so that these are its derivatives. Over Gibbs samples of
the visible units averages are taken as over data; in deep machines the samples are of all even
layers, given which the odd ones are independent.
"""

from itertools import pairwise

import numpy as np

from fastmf._common.rows import column_sums, is_sparse
from fastmf._threads.workers import in_parallel, workers_for
from fastmf.inference.ep.adaptive_tap import mean_covariance
from fastmf.inference.ep.expectation_propagation import ExpectationPropagation
from fastmf.inference.mean_field._layouts import layout_of
from fastmf.inference.mean_field.data import add_pair_average, data_fields
from fastmf.inference.mean_field.free_energy import second_moments
from fastmf.inference.mean_field.gaussian_layers import averages
from fastmf.inference.mean_field.posterior import posterior
from fastmf.kernels.linear.product import empty_panels, fill_panels, product_address
from fastmf.kernels.training import statistics
from fastmf.learning.layered.exact_averages import ExactAverages
from fastmf.learning.layered.group_gradients import group_effects
from fastmf.learning.training.hidden_scales import products_of_units
from fastmf.learning.training.parameters import ModelParameters
from fastmf.models._layered import is_integrated
from fastmf.priors._compiled import AddressTable
from fastmf.priors._groups import has_groups
from fastmf.priors._protocol import gradient as prior_gradient
from fastmf.priors._protocol import log_prob_gradient, map_parameters
from fastmf.priors._queries import average_gradient, gaussian_units
from fastmf.priors._rows import mean_log_prob_gradient

ORDER_OF_GRADIENT = {"mean_field": 1, "tap": 2, "tap3": 3}
# Gradients that are made of fixed points.
MEAN_FIELD = (*ORDER_OF_GRADIENT, "adaptive_tap")


def pair_averages(weights, terms, n_threads=None):
    """Sum of products of two layers, averaged over rows and weighted."""
    (n_visible, n_hidden), dtype = weights.shape, weights.dtype
    sparse = [term for term in terms if is_sparse(term[0])]
    terms = [term for term in terms if not is_sparse(term[0])]
    if not terms:
        none = np.zeros(1, dtype)
        terms = [(none[:, None].repeat(n_visible, 1), none[:, None].repeat(n_hidden, 1), 1, 0)]
    terms = sorted(terms, key=lambda term: -term[3])
    lefts = [np.asarray(visible, dtype) for visible, *_ in terms]
    lefts = [x if x.strides[1] == x.itemsize else np.ascontiguousarray(x) for x in lefts]
    ends = np.cumsum([len(x) for x in lefts])
    rights = empty_panels(ends[-1], n_hidden, dtype)
    for end, (visible, hidden, scale, _) in zip(ends, terms, strict=True):
        here = rights[:, end - len(visible) : end]
        fill_panels(hidden, here)
        here *= dtype.type(scale / len(visible))
    table = [
        [x.ctypes.data, len(x), x.strides[0] // x.itemsize, power]
        for x, (*_, power) in zip(lefts, terms, strict=True)
    ]
    out = np.empty_like(weights)
    n_workers = workers_for(
        n_visible // statistics.TASK_ROWS + 1, ends[-1] * weights.size, n_threads
    )
    arguments = product_address(dtype), AddressTable(table, lefts), rights, weights
    work = statistics.work_of(rights, n_workers)
    in_parallel(statistics.pair_averages, (*arguments, work, out), n_workers)
    for visible, hidden, scale, _ in sparse:
        add_pair_average(visible, scale * hidden, out, n_threads)
    return out


def conditional_moments(model, X, order=2, n_threads=None):
    """Fields, means and variances of the hidden units given the visible ones."""
    weights = model.couplings[0]
    if is_sparse(X):
        b = data_fields(model.layers[0], X, weights, n_threads)
        return b, *model.layers[1].moments(b, b.dtype.type(0))
    # The couplings of groups are not packed for order 3.
    if has_groups(model.layers[1]) or (order == 3 and has_groups(model.layers[0])):
        b = X @ weights
        return b, *model.layers[1].moments(b, b.dtype.type(0))
    b, mean, var = np.empty((3, len(X), weights.shape[1]), model.dtype)
    n_workers = workers_for(len(X) // statistics.TASK_ROWS + 1, len(X) * weights.size, n_threads)
    layers = layout_of(model, order, "blocked").layers
    couplings, address = layers.of_model[1].couplings, product_address(model.dtype)
    work = statistics.work_of(couplings, n_workers)
    arguments = layers.units[1], address, couplings, X, work, b, mean, var
    in_parallel(statistics.conditional_moments, arguments, n_workers)
    return b, mean, var


def row_mean(rows):
    """Average over rows, (n_units,), in float64: long sums of float32 would lose digits."""
    if is_sparse(rows):
        return column_sums(rows) / rows.shape[0]
    total = np.float64(0)
    # Short ones lose none that count, and take a quarter of the time.
    for first in range(0, len(rows), 100):
        total = total + np.add.reduce(rows[first : first + 100])
    return total / len(rows)


def _row_mean(prior):
    return map_parameters(row_mean, prior)


def _of_data(model, X, order, n_threads, hidden=None, **options):
    """Derivatives of the average over rows of log sum_h exp(-energy(x, h)).

    Returns for each of the couplings the terms of `pair_averages` and the `group_effects`, the
    derivatives by the prior of each layer, and means and variances of each hidden layer.
    """
    if is_sparse(X):
        visible = mean_log_prob_gradient(model.layers[0], X)
    else:
        visible = _row_mean(log_prob_gradient(model.layers[0], X))
    if model.deep:
        above = posterior(model, X, order=order, n_threads=n_threads, **options)
        terms, effects, layers = _of_solutions(above.model, above.solutions, order)
        first = [(X, above.solutions.mean[0], 1, 0)]
        moments = list(zip(above.solutions.mean, above.solutions.var, strict=True))
        return [first, *terms], [0, *effects], [visible, *layers], moments
    b, mean, var = conditional_moments(model, X, order, n_threads) if hidden is None else hidden
    above = _row_mean(prior_gradient(model.layers[1], b, b.dtype.type(0), mean, var))
    return [[(X, mean, 1, 0)]], [0], [visible, above], [(mean, var)]


def _of_solutions(model, solutions, order):
    """The same for the average log-partition over mean-field solutions."""
    layers = model.layers
    parts = list(zip(solutions.b, solutions.a, solutions.mean, solutions.var, strict=True))
    if is_integrated(model) and not isinstance(solutions, ExpectationPropagation):
        return _of_integrated(model, solutions, parts, order)
    pairs, effects = [], []
    for k, weights in enumerate(model.couplings):
        below, above = ((layers[i], *parts[i][2:]) for i in (k, k + 1))
        m, m_above = below[1], above[1]
        terms = [(m, m_above, 1, 0)]
        effects.append(group_effects(weights, below, above) if order >= 2 else 0)
        if order >= 2:
            terms += [(second_moments(*below), second_moments(*above), 1, 1)]
        if order == 3:
            third = [prior.third_cumulant(mean)[0] for prior, mean, _ in (below, above)]
            terms += [(*third, 0.5, 2)]
        pairs.append(terms)
    priors = zip(layers, parts, strict=True)
    of_priors = [_row_mean(prior_gradient(prior, *of_layer)) for prior, of_layer in priors]
    return pairs, effects, of_priors


def _of_integrated(model, solutions, parts, order):
    """The same where Gaussian units are integrated out."""
    covariances, squares = averages(model, solutions, order)
    pairs = [[(m, m_above, 1, 0)] for m, m_above in pairwise(solutions.mean)]
    of_priors = []
    for prior, of_layer, square in zip(model.layers, parts, squares, strict=True):
        if gaussian_units(prior).any():
            moments = np.array([row_mean(of_layer[2]), square, np.ones(len(square))])
            of_priors.append(average_gradient(prior, moments))
        else:
            of_priors.append(_row_mean(prior_gradient(prior, *of_layer)))
    return pairs, covariances, of_priors


def _of_samples(model, even, order, n_threads):
    """The same for the even layers of a machine, whose odd layers are independent given these."""
    machine, layers = model.bipartite(), model.layers
    odd = conditional_moments(machine, even, order, n_threads)
    units, of_priors = [], []
    starts = [0, 0]
    for k, (prior, size) in enumerate(zip(layers, model.sizes, strict=True)):
        columns = slice(starts[k % 2], starts[k % 2] + size)
        starts[k % 2] += size
        if k % 2 == 0:
            units.append(even[:, columns])
            of_priors.append(_row_mean(log_prob_gradient(prior, units[k])))
            continue
        b, mean, var = (part[:, columns] for part in odd)
        units.append(mean)
        of_priors.append(_row_mean(prior_gradient(prior, b, b.dtype.type(0), mean, var)))
    pairs = [[(below, above, 1, 0)] for below, above in pairwise(units)]
    return pairs, [0] * len(pairs), of_priors


def gradient(model, X, of_model, order=2, n_threads=None, **options):
    """Gradient of the log-likelihood, as a mean-field approximation or samples see the model.

    Notes
    -----
    Tramel et al. (2018), Eqs. 40-42 (with l for the dummy index inside the first terms) and
    126-129; the third order is that of Gabrie et al. (2015) for binary units, with the third
    cumulants k: <W^2 k_v k_h> / 2. Adaptive TAP has the covariance of the Gaussian side, a a + C2,
    in the place of a a + W c c.
    """
    return gradient_and_moments(model, X, of_model, order, n_threads, **options)[0]


def gradient_and_moments(model, X, of_model, order=2, n_threads=None, hidden=None, **options):
    """`gradient`, means of each layer over the data, and `products_of_units` of free scale.

    The `conditional_moments` of the hidden units of an RBM can be given, if they are known.
    """
    adaptive = isinstance(of_model, ExpectationPropagation)
    if isinstance(of_model, ExactAverages):
        less = [[]], list(of_model.pairwise), list(of_model.layers)
    elif isinstance(of_model, np.ndarray):  # first, with the packed couplings of sampling
        less = _of_samples(model, of_model, order, n_threads)
    else:
        less = _of_solutions(model, of_model, 1 if adaptive else order)
    pairs, effects, layers, moments = _of_data(model, X, order, n_threads, hidden, **options)
    less_pairs, less_effects, less_layers = less
    weights = []
    for w, terms, less in zip(model.couplings, pairs, less_pairs, strict=True):
        less = [(below, above, -scale, power) for below, above, scale, power in less]
        weights.append(pair_averages(w, terms + less, n_threads))
    for w, effect, less_effect in zip(weights, effects, less_effects, strict=True):
        w += effect - less_effect
    if adaptive:
        weights[0] -= mean_covariance(model, of_model)
    both = zip(layers, less_layers, strict=True)
    means = [row_mean(rows) for rows in (X, *(terms[0][1] for terms in pairs))]
    layers = tuple(map_parameters(np.subtract, *pair) for pair in both)
    products = products_of_units(model.layers, moments)
    return ModelParameters(couplings=tuple(weights), layers=layers), means, products
