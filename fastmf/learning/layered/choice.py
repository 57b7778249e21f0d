"""Which gradient suits a machine."""

from fastmf.learning.layered.exact_averages import is_cheaply_exact
from fastmf.priors._queries import unbounded

# Products of data with couplings in one step from all rows, up to which exact gradients are taken.
MAX_EXACT_PRODUCTS = 2**28


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
