"""How to train: every option in one place, checked once."""

from dataclasses import dataclass
from numbers import Integral, Real

import numpy as np

from fastmf.learning.gradients import MEAN_FIELD
from fastmf.learning.starts import STARTS

GRADIENTS = (*MEAN_FIELD, "cd", "pcd")


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Options of stochastic gradient ascent, whatever it climbs.

    Parameters
    ----------
    learning_rate : float, (start, end), (start, end, "linear") or callable
        Constant, geometric or linear from the first epoch to the last, or a function of the epoch
        (counted from 0).
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
            self._integer(name, getattr(self, name), 1)
        self._integer("n_epochs", self.n_epochs, 0)
        self._real("momentum", self.momentum, below=1)
        self._real("l2", self.l2)
        self._real("l1", self.l1)
        rate(self, 0)

    def _one_of(self, name, choices):
        if getattr(self, name) not in choices:
            raise ValueError(f"{name} must be one of {choices}, got {getattr(self, name)!r}.")

    @staticmethod
    def _integer(name, value, least):
        if not isinstance(value, Integral) or isinstance(value, bool):
            raise TypeError(f"{name} must be an integer, got {value!r}.")
        if value < least:
            raise ValueError(f"{name} must be at least {least}, got {value}.")

    @staticmethod
    def _real(name, value, below=np.inf):
        if not isinstance(value, Real) or isinstance(value, bool):
            raise TypeError(f"{name} must be a number, got {value!r}.")
        if not 0 <= value < below:
            raise ValueError(f"{name} must be in [0, {below}), got {value}.")


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
        Where the mean-field solutions start; see `fastmf.learning.starts`.
    noise : float
        For "noise": probability of a flip, or standard deviations of the data.
    centred : bool
        Follow the gradient in coordinates in which units are counted from their means over the
        batch; see `fastmf.learning.centring`.
    """

    gradient: str = "tap"
    n_starts: int | None = None
    n_sweeps: int = 3
    starts: str = "data"
    noise: float = 0.1
    centred: bool = True

    def __post_init__(self):
        super().__post_init__()
        self._one_of("gradient", GRADIENTS)
        self._one_of("starts", STARTS)
        self._integer("n_sweeps", self.n_sweeps, 1)
        if self.n_starts is not None:
            self._integer("n_starts", self.n_starts, 1)
        self._real("noise", self.noise, below=1 if self.starts == "noise" else np.inf)
        self._one_of("centred", (True, False))


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
        start, end = spec[:2]
        settings._real("learning_rate", start)
        settings._real("learning_rate", end)
        share = min(1.0, epoch / max(1, settings.n_epochs - 1))
        linear = start + share * (end - start)
        value = linear if kind == "linear" or start <= 0 else start * (end / start) ** share
    else:
        value = spec
    settings._real("learning_rate", value)
    return float(value)
