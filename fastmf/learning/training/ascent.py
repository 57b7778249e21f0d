"""Stochastic gradient ascent: options, parameters, one step, and the state between steps.

With learning rate r, momentum p and decay l2, l1 of couplings W,

    velocity <- p velocity + r (gradient - l2 W - l1 S)
    parameters <- parameters + velocity

S is a subgradient of the absolute values of the new couplings: see
`fastmf.kernels.training.ascent`.
"""

import math
from dataclasses import dataclass, field

import numpy as np

from fastmf._common import arguments as check
from fastmf._threads.workers import SHARED_WORK, VECTOR_SPEED, in_parallel, workers_for
from fastmf.kernels.linear.product import panel_width, product_address
from fastmf.kernels.training.ascent import AscentStep, Pairs, ascent_memory
from fastmf.kernels.training.ascent import ascend as ascend_kernel
from fastmf.models._io import Model
from fastmf.priors._protocol import map_parameters


@dataclass(frozen=True, kw_only=True)
class AscentSettings:
    """Options of stochastic gradient ascent on any objective.

    Parameters
    ----------
    learning_rate : float, (start, end), (start, end, "linear") or callable
        A constant; a geometric or linear schedule from the first step to the last epoch; or a
        function of the epoch (counted from 0). A schedule from or to 0 is linear, and 0 is reached
        after the last step.
    momentum : float
        Fraction of the previous step that is added to the next one, in [0, 1).
    l2, l1 : float
        Weight decay: the gradient is reduced by `l2 W + l1 sign(W)`. Couplings whose sign `l1`
        would change become exactly 0, except with preconditioned gradients.
    n_epochs, batch_size : int
    monitor_rows : int
        Number of rows of data for the metrics of each epoch.
    early_stopping : bool or int
        Number of epochs without a better score after which training stops, keeping the best model;
        True: 5.
    """

    learning_rate: object = 0.05
    momentum: float = 0.5
    l2: float = 0.001
    l1: float = 0.0
    n_epochs: int = 20
    batch_size: int = 100
    monitor_rows: int = 100
    early_stopping: bool | int = False

    def __post_init__(self):
        for name in ("batch_size", "monitor_rows"):
            check.count(name, getattr(self, name))
        check.count("n_epochs", self.n_epochs, 0)
        check.number("momentum", self.momentum, 0, 1, below=True)
        for name in ("l2", "l1"):
            check.number(name, getattr(self, name), 0, np.inf, below=True)
        if not isinstance(self.early_stopping, bool | np.bool_):
            check.count("early_stopping", self.early_stopping)
        learning_rate(self, 0)

    @property
    def patience(self):
        """Number of epochs without a better score before training stops; may be infinite."""
        if self.early_stopping is True or self.early_stopping is np.True_:
            return 5
        return self.early_stopping or np.inf


def options_of(estimator, class_):
    """Return the attributes of an estimator that are fields of a class of settings."""
    names = class_.__dataclass_fields__
    return {name: getattr(estimator, name) for name in names if hasattr(estimator, name)}


def learning_rate(settings, epoch):
    """Return the learning rate of the first step of an epoch, counted from 0."""
    return float(learning_rates(settings, epoch, 1)[0])


def learning_rates(settings, epoch, n_steps):
    """Return the learning rates of all steps of an epoch, counted from 0."""
    spec, fractions = settings.learning_rate, np.arange(n_steps) / n_steps
    if callable(spec):
        value = _checked(spec(epoch))
    elif isinstance(spec, (tuple, list)):
        kind = spec[2] if len(spec) == 3 else "geometric"
        if len(spec) not in (2, 3) or kind not in ("geometric", "linear"):
            raise ValueError(
                "learning_rate must be a number, (start, end), (start, end, 'linear') or a "
                f"function of the epoch, got {spec!r}."
            )
        start, end = (_checked(value) for value in spec[:2])
        until_end = settings.n_epochs - (end != 0)
        fractions = np.minimum(1.0, (epoch + fractions) / max(1, until_end))
        if kind == "geometric" and 0 not in (start, end):
            return start * (end / start) ** fractions
        return start + fractions * (end - start)
    else:
        value = _checked(spec)
    return np.full(n_steps, float(value))


def _checked(value):
    return check.number("learning_rate", value, 0, np.inf, below=True)


class ModelParameters:
    """Named parameters of a model, or their derivatives: arrays, unit priors and tuples of these.

    The derivative by a unit prior is a prior that has a derivative in place of each parameter.
    """

    def __init__(self, **fields):
        self.__dict__.update(fields)

    @classmethod
    def of(cls, model):
        """Return the parameters of a model."""
        return cls(**model.parameters())

    def combine(self, function, *others):
        """Apply a function to the arrays of several sets of parameters.

        Fields of priors that are not learned are taken from `self`.
        """
        return ModelParameters(
            **{
                name: _combine(function, value, *(getattr(part, name) for part in others))
                for name, value in vars(self).items()
            }
        )

    def arrays(self):
        """Return all arrays that `combine` changes, in the same order."""
        arrays = []
        self.combine(lambda x: arrays.append(x) or x)
        return arrays

    def replaced(self, arrays):
        """Return the parameters with new arrays, in the same order."""
        arrays = iter(arrays)
        return self.combine(lambda _: next(arrays))


def _combine(function, first, *others):
    if isinstance(first, np.ndarray):
        return function(first, *others)
    if type(first) is tuple:
        return tuple(_combine(function, *parts) for parts in zip(first, *others, strict=True))
    return map_parameters(function, first, *others)


@dataclass
class State:
    """State of training between two steps."""

    model: Model
    # The previous step.
    velocity: ModelParameters
    # The next epoch, counted from 0.
    epoch: int = 0
    # Persistent samples (visible,), or solutions (means of all layers, followed by variances).
    chains: tuple = ()
    # Matrices of all layers that multiply gradients; empty for ordinary gradients.
    preconditioners: tuple = ()
    # Values of missing entries, (1, n_missing), row by row.
    completed: tuple = ()
    # Lists by name, with one entry for each epoch.
    history: dict = field(default_factory=dict)
    # With early stopping, the model with the best score, and the number of epochs since then.
    best: Model | None = None
    waited: int = 0
    seed: int | None = None


def initial_state(model):
    """Return the state before the first step."""
    return State(model, ModelParameters.of(model).combine(np.zeros_like))


class Ascent:
    """Steps of gradient ascent with momentum and weight decay, from the model of a state."""

    def __init__(self, state, settings, n_threads=None):
        self.parameters = {name: x.copy() for name, x in state.model.parameters().items()}
        self._settings, velocity = settings, vars(state.velocity)
        pairs = [(np.atleast_2d(x), np.atleast_2d(velocity[k])) for k, x in self.parameters.items()]
        self._matrices = MatrixAscent(*zip(*pairs, strict=True), n_threads)
        self._sides = [tuple(np.zeros((2, n), w.dtype) for n in w.shape) for w, _ in pairs]

    def __call__(self, gradient, rate, epoch):
        """Take a step of the parameters and the velocity, in place."""
        gradients = [np.atleast_2d(getattr(gradient, name)) for name in self.parameters]
        step = AscentStep(float(rate), float(self._settings.momentum), 0.0, 0.0)
        decaying = step._replace(l2=float(self._settings.l2), l1=float(self._settings.l1))
        steps = [decaying if x.ndim == 2 else step for x in self.parameters.values()]
        self._matrices(gradients, steps, self._sides, epoch)


class MatrixAscent:
    """Ascent steps of matrices of couplings, in place and with preallocated memory."""

    def __init__(self, couplings, velocities, n_threads=None):
        dtype, width = couplings[0].dtype, panel_width(couplings[0].dtype)
        none = np.zeros((0, 0, width), dtype)
        self._no_copies = [((none,) * 2,) * 2] * len(couplings)
        self._no_fields = ((np.zeros(0, dtype),) * 2,) * 2
        self._n_tasks, self._n_threads = sum(-(-len(w) // width) for w in couplings), n_threads
        n_workers = workers_for(self._n_tasks, SHARED_WORK, n_threads)
        memory = [ascent_memory(weights.shape, dtype, n_workers) for weights in couplings]
        self._memory = list(zip(couplings, velocities, memory, strict=True))
        self._address = product_address(dtype)

    def __call__(self, gradients, steps, sides, epoch, copies=None, fields=None):
        """Take a step of all matrices; threads are synchronised once, at the end.

        A gradient is an array or `Pairs`. `copies` are the packed copies of each matrix, which are
        updated; `fields` has fields and velocities of both layers if the step moves them. Return
        the products of the step direction with the offsets above, and below, each matrix; the next
        step overwrites them.
        """
        calls, moves, n_products, copies = [], [], 0, copies or self._no_copies
        matrices = zip(gradients, steps, sides, copies, self._memory, strict=True)
        for gradient, step, of_sides, packed, (weights, velocity, (work, results)) in matrices:
            pairs = gradient if isinstance(gradient, Pairs) else added(weights, gradient)
            n_products += weights.size * (VECTOR_SPEED + sum(map(len, pairs.lefts)))
            work.queue[:] = 0
            options = step, of_sides, fields or self._no_fields, packed
            calls.append((self._address, pairs, weights, velocity, *options, work, results))
            moves += results.below, results.above

        def take():
            for arguments in calls:
                ascend_kernel(*arguments)

        n_workers = workers_for(self._n_tasks, n_products // VECTOR_SPEED, self._n_threads)
        in_parallel(take, (), n_workers)
        for _, _, (_, results) in self._memory:
            # Larger weights, whose fourth powers overflow in single precision, count as diverged.
            # The comparison is false for NaN, which also counts as diverged.
            if not results.squared_norm[0] < 2.0**64:
                raise diverged(epoch)
        return moves


def added(weights, gradient):
    """Return a gradient by couplings, an array, as `Pairs`."""
    lefts, rights = ((np.zeros((0, n), weights.dtype),) * 4 for n in weights.shape)
    return Pairs(lefts, rights, (0,) * 4, np.ascontiguousarray(gradient, weights.dtype))


def finite_sum(x, step, epoch):
    """Return parameters after a step; raise unless finite ones remain finite."""
    new = x + step
    if not (math.isfinite(np.add.reduce(new, axis=None)) or np.isfinite(new[np.isfinite(x)]).all()):
        raise diverged(epoch)
    return new


def diverged(epoch):
    """Return the error for diverged parameters."""
    return FloatingPointError(
        f"learning diverged in epoch {epoch}: weights or fields grow beyond all bounds; a smaller "
        "learning_rate may help."
    )
