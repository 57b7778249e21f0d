"""Options of training an RBM or DBM, and default values that depend on the machine."""

from dataclasses import dataclass

import numpy as np

from fastmf._common import arguments as check
from fastmf.learning.layered.exact_averages import MAX_SUMMED_STATES, is_cheaply_exact
from fastmf.learning.layered.gradients import MEAN_FIELD, free_units
from fastmf.learning.training.ascent import AscentSettings
from fastmf.priors._protocol import n_units
from fastmf.priors._queries import is_discrete, largest_variance, precisions, unbounded
from fastmf.priors._scaling import is_real
from fastmf.priors._values import states

STARTS = ("data", "noise", "persistent", "random")
GRADIENTS = (*MEAN_FIELD, "bp", "cd", "pcd", "exact")
# Default batch size and weight decay: for discrete units and mean-field gradients, which reach good
# features and likelihoods in few epochs, and for noisier gradients or units with precisions.
FEW_ROWS, MANY_ROWS = (
    {"batch_size": size, "l2": l2, "learning_rate": AscentSettings.learning_rate}
    for size, l2 in ((20, 0.005), (100, 0.001))
)

# Rows of a batch, relative to the variance of a hidden unit times the variance of the first
# principal component of the data. With half or twice this number, digits are 0.2 nats less likely.
ROWS_PER_VARIANCE = 14


@dataclass(frozen=True, kw_only=True)
class LayeredSettings(AscentSettings):
    """Options of gradient ascent on the log-likelihood of an RBM or DBM; see also `AscentSettings`.

    Parameters
    ----------
    gradient : {"tap", "mean_field", "adaptive_tap", "bp", "cd", "pcd", "exact"}
        Method for the averages over the model: solutions of TAP, naive mean field or adaptive TAP;
        `n_sweeps` undamped iterations of belief propagation (for RBMs of binary units; use 20 or
        more); Gibbs chains started at the data ("cd") or persistent chains ("pcd"); or exact
        averages, by enumeration of at most 2^14 states of the hidden or visible units of an RBM, or
        in closed form if all units are Gaussian.
    n_starts : int or None
        Mean-field solutions or Gibbs chains per step; None for the number of rows in the batch.
    n_sweeps : int
        Sweeps or iterations from each start per step (the k of CD-k).
    damping : float in [0, 1) or None
        Weight of the old means, or of the old sites of adaptive TAP, in the new ones; None:
        adaptive, with no damping in the first sweeps of TAP.
    starts : {"data", "noise", "persistent", "random"}
        Starts of the mean-field solutions. "noise": data with a tenth of the entries flipped, or
        with noise of 0.1 standard deviations.
    centred : bool
        Use the centred gradient, in which units are relative to their means over the batch; see
        `fastmf.learning.layered.gradients`. Estimators then also standardise real columns, and real
        hidden units with bounds.
    preconditioning : float or None
        Variance of units, in any direction, above which steps are shortened; None for ordinary
        gradients. It allows ten times the rate; see `fastmf.learning.layered.gradients`. Only for
        centred units of which only fields are learned, such as binary units, and for dense rows.

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
    damping: float | None = None
    starts: str = "data"
    centred: bool = True
    preconditioning: float | None = None

    def __post_init__(self):
        super().__post_init__()
        check.one_of("gradient", self.gradient, GRADIENTS)
        check.one_of("starts", self.starts, STARTS)
        check.count("n_sweeps", self.n_sweeps)
        if self.damping is not None:
            check.number("damping", self.damping, 0, 1, below=True)
        check.count("n_starts", self.n_starts, optional=True)
        check.one_of("centred", self.centred, (True, False))
        if self.preconditioning is not None:
            if not check.number("preconditioning", self.preconditioning, 0, np.inf, below=True):
                raise ValueError("preconditioning must be positive, or None.")
            if not self.centred:
                raise ValueError("preconditioning needs centred units: use centred=True.")


def gradient_for(model, n_rows, l2=None):
    """Return the gradient chosen by "auto"."""
    has_maximum = l2 != 0 or any(map(is_real, model.layers))
    # Sums over all rows must not cost more than sums over states.
    is_fast = n_rows * model.couplings[0].size <= MAX_SUMMED_STATES**2
    if has_maximum and is_fast and is_cheaply_exact(model):
        return "exact"
    return "pcd" if any(unbounded(layer).any() for layer in model.layers) else "tap"


def steps_for(model, settings, share=1.0):
    """Return default batch size, weight decay and learning rate."""
    from_rows = settings.gradient in MEAN_FIELD and settings.starts != "persistent"
    plain = from_rows and settings.preconditioning is None
    unbounded_units = any(unbounded(layer).any() for layer in model.layers[1:])
    discrete = not (is_real(model.layers[0]) or unbounded_units)
    chosen = FEW_ROWS if plain and discrete and not model.deep else MANY_ROWS
    return chosen | {"l2": share * chosen["l2"]}


def min_batch_size(model, X, weights, n_products=5):
    """Compute the smallest batch size for which, at the default rate, gradient noise is harmless.

    The step of a hidden unit with variance v has noise of variance v lambda / batch_size along the
    first principal component of the rows, with variance lambda (and lambda = 1 for its field). If
    columns are correlated, this noise could move a mode away from the data, which is not corrected
    by gradients that start from data. The batch size and the rate can be scaled by a common factor.
    """
    if not all(map(is_discrete, model.layers[:2])):
        return FEW_ROWS["batch_size"]
    rows = states(model.layers[0], X, np.float32)  # to save memory
    seen = ~np.isnan(rows)
    rows = np.where(seen, rows, 0)
    rows -= rows.sum(0, dtype=float) / np.maximum(seen.sum(0), 1)
    rows *= seen
    if weights is not None:
        rows *= np.sqrt(weights / weights.mean())[:, None]
    direction, variance = np.random.default_rng(0).normal(size=rows.shape[1]), 0.0
    direction = direction.astype(np.float32)
    for _ in range(n_products):  # power iteration
        norm = np.linalg.norm(direction)
        direction = rows.T @ (rows @ (direction / norm)) / len(rows) if norm else direction
        variance = np.linalg.norm(direction)
    return ROWS_PER_VARIANCE * max(1.0, variance) * largest_variance(model.layers[1]).max()


def weight_scale_for(visible, hidden, given):
    """Return the default standard deviation of the initial weights.

    For standardised columns, and for unbounded hidden units next to bounded ones on their scale,
    weights are large enough to escape from zero in few epochs, with a largest singular value of at
    most about 0.4. Units that are `given` may have another scale.
    """
    large, real = 0.3 / np.sqrt(n_units(visible) + n_units(hidden)), is_real(visible)
    free = free_units((visible, hidden))[1]
    if free.any() and not (real and given):
        return np.where(free, large * np.sqrt(np.where(free, precisions(hidden), 1)), 1e-3)
    return large if real and not given else 1e-3
