"""Log-likelihoods of an RBM or DBM after each epoch of learning."""

import numpy as np

from fastmf._common.rows import is_incomplete, row_blocks
from fastmf.inference.fixed_point import stacked
from fastmf.inference.mean_field.gaussian_layers import collapsed_tap
from fastmf.inference.mean_field.likelihood import log_likelihood
from fastmf.inference.mean_field.solutions import phases
from fastmf.inference.missing.layered import log_likelihood_of_seen, with_means
from fastmf.inference.sampling.gibbs import MIN_ANNEALED, annealed_samples
from fastmf.learning.layered.domain import can_follow
from fastmf.learning.layered.exact_averages import (
    MAX_SUMMED_STATES,
    exact_averages,
    has_exact_likelihood,
)
from fastmf.learning.layered.gradients import ORDER_OF_GRADIENT
from fastmf.priors._protocol import can_sample
from fastmf.priors._scaling import is_real
from fastmf.priors._values import states

# The log-likelihood after each epoch need not be known better than this.
MONITOR = {"tol": 1e-4, "max_iter": 200}


def metrics(state, monitored, validation, settings, n_threads, weights=None, scaling=None):
    """Log-likelihoods per unit of the data before scaling; stores the solutions in the state."""
    model, size = state.model, sum(state.model.sizes)
    # Naive mean fields have moments for any machine.
    order = ORDER_OF_GRADIENT.get(settings.gradient, 2) if can_follow(model) else 1
    if has_exact_likelihood(model, settings):
        log_partition = exact_averages(model).log_partition
    else:
        monitored = states(model.layers[0], monitored, model.dtype)
        starts = with_means(model.layers[0], monitored) if is_incomplete(monitored) else monitored
        complete = validation is not None and not (
            is_incomplete(validation) or starts is not monitored
        )
        if complete and all(map(can_sample, model.layers)):
            log_partition = _annealed_log_partition(model, starts, n_threads)
        else:
            solutions = _solutions(model, starts, order, n_threads)
            log_partition = _log_partition(state, solutions, order, n_threads)
    options = MONITOR | {"order": order, "n_threads": n_threads} if model.deep else {}

    def per_unit(X, weights=None):
        if is_incomplete(X):
            given = MONITOR | {
                "order": order,
                "n_threads": n_threads,
                "most": 4 * MAX_SUMMED_STATES,
            }
            of_rows, _ = log_likelihood_of_seen(model, X, log_partition, **given)
        else:
            parts = [log_likelihood(model, X[b], log_partition, **options) for b in row_blocks(X)]
            of_rows = np.concatenate(parts)
        value = float(np.average(of_rows, weights=weights))
        if scaling is not None and is_real(model.layers[0]):
            value -= scaling.log_volume(model.layers[0], X, weights)
        return value / size

    values = {"log_likelihood": per_unit(monitored, weights)}
    if validation is not None:
        values["validation_log_likelihood"] = per_unit(validation)
    return values


def _annealed_log_partition(model, data, n_threads):
    """Estimate by one short annealing, whose errors do not grow with learning as TAP's do."""
    data = np.resize(data, (max(len(data), MIN_ANNEALED), data.shape[1]))
    # Units with the means of the data, and the same random numbers each time: hardly any error
    # while couplings are weak and the likelihood rises slowly, and 0.1 nats later.
    try:
        return annealed_samples(model, data, 100, np.random.default_rng(0), n_threads, 1.0)[1]
    except FloatingPointError:  # the chains diverge
        return np.inf


def _solutions(model, starts, order, n_threads):
    """Mean-field solutions from given starts."""
    options = MONITOR | {"variances": False, "order": order, "n_threads": n_threads}
    return collapsed_tap(model, starts, **options)


def _log_partition(state, reached, order, n_threads):
    """Estimate from the solutions reached from data and from the solutions of the last epoch.

    A solution of great weight is not lost because no row of data leads to it any more: solutions of
    the largest weights, at most one for each row of data, are stored in the state.
    """
    model, n_layers, n_rows = state.model, len(state.model.layers), len(reached.mean[0])
    if state.solutions:
        init = state.solutions[:n_layers], state.solutions[n_layers:]
        reached = stacked(reached, _solutions(model, init, order, n_threads))
    rows, log_weights = phases(model, reached, order)
    if not len(rows):
        state.solutions = ()
        return np.inf
    heaviest = np.argsort(-log_weights, kind="stable")[:n_rows]
    finite = rows[heaviest[np.isfinite(log_weights[heaviest])]]
    state.solutions = tuple(part[finite] for part in (*reached.mean, *reached.var))
    return float(np.logaddexp.reduce(log_weights))
