"""One step of stochastic gradient ascent."""

from dataclasses import dataclass, field

import numpy as np

from fastmf._threads import in_parallel, workers_for
from fastmf.inference.ep.adaptive_tap import adaptive_tap
from fastmf.inference.mean_field.tap import sweeps_from_data, tap
from fastmf.inference.sampling.gibbs import gibbs
from fastmf.kernels import ascent as kernels
from fastmf.learning.layered.domain import project
from fastmf.learning.layered.gradients import (
    MEAN_FIELD,
    ORDERS,
    conditional_moments,
    gradient_and_means,
)
from fastmf.learning.layered.starts import starts
from fastmf.learning.training import centring
from fastmf.learning.training.parameters import ModelParameters
from fastmf.models import CRBM, DBM, RBM

# No machine of any use has such weights, and their powers would overflow.
LARGEST_WEIGHT = 1e9


@dataclass
class State:
    """Everything that training carries from one step to the next.

    Parameters
    ----------
    model : RBM, DBM or CRBM
    velocity : ModelParameters
        The previous step.
    epoch, batch : int
        The next batch to be seen.
    chains : tuple of arrays
        Persistent samples (visible,) or solutions (means of all layers, then variances); empty
        until the first step needs them.
    solutions : tuple of arrays
        Mean-field solutions of the model after the last epoch (means of all layers, then
        variances), from which those after the next one are looked for, besides from data.
    history : dict of lists
        One entry an epoch.
    best : RBM, DBM or CRBM
        With early stopping, the model with the best score so far.
    waited : int
        Epochs since then.
    """

    model: RBM | DBM | CRBM
    velocity: ModelParameters
    epoch: int = 0
    batch: int = 0
    chains: tuple = ()
    solutions: tuple = ()
    history: dict = field(default_factory=dict)
    best: RBM | DBM | CRBM | None = None
    waited: int = 0


def initial_state(model):
    """The state before the first step."""
    return State(model, ModelParameters.of(model).combine(np.zeros_like))


def states_of_model(state, X, settings, order, rng, n_threads=None, hidden=None):
    """Solutions or samples of the model, as the chosen method takes them.

    Persistent chains in `state` move on. The moments of the hidden units given the batch, if known,
    save work where the solutions start from it.
    """
    model, n_starts = state.model, settings.n_starts or len(X)
    from_data = settings.starts == "data" and n_starts == len(X)
    if hidden is not None and from_data and settings.gradient in ORDERS:
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
            solutions = tap(model, init, order=order, log_partition=False, **options)
        if persistent:
            state.chains = (*solutions.mean, *solutions.var)
        return solutions
    if settings.gradient == "pcd" and state.chains:
        chains = state.chains[0]
    else:
        chains = starts("data", model, X, n_starts, 0.0, rng)
    samples, _ = gibbs(model, chains, settings.n_sweeps, rng, n_threads)
    if settings.gradient == "pcd":
        state.chains = (samples,)
    return samples


def slope(state, X, settings, rng, n_threads=None):
    """Gradient of the log-likelihood of a batch, as `step` sees it, and the batch's means.

    Returns
    -------
    ModelParameters, list of arrays of shape (n_units,)
    """
    model, order = state.model, ORDERS.get(settings.gradient, 1)
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
    X : array of shape (n_rows, n_visible)
    settings : Settings
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
    slope_and_means = slope(state, X, settings, rng, n_threads)
    apply(state, *slope_and_means, settings, rate, n_threads)


def apply(state, slope, means, settings, rate, n_threads=None):
    """Move `state` along the slope, and no further than its priors allow."""
    means = means if settings.centred else None
    moved = ascend(state, slope, settings, rate, means, n_threads)
    state.model = project(state.model, moved)


def ascend(state, slope, settings, rate, means=None, n_threads=None):
    """Add a share of the slope to what is left of the velocity, and move by it.

    The slope is followed less weight decay, and in coordinates in which units are counted from
    their means, if any are given: couplings that decay then leave those where they are.

    Parameters
    ----------
    state : State
        Its velocity is changed in place.
    slope : ModelParameters
        Gradient of the log-likelihood; nothing is left of it.
    settings : Settings or ConditionalSettings
    rate : float
        Learning rate.
    means : list of arrays of shape (n_units,), optional
        Of each layer over the data.
    n_threads : int, optional

    Returns
    -------
    ModelParameters
        The new parameters.

    Raises
    ------
    FloatingPointError
        If couplings grow without bound.
    """
    model, here = state.model, ModelParameters.of(state.model)
    how = kernels.AscentSettings(*map(float, (rate, settings.momentum, settings.l2, settings.l1)))
    matrices = list(zip(*(p.matrices() for p in (here, slope, state.velocity)), strict=True))
    if means is None:
        offsets = [tuple(np.zeros((2, n), w.dtype) for n in w.shape) for w, *_ in matrices]
    else:
        offsets = centring.offsets(model, slope, means)
    climbed = [
        _climb(*of_one, how, *pair, n_threads)
        for of_one, pair in zip(matrices, offsets, strict=True)
    ]
    couplings, followed, along, sizes = zip(*climbed, strict=True)
    # Written so that NaN counts as diverged.
    if not all(of_rows.max(initial=0) < LARGEST_WEIGHT**2 for of_rows in sizes):
        raise FloatingPointError(
            f"learning diverged in epoch {state.epoch}: weights exceed {LARGEST_WEIGHT:g}; "
            "a smaller learning_rate may help."
        )
    if means is not None:
        slope = centring.with_moved_fields(model, slope, offsets, followed, along)

    def turned(velocity, slope):
        if velocity.ndim < 2:
            velocity *= settings.momentum
            velocity += rate * slope
        return velocity

    state.velocity = state.velocity.combine(turned, slope)
    new = iter(couplings)
    return here.combine(lambda w, v: next(new) if w.ndim == 2 else w + v, state.velocity)


def _climb(weights, slope, velocity, how, below, above, n_threads):
    """What `kernels.ascend` makes of one matrix of couplings, and of its slope."""
    slope = np.ascontiguousarray(slope, weights.dtype)
    out = np.empty_like(weights)
    row_sums = np.empty((2, len(weights)), weights.dtype)
    n_workers = workers_for(-(-len(weights) // kernels.TASK_ROWS), 2 * weights.size, n_threads)
    queue = np.zeros(1, np.int64)
    arguments = weights, slope, velocity, how, (below, above), queue, out, row_sums
    in_parallel(kernels.ascend, arguments, n_workers)
    out.flags.writeable = False  # for a model to keep
    return out, slope, *row_sums


def hidden_layers(model, settings):
    """Options of `tap` for the hidden layers given data: of an RBM they need no solution."""
    if not model.deep:
        return {}
    return {"tol": 1e-3, "max_iter": max(10, settings.n_sweeps), "log_partition": False}
