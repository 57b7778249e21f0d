"""Learning in units of measurement in which all columns of real values are alike.

Real-valued visible units x = offset + scale y are learned as y: so a column learns the same in
metres and in millimetres. A machine of x and one of y have the same hidden units.
"""

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array, diags_array

from fastmf._common.rows import is_incomplete, is_sparse
from fastmf.priors._queries import has_tilts, with_shifted_field
from fastmf.priors._scaling import (
    is_real,
    log_volume,
    rescaled,
    units_of_measurement,
    with_fixed_fields_of,
)


class Scaling(NamedTuple):
    """Offset and scale of each visible unit.

    Parameters
    ----------
    offset, scale : float64 array of shape (n_visible,)
    visible : unit prior
        Units of x, with the bounds that go with the data.
    """

    offset: np.ndarray
    scale: np.ndarray
    visible: tuple

    def data(self, X, dtype):
        """Rows of x as rows of y."""
        if is_sparse(X):
            return csr_array(X @ diags_array(1 / self.scale)).astype(dtype)
        return ((X - self.offset) / self.scale).astype(dtype)

    def units(self, visible):
        """Units of y that units of x are."""
        return rescaled(visible, self.offset, self.scale)

    def model(self, model):
        """The machine of y that a machine of x is."""
        first, *couplings = model.couplings
        visible, hidden, *layers = model.layers
        weights = first * self.scale[:, None]
        if self.offset.any():
            hidden = with_shifted_field(hidden, self.offset @ np.asarray(first, np.float64))
        visible = self.units(visible)
        couplings = (weights.astype(model.dtype), *couplings)
        return model.rebuilt(couplings, (visible, hidden, *layers))

    def undone(self, model):
        """The machine of x that a machine of y is."""
        back = Scaling(-self.offset / self.scale, 1 / self.scale, self.visible)
        model = back.model(model)
        visible, *others = model.layers
        visible = with_fixed_fields_of(visible, self.visible)
        return model.rebuilt(model.couplings, (visible, *others))

    def log_volume(self, visible, Y):
        """Difference of the log-densities of y and x, on average over rows of y."""
        Y = Y.toarray() if is_sparse(Y) else Y
        volumes = log_volume(visible, self.scale, Y)
        if is_incomplete(Y):  # what is missing has no density
            volumes -= np.isnan(Y) @ np.log(self.scale)
        return float(volumes.mean())


def scaling_of(independent, model, sparse):
    """The scaling for data that independent units have been fitted to; None if it changes nothing.

    Parameters
    ----------
    independent : unit prior
        Visible units.
    model : RBM or DBM
        Machine of the data; without fields that are tilts its first hidden layer allows for no
        offsets.
    sparse : bool
        Whether rows are sparse: there are no offsets then.
    """
    if not is_real(independent):
        return None
    offset, scale = units_of_measurement(independent)
    if sparse or not has_tilts(model.layers[1]):
        offset = 0 * offset
    changed = offset.any() or (scale != 1).any()
    return Scaling(offset, scale, model.layers[0]) if changed else None
