"""Exact averages over an RBM, by enumeration of one of its layers, or of Gaussian units alone.

Given the states h of one layer, the units x of the other are independent: log Z and all averages
are sums over h alone, with the log-partitions and moments of x under the fields W h.
"""

from typing import NamedTuple

import numpy as np

from fastmf.inference.mean_field.gaussian_layers import averages, collapsed_tap
from fastmf.models.exact import sums_over_side
from fastmf.priors._protocol import gradient as prior_gradient
from fastmf.priors._protocol import learned_fields, log_prob_gradient, map_parameters
from fastmf.priors._queries import average_gradient, gaussian_units, number_of_states
from fastmf.priors._scaling import is_real

# Largest number of states that are enumerated; a quarter takes no longer than mean field.
MAX_SUMMED_STATES = 2**14


class ExactAverages(NamedTuple):
    """Log-partition of a machine, and its derivatives by all parameters."""

    log_partition: float
    # Averages of products of coupled units, of the shapes of the couplings.
    pairwise: tuple
    # Derivatives by the parameters of each layer.
    layers: tuple


def enumerated_layer(model):
    """Which layer of an RBM is enumerated, 0 or 1; None if it is deep or both have many states."""
    if model.deep:
        return None
    counts = [number_of_states(layer) for layer in model.layers]
    return int(np.argmin(counts)) if min(counts) <= MAX_SUMMED_STATES else None


def is_exact(model):
    """Whether `exact_averages` exist: a layer is enumerated, or all units are Gaussian."""
    return _only_gaussian(model) or enumerated_layer(model) is not None


def is_cheaply_exact(model):
    """Whether exact averages cost no more than approximate ones."""
    quick = 4 * min(map(number_of_states, model.layers)) <= MAX_SUMMED_STATES
    return not model.deep and (quick or _only_gaussian(model))


def has_exact_likelihood(model, settings):
    """Whether likelihoods of epochs are by exact averages."""
    real = any(map(is_real, model.layers))
    return settings.gradient == "exact" or (real and is_cheaply_exact(model))


def _only_gaussian(model):
    return not model.deep and all(gaussian_units(layer).all() for layer in model.layers)


def exact_averages(model):
    """Exact averages over a machine."""
    side = enumerated_layer(model)
    if side is None:
        return _of_gaussian_units(model)
    summed, independent = model.layers[side], model.layers[1 - side]

    def summands(w, x, fields):
        zero = fields.dtype.type(0)
        mean, var = independent.moments(fields, zero)
        derivatives = (
            log_prob_gradient(summed, x),
            prior_gradient(independent, fields, zero, mean, var),
        )
        fields = (field for layer in derivatives for field in learned_fields(layer))
        return [x.T @ (w[:, None] * mean), *(weighted_sum(w, field) for field in fields)]

    weights = model.weights.T if side else model.weights
    log_partition, (pairs, *fields) = sums_over_side(summed, independent, weights, summands)
    fields = iter(fields)
    layers = [map_parameters(lambda _: next(fields), layer) for layer in (summed, independent)]
    if side:
        pairs, layers = pairs.T, layers[::-1]
    return ExactAverages(log_partition, (pairs,), tuple(layers))


def weighted_sum(weights, x):
    """Sum over the first axis of numbers by unit, or by unit and score."""
    return (weights @ x.reshape(len(x), -1)).reshape(x.shape[1:])


def _of_gaussian_units(model):
    """Averages over a machine of Gaussian units, which are solved in closed form."""
    solution = collapsed_tap(model, np.zeros((1, model.n_visible), model.dtype))
    covariances, squares = averages(model, solution, 2)
    visible, hidden = (mean[0] for mean in solution.mean)
    layers = [
        average_gradient(layer, np.array([mean, square, np.ones(len(mean))]))
        for layer, mean, square in zip(model.layers, (visible, hidden), squares, strict=True)
    ]
    pairs = np.outer(visible, hidden) + covariances[0]
    return ExactAverages(float(solution.log_partition[0]), (pairs,), tuple(layers))
