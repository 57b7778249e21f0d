"""One step of stochastic gradient ascent."""

from dataclasses import dataclass, field

import numpy as np

from fastmf.inference import tap
from fastmf.learning.domain import project
from fastmf.learning.gibbs import gibbs
from fastmf.learning.gradients import (
    ORDERS,
    ConditionalGradient,
    Gradient,
    data_average,
    solution_average,
)
from fastmf.learning.starts import starts
from fastmf.models import CRBM, RBM
from fastmf.priors._protocol import map_parameters

# No machine of any use has such weights, and their powers would overflow.
LARGEST_WEIGHT = 1e9


@dataclass
class State:
    """Everything that training carries from one step to the next.

    Parameters
    ----------
    model : RBM or CRBM
    velocity : Gradient or ConditionalGradient
        The previous step.
    epoch, batch : int
        The next batch to be seen.
    chains : tuple of arrays
        Persistent samples (visible,) or solutions (visible mean, hidden mean, visible variance,
        hidden variance); empty until the first step needs them.
    history : dict of lists
        One entry an epoch.
    best : RBM or CRBM
        With early stopping, the model with the best score so far.
    waited : int
        Epochs since then.
    """

    model: RBM | CRBM
    velocity: tuple
    epoch: int = 0
    batch: int = 0
    chains: tuple = ()
    history: dict = field(default_factory=dict)
    best: RBM | CRBM | None = None
    waited: int = 0


def initial_state(model):
    """The state before the first step."""
    if isinstance(model, CRBM):
        at_rest = ConditionalGradient.of(model)
    else:
        at_rest = Gradient(model.weights, *model.layers)
    return State(model, at_rest.combine(np.zeros_like))


def model_average(state, X, settings, rng, n_threads=None):
    """Derivatives of the log-partition by the parameters, as the chosen method sees them.

    Persistent chains in `state` move on.
    """
    model, n_starts = state.model, settings.n_starts or len(X)
    if settings.gradient in ORDERS:
        order = ORDERS[settings.gradient]
        persistent = settings.starts == "persistent"
        if persistent and state.chains:
            v, h, c_v, c_h = state.chains
            init = (v, h), (c_v, c_h)
        else:
            init = starts(settings.starts, model, X, n_starts, settings.noise, rng)
        solutions = tap(
            model,
            init,
            order=order,
            max_iter=settings.n_sweeps,
            free_energy=False,
            n_threads=n_threads,
        )
        if persistent:
            state.chains = (*solutions.mean, *solutions.var)
        return solution_average(model, solutions, order, n_threads)
    if settings.gradient == "pcd" and state.chains:
        chains = state.chains[0]
    else:
        chains = starts("data", model, X, n_starts, 0.0, rng)
    samples, _ = gibbs(model, chains, settings.n_sweeps, rng, n_threads)
    if settings.gradient == "pcd":
        state.chains = (samples,)
    return data_average(model, samples, order=1, n_threads=n_threads)


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
    model = state.model
    order = ORDERS.get(settings.gradient, 1)
    slope = data_average(model, X, order, n_threads)
    slope -= model_average(state, X, settings, rng, n_threads)
    decay = settings.l2 * model.weights
    if settings.l1:
        decay += settings.l1 * np.sign(model.weights)
    slope = slope._replace(weights=slope.weights - decay)
    accelerate(state, slope, settings, rate)
    moved = (
        map_parameters(np.add, prior, v)
        for prior, v in zip(model.layers, state.velocity[1:], strict=True)
    )
    weights = model.weights + state.velocity.weights
    check_growth(state, weights)
    state.model = project(weights, *moved)


def accelerate(state, slope, settings, rate):
    """Add a share of the gradient to what is left of the velocity."""
    state.velocity = state.velocity.combine(
        lambda v, g: (settings.momentum * v + rate * g).astype(v.dtype, copy=False), slope
    )


def check_growth(state, *weights):
    """An error if weights grow without bound."""
    # Written so that NaN counts as diverged.
    if not all(abs(w).max(initial=0) < LARGEST_WEIGHT for w in weights):
        raise FloatingPointError(
            f"learning diverged in epoch {state.epoch}: weights exceed {LARGEST_WEIGHT:g}; "
            "a smaller learning_rate may help."
        )
