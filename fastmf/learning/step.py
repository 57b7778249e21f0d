"""One step of stochastic gradient ascent."""

from dataclasses import dataclass, field

import numpy as np

from fastmf.inference.adaptive_tap import adaptive_tap
from fastmf.inference.tap import tap
from fastmf.learning.centring import centred
from fastmf.learning.domain import project
from fastmf.learning.gibbs import gibbs
from fastmf.learning.gradients import MEAN_FIELD, ORDERS, gradient_and_means
from fastmf.learning.parameters import ModelParameters
from fastmf.learning.starts import starts
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
    history: dict = field(default_factory=dict)
    best: RBM | DBM | CRBM | None = None
    waited: int = 0


def initial_state(model):
    """The state before the first step."""
    return State(model, ModelParameters.of(model).combine(np.zeros_like))


def states_of_model(state, X, settings, order, rng, n_threads=None):
    """Solutions or samples of the model, as the chosen method takes them.

    Persistent chains in `state` move on.
    """
    model, n_starts = state.model, settings.n_starts or len(X)
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
            solutions = tap(model, init, order=order, free_energy=False, **options)
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
    of_model = states_of_model(state, X, settings, order, rng, n_threads)
    options = hidden_layers(model, settings)
    return gradient_and_means(model, X, of_model, order, n_threads, **options)


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
    apply(state, *slope(state, X, settings, rng, n_threads), settings, rate)


def apply(state, slope, means, settings, rate):
    """Move `state` along the slope, and no further than its priors allow."""
    slope = decayed(state.model, slope, settings)
    if settings.centred:
        slope = centred(state.model, slope, means)
    state.model = project(state.model, ascend(state, slope, settings, rate))


def decayed(model, slope, settings):
    """The slope less what l2 and l1 ask of couplings, written into it.

    Before it is centred: couplings that decay then leave the means of units where they are.
    """
    here = ModelParameters.of(model)
    for weights, of_weights in zip(here.couplings(), slope.couplings(), strict=True):
        of_weights -= settings.l2 * weights
        if settings.l1:
            of_weights -= settings.l1 * np.sign(weights)
    return slope


def ascend(state, slope, settings, rate):
    """Add a share of the slope to what is left of the velocity, and move by it.

    Returns the new parameters; raises FloatingPointError if couplings grow without bound. Of the
    slope nothing is left.
    """
    here = ModelParameters.of(state.model)

    def turned(velocity, slope):
        # In place: at 784 x 500 every fresh array is 1.6 MB.
        velocity *= settings.momentum
        slope *= rate
        velocity += slope
        return velocity

    state.velocity = state.velocity.combine(turned, slope)
    moved = here.combine(np.add, state.velocity)
    # Written so that NaN counts as diverged.
    extremes = [f(w, initial=0) for w in moved.couplings() for f in (np.min, np.max)]
    if not all(abs(extreme) < LARGEST_WEIGHT for extreme in extremes):
        raise FloatingPointError(
            f"learning diverged in epoch {state.epoch}: weights exceed {LARGEST_WEIGHT:g}; "
            "a smaller learning_rate may help."
        )
    return moved


def hidden_layers(model, settings):
    """Options of `tap` for the hidden layers given data: of an RBM they need no solution."""
    if not isinstance(model, DBM):
        return {}
    return {"tol": 1e-3, "max_iter": max(10, settings.n_sweeps), "free_energy": False}
