"""One step of learning an RBM or DBM: averages over the model, gradient, ascent."""

from fastmf.inference.ep.adaptive_tap import adaptive_tap
from fastmf.inference.mean_field.tap import sweeps_from_data, tap
from fastmf.inference.sampling.gibbs import even_layers, gibbs
from fastmf.learning.layered.domain import project
from fastmf.learning.layered.gradients import (
    MEAN_FIELD,
    ORDERS,
    conditional_moments,
    gradient_and_means,
)
from fastmf.learning.layered.starts import starts
from fastmf.learning.training.ascent import ascend
from fastmf.priors._groups import has_groups
from fastmf.priors._rows import sparse_or_states, states


def states_of_model(state, X, settings, order, rng, n_threads=None, hidden=None):
    """Mean-field solutions or Gibbs samples of the model, over which its averages are taken.

    Persistent chains in `state` are advanced. The moments of the hidden units given the batch, if
    known, spare half a sweep of solutions that start from it.
    """
    model, n_starts = state.model, settings.n_starts or X.shape[0]
    from_data = settings.starts == "data" and n_starts <= X.shape[0]
    grouped = any(has_groups(prior) for prior in model.layers)
    if hidden is not None and from_data and settings.gradient in ORDERS and not grouped:
        X = states(model.layers[0], X[:n_starts], model.dtype)
        hidden = [part[:n_starts] for part in hidden]
        return sweeps_from_data(model, X, hidden, order, settings.n_sweeps, n_threads)
    if settings.gradient in MEAN_FIELD:
        persistent = settings.starts == "persistent"
        if persistent and state.chains:
            n_layers = len(model.layers)
            init = state.chains[:n_layers], state.chains[n_layers:]
        else:
            init = starts(settings.starts, model, X, n_starts, settings.noise, rng)
        options = {"max_iter": settings.n_sweeps, "n_threads": n_threads}
        if settings.gradient == "adaptive_tap":
            solutions = adaptive_tap(model, init, schedule="parallel", **options)
        else:
            options |= {"acceleration": None, "log_partition": False}
            solutions = tap(model, init, order=order, **options)
        if persistent:
            state.chains = (*solutions.mean, *solutions.var)
        return solutions
    if settings.gradient == "pcd" and state.chains:
        chains = state.chains[0]
    else:
        chains = even_layers(model, starts("data", model, X, n_starts, 0.0, rng), rng)
    samples, _ = gibbs(model.bipartite(), chains, settings.n_sweeps, rng, n_threads)
    if settings.gradient == "pcd":
        state.chains = (samples,)
    return samples


def batch_gradient(state, X, settings, rng, n_threads=None):
    """Approximate gradient of the log-likelihood of a batch, and the batch's means.

    Returns
    -------
    ModelParameters, list of arrays of shape (n_units,)
    """
    model, order = state.model, ORDERS.get(settings.gradient, 1)
    X = sparse_or_states(model.layers[0], X, model.dtype)
    hidden = None if model.deep else conditional_moments(model, X, order, n_threads)
    of_model = states_of_model(state, X, settings, order, rng, n_threads, hidden)
    options = hidden_layers(model, settings)
    return gradient_and_means(model, X, of_model, order, n_threads, hidden, **options)


def step(state, X, settings, rate, rng, n_threads=None):
    """Move `state` one step up the log-likelihood of a batch.

    Parameters
    ----------
    state : State
        Changed in place.
    X : array or csr_array of shape (n_rows, n_visible)
        In any type; of groups of states labels, too.
    settings : LayeredSettings
    rate : float
        Learning rate.
    rng : numpy Generator

    Raises
    ------
    FloatingPointError
        If the weights grow without bound.

    Notes
    -----
    Tramel et al. (2018), Algorithm 2, where the momentum acts on the previous *step* (as printed it
    would be 1 / rate times the gradient) and the regulariser enters with a minus sign.
    """
    gradient, means = batch_gradient(state, X, settings, rng, n_threads)
    apply(state, gradient, means, settings, rate, n_threads)


def apply(state, gradient, means, settings, rate, n_threads=None):
    """Move `state` along the gradient, and project its priors onto their domain."""
    means = means if settings.centred else None
    moved = ascend(state, gradient, settings, rate, means, n_threads)
    state.model = project(state.model, moved)


def hidden_layers(model, settings):
    """Options of `tap` for the hidden layers given data; none for an RBM, where they are exact."""
    if not model.deep:
        return {}
    return {"tol": 1e-3, "max_iter": max(10, settings.n_sweeps), "log_partition": False}
