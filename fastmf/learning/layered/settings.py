"""How to train: every option in one place, checked once."""

from dataclasses import dataclass

import numpy as np

from fastmf._common import arguments as check
from fastmf.learning.layered.gradients import MEAN_FIELD
from fastmf.learning.layered.starts import STARTS

GRADIENTS = (*MEAN_FIELD, "cd", "pcd")


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Options of stochastic gradient ascent, whatever it climbs.

    Parameters
    ----------
    learning_rate : float, (start, end), (start, end, "linear") or callable
        Constant, geometric or linear from the first epoch to the last, or a function of the epoch
        (counted from 0). From or to 0 it is linear.
    momentum : float
        Share of the previous step that is added to the next, in [0, 1).
    l2, l1 : float
        Weight decay: the step follows the gradient minus `l2 W + l1 sign(W)`.
    n_epochs, batch_size : int
    monitor_rows : int
        Rows of data that are followed after each epoch.
    early_stopping : bool
    patience : int
        Epochs without a better score before training stops.
    """

    learning_rate: object = 0.05
    momentum: float = 0.5
    l2: float = 0.001
    l1: float = 0.0
    n_epochs: int = 20
    batch_size: int = 100
    monitor_rows: int = 100
    early_stopping: bool = False
    patience: int = 5

    def __post_init__(self):
        for name in ("batch_size", "monitor_rows", "patience"):
            check.count(name, getattr(self, name))
        check.count("n_epochs", self.n_epochs, 0)
        check.number("momentum", self.momentum, 0, 1, below=True)
        for name in ("l2", "l1"):
            check.number(name, getattr(self, name), 0, np.inf, below=True)
        check.one_of("early_stopping", self.early_stopping, (True, False))
        rate(self, 0)


@dataclass(frozen=True, kw_only=True)
class Settings(Schedule):
    """Options of gradient ascent on the log-likelihood of an RBM; see also `Schedule`.

    Parameters
    ----------
    gradient : {"tap", "mean_field", "tap3", "adaptive_tap", "cd", "pcd"}
        Model averages from TAP solutions (second order), naive mean-field or third-order ones
        (binary units), from those of adaptive TAP, from short Gibbs chains started at the data, or
        from persistent chains.
    n_starts : int or None
        Mean-field solutions or Gibbs chains per step; None for as many as rows in the batch.
    n_sweeps : int
        TAP sweeps or iterations of adaptive TAP from each start, or Gibbs sweeps (the k of CD-k),
        per step.
    starts : {"data", "noise", "persistent", "random"}
        Where the mean-field solutions start; see `fastmf.learning.layered.starts`.
    noise : float
        For "noise": probability of a flip, or standard deviations of the data.
    centred : bool
        Follow the gradient in coordinates in which units are counted from their means over the
        batch; see `fastmf.learning.training.centring`.
    """

    gradient: str = "tap"
    n_starts: int | None = None
    n_sweeps: int = 3
    starts: str = "data"
    noise: float = 0.1
    centred: bool = True

    def __post_init__(self):
        super().__post_init__()
        check.one_of("gradient", self.gradient, GRADIENTS)
        check.one_of("starts", self.starts, STARTS)
        check.count("n_sweeps", self.n_sweeps)
        if self.n_starts is not None:
            check.count("n_starts", self.n_starts)
        most = 1 if self.starts == "noise" else np.inf
        check.number("noise", self.noise, 0, most, below=True)
        check.one_of("centred", self.centred, (True, False))


def rate(settings, epoch):
    """The learning rate of an epoch, counted from 0."""
    spec = settings.learning_rate
    if callable(spec):
        value = spec(epoch)
    elif isinstance(spec, (tuple, list)):
        kind = spec[2] if len(spec) == 3 else "geometric"
        if len(spec) not in (2, 3) or kind not in ("geometric", "linear"):
            raise ValueError(
                "learning_rate must be a number, (start, end), (start, end, 'linear') or a "
                f"function of the epoch, got {spec!r}."
            )
        start, end = (_rate(value) for value in spec[:2])
        share = min(1.0, epoch / max(1, settings.n_epochs - 1))
        linear = start + share * (end - start)
        value = linear if kind == "linear" or 0 in (start, end) else start * (end / start) ** share
    else:
        value = spec
    return _rate(value)


def _rate(value):
    return check.number("learning_rate", value, 0, np.inf, below=True)
