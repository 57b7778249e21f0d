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
from fastmf.kernels.training.ascent import TASK_ROWS, AscentStep
from fastmf.kernels.training.ascent import ascend as ascend_kernel
from fastmf.learning.training import centring
from fastmf.learning.training.parameters import ModelParameters
from fastmf.models._io import Model

# No machine of any use has such weights, and their powers would overflow.
MAX_MODULUS = 1e9


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
    preconditioners : tuple of arrays of shape (n_units, n_units)
        Matrices that gradients are multiplied by, of all layers; empty for ordinary gradients.
    solutions : tuple of arrays
        Mean-field solutions of the model after the last epoch (means of all layers, then
        variances), which are starts of the search after the next one, beside the data.
    completed : tuple of arrays
        Values in the place of missing ones, (1, n_missing), row by row; empty if there are none, or
        before the first epoch.
    history : dict of lists
        One entry an epoch.
    best : RBM, DBM or CRBM
        With early stopping, the model with the best score so far.
    waited : int
        Epochs since then.
    """

    model: Model
    velocity: ModelParameters
    epoch: int = 0
    batch: int = 0
    chains: tuple = ()
    preconditioners: tuple = ()
    solutions: tuple = ()
    completed: tuple = ()
    history: dict = field(default_factory=dict)
    best: Model | None = None
    waited: int = 0


def initial_state(model):
    """The state before the first step."""
    return State(model, ModelParameters.of(model).combine(np.zeros_like))


def ascend(state, gradient, settings, rate, means=None, n_threads=None, *, scales=None):
    """Take one step of gradient ascent with momentum and weight decay.

    With means, the step is taken in coordinates in which units are counted from their means (see
    `centring`): decay of couplings then leaves the means where they are.
    """
    model, here = state.model, ModelParameters.of(state.model)
    step = AscentStep(*map(float, (rate, settings.momentum, settings.l2, settings.l1)))
    matrices = list(zip(*(p.matrices() for p in (here, gradient, state.velocity)), strict=True))
    if means is None:
        offsets = [tuple(np.zeros((2, n), w.dtype) for n in w.shape) for w, *_ in matrices]
    else:
        offsets = centring.offsets(model, gradient, means)
    options = [step] * len(matrices)
    if state.preconditioners or scales is not None:
        if scales is None:
            gradient = _preconditioned(matrices, gradient, step, offsets, state.preconditioners)
            options = [step._replace(l2=0.0, l1=0.0)] * len(matrices)
        else:
            gradient = _scaled(matrices, gradient, step, offsets, scales)
            options = [step._replace(l2=0.0, l1=l1) for l1 in scales.of_decay(step.l1)]
        matrices = [(w, g, v) for (w, _, v), g in zip(matrices, gradient.couplings, strict=True)]
        offsets = [tuple(side * [[1], [0]] for side in pair) for pair in offsets]
    couplings, directions, step_dot, sizes = _ascend_matrices(matrices, options, offsets, n_threads)
    # Written so that NaN counts as diverged.
    if not all(of_rows.max(initial=0) < MAX_MODULUS**2 for of_rows in sizes):
        raise diverged(state.epoch)
    if means is not None:
        moves = centring.moves_of_fields(directions, step_dot, offsets)
        layers = centring.with_moved_fields(model.layers, gradient.layers, moves)
        gradient = ModelParameters(couplings=directions, layers=layers)

    # Units of several parameters have matrices, too, which are no couplings.
    coupled = {id(array) for p in (here, state.velocity) for array in p.matrices()}

    def with_momentum(velocity, gradient):
        if id(velocity) not in coupled:
            velocity *= settings.momentum
            velocity += rate * gradient
        return velocity

    def moved(w, v):
        if id(w) in coupled:
            return next(new)
        if not np.isfinite(w + v)[np.isfinite(w)].all():  # fields of -inf stay
            raise diverged(state.epoch)
        return w + v

    state.velocity = state.velocity.combine(with_momentum, gradient)
    new = iter(couplings)
    return here.combine(moved, state.velocity)


def diverged(epoch):
    """The error to raise."""
    return FloatingPointError(
        f"learning diverged in epoch {epoch}: weights or fields exceed {MAX_MODULUS:g}; a smaller "
        "learning_rate may help."
    )


def _preconditioned(matrices, gradient, options, offsets, preconditioners):
    """The gradient by couplings between deviations, and by fields, times preconditioners."""
    couplings = []
    for k, ((w, g, _), sides) in enumerate(zip(matrices, offsets, strict=True)):
        g = centring.between_deviations(g - (options.l2 * w + options.l1 * np.sign(w)), sides)
        couplings.append(preconditioners[k] @ g @ preconditioners[k + 1])
    layers = [
        layer._replace(field=p @ layer.field)
        for layer, p in zip(gradient.layers, preconditioners, strict=True)
    ]
    return ModelParameters(couplings=tuple(couplings), layers=tuple(layers))


def _scaled(matrices, gradient, step, offsets, scales):
    """The gradient by couplings between deviations, and by fields, times the scales of layers."""
    couplings = []
    for k, ((w, g, _), sides) in enumerate(zip(matrices, offsets, strict=True)):
        g = centring.between_deviations(g - step.l2 * w, sides)
        couplings.append(scales.of_couplings(k, g))
    layers = scales.of_fields(gradient.layers)
    return ModelParameters(couplings=tuple(couplings), layers=layers)


def _ascend_matrices(matrices, options, offsets, n_threads):
    """All couplings after the step, directions of the step, and sums over the rows of each matrix.

    Threads meet once, when all matrices are done.
    """
    calls, n_tasks, work = [], 0, 0
    for (weights, gradient, velocity), step, pair in zip(matrices, options, offsets, strict=True):
        gradient = np.ascontiguousarray(gradient, weights.dtype)
        out, row_sums = np.empty_like(weights), np.empty((2, len(weights)), weights.dtype)
        queue = np.zeros(1, np.int64)
        calls.append((weights, gradient, velocity, step, pair, queue, row_sums, out))
        n_tasks += -(-len(weights) // TASK_ROWS)
        work += 2 * weights.size

    def take():
        for arguments in calls:
            ascend_kernel(*arguments)

    in_parallel(take, (), workers_for(n_tasks, work, n_threads))
    _, directions, *_, row_sums, couplings = zip(*calls, strict=True)
    for weights in couplings:
        weights.flags.writeable = False  # for a model to keep
    return couplings, directions, *zip(*row_sums, strict=True)
