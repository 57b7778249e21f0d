"""Arguments of the mean-field kernels: layers, settings, external tilts, records.

The state of a model is one array of all its units, layer after layer. A `Layer` says where its
units are, which units they are coupled to, and holds the couplings packed for `product`. A sweep is
a list of blocks (layer, first panel, last panel), updated one after another from the newest state
of the units that they are coupled to. An RBM swept hidden layer first and a fully visible machine
swept block by block, or unit by unit, differ only in this list.
"""

from typing import NamedTuple

import numpy as np

from fastmf._numba import kernel
from fastmf.priors._protocol import third_cumulants

# Oscillations are detected from the residuals of windows of this many sweeps.
WINDOW_SWEEPS = 16
# Damping is raised 0, 1/2, 3/4, ... up to this.
MAX_DAMPING = 0.97
# Rows are accelerated once their residual is below this: at twice as much, 3 of 100 rows of a
# trained machine reached other fixed points.
ACCELERATION_RESIDUAL = 0.05
# Limit of the momentum of an accelerated row, while consecutive steps point the same way.
MAX_MOMENTUM = 0.9


class Layer(NamedTuple):
    """One layer of units and its packed couplings.

    Parameters
    ----------
    prior : unit prior
    n_units : int
    start : int
        Position of the layer's first unit among all units of the model.
    source : int
        Position of the first unit that the layer is coupled to.
    couplings, squares, cubes : array of shape (n_panels, n_source, panel_width)
        Packed couplings and their elementwise powers (no panels if the order does not need them).
    """

    prior: tuple
    n_units: int
    start: int
    source: int
    couplings: np.ndarray
    squares: np.ndarray
    cubes: np.ndarray


class TapSettings(NamedTuple):
    """Options of a TAP solve.

    Parameters
    ----------
    order : int
        1 naive mean field, 2 TAP, 3 third order (binary units).
    tol : float
        Residual at which a row has converged: the largest change of a mean, before damping.
    max_iter : int
    damping : float
        Weight of the old mean; the smallest one if `adaptive`.
    adaptive : bool
        Raise the damping of rows that oscillate.
    onsager_every : int
        Sweeps from one computation of the Onsager terms to the next.
    accelerate_after : int
        Sweeps of a row before it may be accelerated (momentum, half-implicit Onsager terms).
    one_by_one : bool
        Update the units of a block one after another (for a layer coupled to itself).
    rows_per_worker : int
        Number of rows that a worker iterates at a time.
    resolution : float
        Relative spacing of the floating type.
    half_sweep_done : bool
        Whether the start is data and the moments of the first layer in the sweep given these data:
        that layer is then skipped in the first sweep. Its tilts are in the record.
    """

    order: int
    tol: float
    max_iter: int
    damping: float = 0.0
    adaptive: bool = True
    onsager_every: int = 1
    accelerate_after: int = 100
    one_by_one: bool = False
    rows_per_worker: int = 1
    resolution: float = 2.0**-52
    half_sweep_done: bool = False


class Tilt(NamedTuple):
    """External tilts and clamped units, per row or (with one row) the same for all rows.

    Parameters
    ----------
    field, precision : array of shape (n_rows, n_units), (1, n_units) or (0, n_units)
        Tilt exp(field x - precision x^2 / 2) of each unit; no rows for none.
    clamped : bool array of the same shapes
        Units that stay at their starting mean and variance.
    """

    field: np.ndarray
    precision: np.ndarray
    clamped: np.ndarray


class MeanFieldRecord(NamedTuple):
    """Starts on entry and results on exit, row by row.

    Parameters
    ----------
    state : array of shape (4, n_rows, n_units)
        Mean, variance and the tilts b and a of which these are the moments (external tilts
        included). On entry the first two hold the start.
    status, n_iter : int64 array of shape (n_rows,)
    residual : array of shape (n_rows,)
        Largest change of a mean, before damping, in the last sweep.
    history : array of shape (n_rows, max_iter) or (0, 0)
        The residual of every sweep.
    """

    state: np.ndarray
    status: np.ndarray
    n_iter: np.ndarray
    residual: np.ndarray
    history: np.ndarray


class TapProblem(NamedTuple):
    """What is the same in all steps of a TAP solve.

    Parameters
    ----------
    settings : TapSettings
    tilt : Tilt
    record : MeanFieldRecord
    """

    settings: TapSettings
    tilt: Tilt
    record: MeanFieldRecord


@kernel(inner=True)
def start_third(layer, mean, third, scratch):
    """Third cumulants of the units of one layer, from the means of all layers."""
    units = slice(layer.start, layer.start + layer.n_units)
    third_cumulants(layer.prior, np.int64(0), mean[units], third[units], scratch)
