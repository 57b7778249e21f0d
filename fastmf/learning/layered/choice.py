"""Which gradient suits a machine, and which batches, weight decay and first weights."""

import numpy as np

from fastmf.learning.layered.exact_averages import is_cheaply_exact
from fastmf.learning.layered.gradients import MEAN_FIELD
from fastmf.learning.training.hidden_scales import free_units
from fastmf.priors._protocol import n_units
from fastmf.priors._queries import precisions, unbounded
from fastmf.priors._scaling import is_real

# Products of data with couplings in one step from all rows, up to which exact gradients are taken.
MAX_EXACT_PRODUCTS = 2**28
# Batches and weight decay where features and likelihoods of binary machines are good after few
# epochs, and where gradients that are noisier, or precisions, ask for more rows in a step.
FEW_ROWS, MANY_ROWS = {"batch_size": 20, "l2": 0.005}, {"batch_size": 100, "l2": 0.001}


def gradient_for(model, n_rows):
    """The gradient that "auto" stands for.

    Parameters
    ----------
    model : RBM or DBM
    n_rows : int
        Rows of data.

    Returns
    -------
    {"tap", "exact", "pcd"}
        "exact" for small machines with real units; else "pcd" with unbounded units, as good as
        "tap" where that has moments, and several times as fast, and "tap" without them.
    """
    if is_cheaply_exact(model) and n_rows * model.couplings[0].size <= MAX_EXACT_PRODUCTS:
        return "exact"
    return "pcd" if any(unbounded(layer).any() for layer in model.layers) else "tap"


def steps_for(model, settings):
    """Batch size and weight decay where none are given.

    Parameters
    ----------
    model : RBM or DBM
    settings : LayeredSettings

    Returns
    -------
    dict
        `FEW_ROWS` for RBMs of discrete visible units, without unbounded hidden ones, and mean-field
        gradients from data; else `MANY_ROWS`: chains, and persistent solutions, are as many as
        rows.
    """
    from_rows = settings.gradient in MEAN_FIELD and settings.starts != "persistent"
    plain = from_rows and settings.preconditioning is None
    unbounded_units = any(unbounded(layer).any() for layer in model.layers[1:])
    discrete = not (is_real(model.layers[0]) or unbounded_units)
    return FEW_ROWS if plain and discrete and not model.deep else MANY_ROWS


def weight_scale_for(visible, hidden, given):
    """Standard deviation of the first weights where none is given.

    First weights of real columns, which are of unit scale, are large enough that learning takes few
    epochs to leave them, and the largest singular value is about 0.4 at most. Units that are
    `given`, not fitted to the data, may be of another scale. So are weights of real hidden units
    without bounds, which next to bounded units leave small weights as slowly, at their own scale.

    Returns
    -------
    float, or array of shape (n_hidden,)
    """
    large, real = 0.3 / np.sqrt(n_units(visible) + n_units(hidden)), is_real(visible)
    free = free_units((visible, hidden))[1]
    if free.any() and not (real and given):
        return np.where(free, large * np.sqrt(np.where(free, precisions(hidden), 1)), 1e-3)
    return large if real and not given else 1e-3
