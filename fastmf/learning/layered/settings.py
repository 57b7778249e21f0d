"""Options of learning an RBM or DBM, checked once."""

from dataclasses import dataclass

import numpy as np

from fastmf._common import arguments as check
from fastmf.learning.layered.gradients import MEAN_FIELD
from fastmf.learning.layered.starts import STARTS
from fastmf.learning.training.settings import AscentSettings

GRADIENTS = (*MEAN_FIELD, "cd", "pcd", "exact")


@dataclass(frozen=True, kw_only=True)
class LayeredSettings(AscentSettings):
    """Options of gradient ascent on the log-likelihood of an RBM or DBM; see also `AscentSettings`.

    Parameters
    ----------
    gradient : {"tap", "mean_field", "tap3", "adaptive_tap", "cd", "pcd", "exact"}
        Model averages from TAP solutions (second order), naive mean-field or third-order ones
        (binary and categorical units), from those of adaptive TAP, from short Gibbs chains started
        at the data, from persistent chains, or exact ones: by enumeration of the hidden or of the
        visible units of an RBM, at most 2^14 states, or in closed form of Gaussian units alone.
    n_starts : int or None
        Mean-field solutions or Gibbs chains per step; None for as many as rows in the batch. With
        half as many solutions a step takes 0.6 of the time; where the learning rate falls,
        likelihoods after the same time are as good or better.
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
    preconditioning : float or None
        Variance of units, in some direction, above which steps are shortened; None for ordinary
        gradients. Allows ten times the rate; see `fastmf.learning.layered.preconditioning`. Of
        centred units of which fields alone are learned, such as binary ones, and dense rows.

    Examples
    --------
    >>> import fastmf as mf
    >>> chains = mf.distributed.LayeredSettings(gradient="pcd", n_starts=100, n_sweeps=1)
    >>> chains.gradient, chains.n_starts
    ('pcd', 100)
    """

    gradient: str = "tap"
    n_starts: int | None = None
    n_sweeps: int = 3
    starts: str = "data"
    noise: float = 0.1
    centred: bool = True
    preconditioning: float | None = None

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
        if self.preconditioning is not None:
            if not check.number("preconditioning", self.preconditioning, 0, np.inf, below=True):
                raise ValueError("preconditioning must be positive, or None.")
            if not self.centred:
                raise ValueError("preconditioning is of centred units: use centred=True.")
