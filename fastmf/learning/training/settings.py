"""Options of gradient ascent, whatever the objective."""

from dataclasses import dataclass

import numpy as np

from fastmf._common import arguments as check


@dataclass(frozen=True, kw_only=True)
class AscentSettings:
    """Options of stochastic gradient ascent on any objective.

    Parameters
    ----------
    learning_rate : float, (start, end), (start, end, "linear") or callable
        Constant, geometric or linear from the first step to the last epoch, or a function of the
        epoch (counted from 0). From or to 0 it is linear, and 0 is reached after the last step.
    momentum : float
        Fraction of the previous step that is added to the next, in [0, 1).
    l2, l1 : float
        Weight decay: the step follows the gradient minus `l2 W + l1 sign(W)`. Couplings whose sign
        `l1` would change become exactly 0, but for preconditioned gradients.
    n_epochs, batch_size : int
    monitor_rows : int
        Rows of data on which the metrics of each epoch are computed.
    early_stopping : bool or int
        Epochs without a better score after which training stops and keeps the best model; True
        for 5.
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
        """Epochs without a better score before training stops; infinite without early stopping."""
        if self.early_stopping is True or self.early_stopping is np.True_:
            return 5
        return self.early_stopping or np.inf


def options_of(estimator, class_):
    """The options that an estimator has of a class of settings."""
    names = class_.__dataclass_fields__
    return {name: getattr(estimator, name) for name in names if hasattr(estimator, name)}


def learning_rate(settings, epoch):
    """The learning rate of the first step of an epoch, counted from 0."""
    return float(learning_rates(settings, epoch, 1)[0])


def learning_rates(settings, epoch, n_steps):
    """The learning rates of all steps of an epoch, counted from 0."""
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
