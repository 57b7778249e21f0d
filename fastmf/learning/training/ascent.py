"""One step of stochastic gradient ascent, and the state that training carries between steps.

With learning rate r, momentum p and decay l2, l1 of couplings W,

    velocity <- p velocity + r (gradient - l2 W - l1 S)
    parameters <- parameters + velocity

S is a subgradient of the absolute values of the new couplings: see
`fastmf.kernels.training.ascent`.
"""

from dataclasses import dataclass, field

import numpy as np

from fastmf._threads.workers import in_parallel, workers_for
from fastmf.kernels.linear.product import panel_width
from fastmf.kernels.training.ascent import AscentStep
from fastmf.kernels.training.ascent import ascend as ascend_kernel
from fastmf.learning.training.parameters import ModelParameters
from fastmf.models._io import Model


@dataclass
class State:
    """Everything that training carries from one step to the next."""

    model: Model
    # The previous step.
    velocity: ModelParameters
    # The next epoch, counted from 0.
    epoch: int = 0
    # Persistent samples (visible,), or solutions (means of all layers, then variances).
    chains: tuple = ()
    # Matrices by which gradients are multiplied, of all layers; empty for ordinary gradients.
    preconditioners: tuple = ()
    # Mean-field solutions after the last epoch (means of all layers, then variances), from which
    # the next search starts, beside the data.
    solutions: tuple = ()
    # Values in the place of missing ones, (1, n_missing), row by row.
    completed: tuple = ()
    # Lists by name, of one entry an epoch.
    history: dict = field(default_factory=dict)
    # With early stopping, the model with the best score, and the epochs since then.
    best: Model | None = None
    waited: int = 0
    seed: int | None = None


def initial_state(model):
    """The state before the first step."""
    return State(model, ModelParameters.of(model).combine(np.zeros_like))


def ascend(state, gradient, settings, rate, n_threads=None):
    """Take one step of gradient ascent with momentum and weight decay; returns the parameters."""
    parameters = ModelParameters.of(state.model).combine(np.copy)
    couplings, gradients, velocities = (
        list(part.matrices()) for part in (parameters, gradient, state.velocity)
    )
    steps = [AscentStep(*map(float, (rate, settings.momentum, settings.l2, settings.l1)))]
    sides = [tuple(np.zeros((2, n), w.dtype) for n in w.shape) for w in couplings]
    matrices = zip(couplings, gradients, velocities, steps * len(couplings), sides, strict=True)
    ascend_matrices(list(matrices), state.epoch, n_threads)

    def with_momentum(velocity, gradient):
        if velocity.ndim == 1:
            velocity *= settings.momentum
            velocity += rate * gradient
        return velocity

    state.velocity = state.velocity.combine(with_momentum, gradient)
    return parameters.combine(
        lambda w, v: w if w.ndim == 2 else finite_sum(w, v, state.epoch), state.velocity
    )


def ascend_matrices(matrices, epoch, n_threads=None):
    """Move matrices of couplings in place, given as (weights, gradient, velocity, step, offsets).

    Threads meet once, when all matrices are done. Returns for each matrix the products of the
    direction of the step with the offsets above, and below.
    """
    calls, n_tasks, work, dtype = [], 0, 0, matrices[0][0].dtype
    width = panel_width(dtype)
    for weights, gradient, velocity, step, sides in matrices:
        n, n_above = weights.shape
        sums = np.empty((2, n), dtype), np.empty((-(-n // width), n_above), dtype)
        gradient = np.ascontiguousarray(gradient, dtype)
        calls.append((weights, gradient, velocity, step, sides, width, np.zeros(1, int), sums))
        n_tasks += len(sums[1])
        work += 2 * weights.size

    def take():
        for arguments in calls:
            ascend_kernel(*arguments)

    in_parallel(take, (), workers_for(n_tasks, work, n_threads))
    # No machine of any use has such weights, and their powers would overflow.
    moves, largest = [], float(np.finfo(np.float32).max) ** 0.25
    for *_, ((of_below, squares), products) in calls:
        # Written so that NaN counts as diverged.
        if not squares.max(initial=0) < largest**2:
            raise diverged(epoch)
        moves.append((of_below, products.sum(0)))
    return moves


def finite_sum(x, step, epoch):
    """Parameters after a step; fields of -inf stay."""
    new = x + step
    if not (np.isfinite(np.add.reduce(new, axis=None)) or np.isfinite(new[np.isfinite(x)]).all()):
        raise diverged(epoch)
    return new


def diverged(epoch):
    """The error to raise."""
    return FloatingPointError(
        f"learning diverged in epoch {epoch}: weights or fields grow beyond all bounds; a smaller "
        "learning_rate may help."
    )
