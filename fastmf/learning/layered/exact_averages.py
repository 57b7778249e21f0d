"""Exact averages over an RBM, by enumeration of one of its layers, or of Gaussian units alone.

Given the states h of one layer, the units x of the other are independent: log Z and all averages
are sums over h alone, with the log-partitions and moments of x under the fields W h.
"""

from functools import partial
from typing import NamedTuple

import numpy as np

from fastmf.inference.mean_field.gaussian_layers import averages, collapsed_tap
from fastmf.models.exact import states_of
from fastmf.priors._protocol import gradient as prior_gradient
from fastmf.priors._protocol import log_prob_gradient, map_parameters
from fastmf.priors._queries import average_gradient, gaussian_units, number_of_states
from fastmf.priors._scaling import is_real

# Most states that are enumerated, and most that take no longer than mean-field solutions.
MAX_SUMMED_STATES, FEW_STATES = 2**14, 2**12


class ExactAverages(NamedTuple):
    """Log-partition of a machine, and its derivatives by all parameters.

    Parameters
    ----------
    log_partition : float
    pairwise : tuple of arrays
        Averages of products of coupled units, of the shapes of the couplings.
    layers : tuple of unit priors
        Derivatives by the parameters of each layer.
    """

    log_partition: float
    pairwise: tuple
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
    few = min(map(number_of_states, model.layers)) <= FEW_STATES
    return not model.deep and (few or _only_gaussian(model))


def has_exact_likelihood(model, settings):
    """Whether likelihoods of epochs are by exact averages."""
    real = any(map(is_real, model.layers))
    return settings.gradient == "exact" or (real and is_cheaply_exact(model))


def _only_gaussian(model):
    return not model.deep and all(gaussian_units(layer).all() for layer in model.layers)


def exact_averages(model):
    """Exact averages over a machine."""
    if enumerated_layer(model) is None:
        return _of_gaussian_units(model)
    side = enumerated_layer(model)
    summed, other = model.layers[side], model.layers[1 - side]
    weights = model.weights if side == 0 else model.weights.T
    # Relative to the largest weight of a state so far.
    largest, totals = -np.inf, None
    for x in states_of(summed, sum(weights.shape)):
        x = x.astype(model.dtype)
        fields = x @ weights
        zero = fields.dtype.type(0)
        log_weights = summed.log_prob(x).sum(1, dtype=np.float64)
        log_weights += other.log_partition(fields, zero).sum(1, dtype=np.float64)
        new = max(largest, log_weights.max())
        w = np.exp(log_weights - new)
        mean, var = other.moments(fields, zero)
        of_summed, of_other = (
            map_parameters(partial(weighted_sum, w), derivatives)
            for derivatives in (
                log_prob_gradient(summed, x),
                prior_gradient(other, fields, zero, mean, var),
            )
        )
        sums = [np.array(w.sum()), x.T @ (w[:, None] * mean), of_summed, of_other]
        totals = sums if totals is None else _added(totals, sums, np.exp(largest - new))
        largest = new
    total, pairs, *layers = totals
    layers = [map_parameters(lambda rows: rows / total, layer) for layer in layers]
    pairs = (pairs if side == 0 else pairs.T) / total
    log_partition = float(largest + np.log(total))
    return ExactAverages(log_partition, (pairs,), tuple(layers[::-1] if side else layers))


def weighted_sum(weights, x):
    """Sum over the first axis of numbers by unit, or by unit and score."""
    return (weights @ x.reshape(len(x), -1)).reshape(x.shape[1:])


def _of_gaussian_units(model):
    """Averages over a machine of Gaussian units, which are solved in closed form."""
    found = collapsed_tap(model, np.zeros((1, model.n_visible), model.dtype))
    covariances, squares = averages(model, found, 2)
    visible, hidden = (mean[0] for mean in found.mean)
    layers = [
        average_gradient(layer, np.array([mean, square, np.ones(len(mean))]))
        for layer, mean, square in zip(model.layers, (visible, hidden), squares, strict=True)
    ]
    pairs = np.outer(visible, hidden) + covariances[0]
    return ExactAverages(float(found.log_partition[0]), (pairs,), tuple(layers))


def _added(totals, sums, scale):
    """Sums of two chunks of states, of which the first is scaled."""

    def add(old, new):
        return scale * old + new

    arrays = [add(*pair) for pair in zip(totals[:2], sums[:2], strict=True)]
    return arrays + [map_parameters(add, *pair) for pair in zip(totals[2:], sums[2:], strict=True)]
