"""One step of stochastic gradient ascent, and the state that training carries between steps.

With learning rate r, momentum p and decay l2, l1 of couplings W,

    velocity <- p velocity + r (gradient - l2 W - l1 S)
    parameters <- parameters + velocity

S is a subgradient of the absolute values of the new couplings: see
`fastmf.kernels.training.ascent`.
"""

from dataclasses import dataclass, field

import numpy as np

from fastmf._threads.workers import VECTOR_SPEED, in_parallel, workers_for
from fastmf.kernels.linear.product import panel_width, product_address
from fastmf.kernels.training.ascent import AscentStep, Pairs, ascent_work
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
    step = AscentStep(*map(float, (rate, settings.momentum, settings.l2, settings.l1)))
    matrices = []

    def move(parameter, gradient, velocity):
        if parameter.ndim == 2:
            sides = tuple(np.zeros((2, n), parameter.dtype) for n in parameter.shape)
            matrices.append((parameter, gradient, velocity, step, sides))
            return parameter
        velocity *= settings.momentum
        velocity += rate * gradient
        return finite_sum(parameter, velocity, state.epoch)

    parameters = ModelParameters.of(state.model).combine(np.copy)
    parameters = parameters.combine(move, gradient, state.velocity)
    ascend_matrices(matrices, state.epoch, n_threads)
    return parameters


def ascend_matrices(matrices, epoch, n_threads=None, packed=None, scratch=None):
    """Move matrices of couplings in place, given as (weights, gradient, velocity, step, offsets).

    A gradient is an array or `Pairs`. Threads meet once, when all matrices are done. `packed` has
    for each matrix the packed couplings that follow it. Returns for each matrix the products of the
    direction of the step with the offsets above, and below.
    """
    dtype = matrices[0][0].dtype
    width, address = panel_width(dtype), product_address(dtype)
    none = np.zeros((0, 0, width), dtype)
    n_tasks = [-(-len(weights) // width) for weights, *_ in matrices]
    sizes = [weights.size * (32 + len(getattr(g, "lefts", ()))) for weights, g, *_ in matrices]
    n_workers = workers_for(sum(n_tasks), sum(sizes) // VECTOR_SPEED, n_threads)
    calls = []
    for k, (weights, gradient, velocity, step, sides) in enumerate(matrices):
        if not isinstance(gradient, Pairs):
            added = np.ascontiguousarray(gradient, dtype)
            gradient = Pairs(0, added[:0], none, added)
        n, n_above = weights.shape
        sums = np.empty((2, n), dtype), np.empty((n_tasks[k], n_above), dtype)
        copies = packed[k] if packed else ((none, none), (none, none))
        work = ascent_work(weights.shape, dtype, n_workers, scratch, ("sums", k))
        calls.append((address, gradient, weights, velocity, step, sides, copies, work, sums))

    def take():
        for arguments in calls:
            ascend_kernel(*arguments)

    in_parallel(take, (), n_workers)
    # No machine of any use has larger weights, whose fourth powers overflow in single precision.
    moves, largest_square = [], 2.0**64
    for *_, ((of_below, squares), products) in calls:
        # Written so that NaN counts as diverged.
        if not squares.max(initial=0) < largest_square:
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
