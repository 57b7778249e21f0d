"""One step of learning an RBM or DBM: averages over the model, gradient, ascent."""

from fastmf._common.warning import warn_user
from fastmf.inference.ep.adaptive_tap import few_iterations
from fastmf.inference.mean_field.gaussian_layers import collapsed_tap
from fastmf.inference.mean_field.tap import sweeps_from_data
from fastmf.inference.sampling.gibbs import even_layers, gibbs
from fastmf.learning.layered.domain import after_step, can_follow
from fastmf.learning.layered.exact_averages import exact_averages
from fastmf.learning.layered.gradients import (
    MEAN_FIELD,
    ORDER_OF_GRADIENT,
    conditional_moments,
    gradient_and_moments,
)
from fastmf.learning.layered.starts import starts
from fastmf.learning.training.ascent import ascend
from fastmf.learning.training.hidden_scales import Scales, has_free_units, with_held_precisions
from fastmf.learning.training.parameters import ModelParameters
from fastmf.models._layered import is_integrated
from fastmf.priors._groups import has_groups
from fastmf.priors._rows import sparse_or_states, states
from fastmf.priors._scaling import by_log_precision


def is_solved(state, settings):
    """Whether mean-field iterations, if they are asked for, are made: see `gradient_taken`."""
    return settings.gradient in MEAN_FIELD and len(state.chains) != 1 and can_follow(state.model)


def gradient_taken(state, settings):
    """The gradient that is followed: chains where mean-field iterations have no moments.

    Says so when it changes. Chains, once followed, are in the state, and it does not change back.
    """
    if settings.gradient not in MEAN_FIELD or is_solved(state, settings):
        return settings.gradient
    if len(state.chains) != 1:
        state.chains = ()
        warn_user(
            f"gradient={settings.gradient!r} cannot follow the machine any further (epoch "
            f"{state.epoch}): its mean-field iterations have no moments for unbounded units as "
            "strongly coupled as these. Learning goes on with gradient='pcd'.",
        )
    return "pcd"


def states_of_model(state, X, settings, order, rng, n_threads=None, hidden=None):
    """Mean-field solutions, samples or exact averages of the model.

    Persistent chains in `state` are advanced. The moments of the hidden units given the batch, if
    known, spare half a sweep of solutions that start from it.
    """
    model, n_starts = state.model, settings.n_starts or X.shape[0]
    gradient = gradient_taken(state, settings)
    if gradient == "exact":
        return exact_averages(model)
    from_data = settings.starts == "data" and n_starts <= X.shape[0]
    apart = any(has_groups(prior) for prior in model.layers) or is_integrated(model)
    if hidden is not None and from_data and gradient in ORDER_OF_GRADIENT and not apart:
        X = states(model.layers[0], X[:n_starts], model.dtype)
        hidden = [part[:n_starts] for part in hidden]
        return sweeps_from_data(model, X, hidden, order, settings.n_sweeps, n_threads)
    if gradient in MEAN_FIELD:
        persistent = settings.starts == "persistent"
        if persistent and state.chains:
            n_layers = len(model.layers)
            init = state.chains[:n_layers], state.chains[n_layers:]
        elif hidden is not None and from_data and is_integrated(model):
            _, mean, var = (part[:n_starts] for part in hidden)
            init = (states(model.layers[0], X[:n_starts], model.dtype), mean), (None, var)
        else:
            init = starts(settings.starts, model, X, n_starts, settings.noise, rng)
        options = {"max_iter": settings.n_sweeps, "n_threads": n_threads}
        if gradient == "adaptive_tap":
            solutions = few_iterations(model, init, damping=settings.damping, **options)
        else:
            options |= {"acceleration": False, "log_partition": False}
            solutions = collapsed_tap(model, init, variances=False, order=order, **options)
        if persistent:
            state.chains = (*solutions.mean, *solutions.var)
        return solutions
    if gradient == "pcd" and state.chains:
        chains = state.chains[0]
    else:
        chains = even_layers(model, starts("data", model, X, n_starts, 0.0, rng), rng)
    samples, _ = gibbs(model.bipartite(), chains, settings.n_sweeps, rng, n_threads)
    if gradient == "pcd":
        state.chains = (samples,)
    return samples


def batch_gradient(state, X, settings, rng, n_threads=None):
    """Approximate gradient of the log-likelihood of a batch, and the batch's moments."""
    model, order = state.model, ORDER_OF_GRADIENT.get(settings.gradient, 1)
    X = sparse_or_states(model.layers[0], X, model.dtype)
    hidden = None if model.deep else conditional_moments(model, X, order, n_threads)
    of_model = states_of_model(state, X, settings, order, rng, n_threads, hidden)
    options = hidden_layers(model, settings)
    return gradient_and_moments(model, X, of_model, order, n_threads, hidden, **options)


def step(state, X, settings, rate, rng, n_threads=None):
    """Move `state` one step up the log-likelihood of a batch.

    Notes
    -----
    Tramel et al. (2018), Algorithm 2, where the momentum acts on the previous *step* (as printed it
    would be 1 / rate times the gradient) and the regulariser enters with a minus sign.
    """
    gradient, means, products = batch_gradient(state, X, settings, rng, n_threads)
    apply(state, gradient, means, settings, rate, n_threads, products=products)


def apply(state, gradient, means, settings, rate, n_threads=None, *, products=None):
    """Move `state` along the gradient, no further than machines exist.

    Precisions of unbounded units move in their logarithm, or not at all where their scale is free.
    """
    old = state.model.layers
    layers = zip(old, gradient.layers, strict=True)
    by_logs = tuple(by_log_precision(*pair, means_held=True) for pair in layers)
    by_logs = with_held_precisions(old, by_logs)
    gradient = ModelParameters(couplings=gradient.couplings, layers=by_logs)
    scales = Scales(old, means, products, settings.centred) if has_free_units(old) else None
    means = means if settings.centred else None
    moved = ascend(state, gradient, settings, rate, means, n_threads, scales=scales)
    state.model = after_step(state.model, moved, state.velocity)


def hidden_layers(model, settings):
    """Options of `tap` for the hidden layers given data; none for an RBM, where they are exact."""
    if not model.deep:
        return {}
    return {"tol": 1e-3, "max_iter": max(10, settings.n_sweeps), "log_partition": False}
