"""What the mean-field kernels speak of: layers, settings, tilts, records.

The state of a model is one array of all its units, layer after layer. A `Layer` says where its
units are, which units they are coupled to, and holds the couplings packed for `product`. A sweep is
a list of visits (layer, first panel, last panel); a visit updates a block of units from the newest
state of their neighbours. An RBM swept hidden layer first and a fully visible machine swept block
by block, or unit by unit, differ only in this list.
"""

from typing import NamedTuple

import numpy as np

from fastmf._numba import kernel
from fastmf.priors._protocol import third_cumulants

# Oscillations are looked for in windows of this many sweeps.
WINDOW = 16
# The share of the old value goes 0, 1/2, 3/4, ... up to this.
STRONGEST_DAMPING = 0.97
# Rows are accelerated once no mean changes by more than this: at twice as much, three in a hundred
# of a trained machine were carried to other fixed points.
ONSET = 0.05
# The part of its last move that an accelerated row makes once more, as long as it goes straight on.
MOMENTUM = 0.9


class Layer(NamedTuple):
    """What a kernel knows of one layer of units.

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


class Settings(NamedTuple):
    """How to sweep.

    Parameters
    ----------
    order : int
        1 naive mean field, 2 TAP, 3 third order (binary units).
    one_by_one : bool
        Update the units of a block one after another (for a layer coupled to itself).
    damping : float
        Share of the old value; the least one if `adaptive`.
    adaptive : bool
        Raise the damping of rows that oscillate.
    tol : float
        Largest change of a mean, before damping, at which a row has converged.
    max_iter : int
    onsager_every : int
        Sweeps from one computation of the variance products to the next.
    accelerate_after : int
        Sweeps of a row before it may be accelerated (momentum, half-implicit Onsager terms).
    rows_in_flight : int
        Rows that a worker holds at a time.
    resolution : float
        Relative spacing of the floating type.
    begun : bool
        Whether the start is data and what the first layer to be visited makes of them: these visits
        are left out once. That layer's tilts are in the record.
    """

    order: int
    one_by_one: bool
    damping: float
    adaptive: bool
    tol: float
    max_iter: int
    onsager_every: int
    accelerate_after: int
    rows_in_flight: int
    resolution: float
    begun: bool = False


class Tilt(NamedTuple):
    """What is added to the model from outside, per row or (with one row) the same for all.

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


class Record(NamedTuple):
    """What a solve fills in, a row at a time.

    Parameters
    ----------
    state : array of shape (4, n_rows, n_units)
        Mean, variance and the tilts b and a that gave them (the tilt from outside included). On
        entry the first two hold the start.
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


@kernel(inner=True)
def start_third(layer, mean, third, scratch):
    """Third cumulants of one layer at the start, from the means of all layers."""
    units = slice(layer.start, layer.start + layer.n_units)
    third_cumulants(layer.prior, np.int64(0), mean[units], third[units], scratch)
