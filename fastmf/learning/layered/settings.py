"""Options of learning an RBM or DBM, and those that suit a machine where none are given."""

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
# Batches and weight decay where features and likelihoods of binary machines are good after few
# epochs, and where gradients that are noisier, or precisions, ask for more rows in a step.
FEW_ROWS, MANY_ROWS = (
    {"batch_size": size, "l2": l2, "learning_rate": AscentSettings.learning_rate}
    for size, l2 in ((20, 0.005), (100, 0.001))
)

# Rows of a step for each unit of variance of a hidden unit times the variance of the first
# principal component of the data.
ROWS_PER_VARIANCE = 14


@dataclass(frozen=True, kw_only=True)
class LayeredSettings(AscentSettings):
    """Options of gradient ascent on the log-likelihood of an RBM or DBM; see also `AscentSettings`.

    Parameters
    ----------
    gradient : {"tap", "mean_field", "adaptive_tap", "bp", "cd", "pcd", "exact"}
        Averages over the model from solutions of TAP, naive mean field or adaptive TAP, from
        `n_sweeps` undamped iterations of belief propagation (RBMs of binary units; take 20 or more
        of these), from short Gibbs chains that start from the data, or from persistent chains; or
        exact ones: by enumeration of the hidden or visible units of an RBM, at most 2^14 states, or
        in closed form for Gaussian units alone.
    n_starts : int or None
        Mean-field solutions or Gibbs chains per step; None for the number of rows in the batch.
    n_sweeps : int
        Sweeps or iterations from each start per step (the k of CD-k).
    damping : float in [0, 1) or None
        Weight of the old means, or of the old sites of adaptive TAP, in the new ones; None:
        adaptive, none in the first sweeps of TAP.
    starts : {"data", "noise", "persistent", "random"}
        Where the mean-field solutions start. "noise": at data of which a tenth is flipped, or with
        noise of 0.1 standard deviations.
    centred : bool
        Follow the gradient in coordinates in which units are counted from their means over the
        batch; see `fastmf.learning.layered.gradients`. Estimators learn real columns, and real
        hidden units between bounds, on a standardised scale then, and as they are without it.
    preconditioning : float or None
        Variance of units, in some direction, above which steps are shortened; None for ordinary
        gradients. Allows ten times the rate; see `fastmf.learning.layered.gradients`. For
        centred units whose fields alone are learned, such as binary ones, and dense rows.

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
        if self.n_starts is not None:
            check.count("n_starts", self.n_starts)
        check.one_of("centred", self.centred, (True, False))
        if self.preconditioning is not None:
            if not check.number("preconditioning", self.preconditioning, 0, np.inf, below=True):
                raise ValueError("preconditioning must be positive, or None.")
            if not self.centred:
                raise ValueError("preconditioning needs centred units: use centred=True.")


def gradient_for(model, n_rows, l2=None):
    """The gradient that "auto" chooses."""
    has_maximum = l2 != 0 or any(map(is_real, model.layers))
    # Steps from all rows cost no more than those over states.
    quick = n_rows * model.couplings[0].size <= MAX_SUMMED_STATES**2
    if has_maximum and quick and is_cheaply_exact(model):
        return "exact"
    return "pcd" if any(unbounded(layer).any() for layer in model.layers) else "tap"


def steps_for(model, settings, share=1.0):
    """Batch size, weight decay and learning rate where none are given."""
    from_rows = settings.gradient in MEAN_FIELD and settings.starts != "persistent"
    plain = from_rows and settings.preconditioning is None
    unbounded_units = any(unbounded(layer).any() for layer in model.layers[1:])
    discrete = not (is_real(model.layers[0]) or unbounded_units)
    chosen = FEW_ROWS if plain and discrete and not model.deep else MANY_ROWS
    return chosen | {"l2": share * chosen["l2"]}


def least_rows(model, X, weights, n_products=5):
    """Rows of a step at the default rate whose noise leaves the modes of the data alone.

    Steps of a hidden unit of variance v have noise of variance v lambda / batch_size along the
    first principal component of the rows, of variance lambda; its own field has lambda = 1. Where
    columns are correlated it would carry the fields of a mode away, which gradients that start from
    data do not notice. Fewer rows would do with a smaller rate in proportion, and vice versa.
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
    component, variance = np.random.default_rng(0).normal(size=rows.shape[1]), 0.0
    component = component.astype(np.float32)
    for _ in range(n_products):  # power iteration
        norm = np.linalg.norm(component)
        component = rows.T @ (rows @ (component / norm)) / len(rows) if norm else component
        variance = np.linalg.norm(component)
    return ROWS_PER_VARIANCE * max(1.0, variance) * largest_variance(model.layers[1]).max()


def weight_scale_for(visible, hidden, given):
    """Standard deviation of the first weights where none is given.

    First weights of standardised columns are so large that learning leaves them in few epochs, and
    the largest singular value is about 0.4 at most; so are weights of unbounded hidden units next
    to bounded ones, at their scale. Units that are `given` may be of another scale.
    """
    large, real = 0.3 / np.sqrt(n_units(visible) + n_units(hidden)), is_real(visible)
    free = free_units((visible, hidden))[1]
    if free.any() and not (real and given):
        return np.where(free, large * np.sqrt(np.where(free, precisions(hidden), 1)), 1e-3)
    return large if real and not given else 1e-3
