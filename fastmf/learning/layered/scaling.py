"""Learning on standardised columns.

Real-valued visible units x = offset + scale y are learned as y. Real-valued hidden units between
bounds are scaled, too: units on [0, 1] and on [0, 100] learn as fast as binary ones.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array, diags_array

from fastmf._common.rows import is_incomplete, is_sparse
from fastmf.priors._queries import has_tilts, with_shifted_field
from fastmf.priors._scaling import (
    log_volume,
    rescaled,
    scale_of_hidden,
    units_of_measurement,
    with_fixed_fields_of,
)


class Scaling(NamedTuple):
    """Offset of each visible unit, and scale of each unit."""

    offset: np.ndarray
    scale: np.ndarray
    hidden_scales: tuple
    # Units of x and of the hidden layers, with the bounds that they are given.
    layers: tuple

    @property
    def of_data(self):
        """Whether data change."""
        return self.offset.any() or (self.scale != 1).any()

    def data(self, X, dtype):
        """Rows of x as rows of y."""
        if not self.of_data:
            return X
        if is_sparse(X):
            return csr_array(X @ diags_array(1 / self.scale)).astype(dtype)
        return ((X - self.offset) / self.scale).astype(dtype)

    def units(self, visible):
        """Units of y that units of x are."""
        return rescaled(visible, self.offset, self.scale)

    def of_layers(self, layers):
        """Layers of a machine of y, but for the fields that offsets give the first hidden one."""
        hidden = zip(layers[1:], self.hidden_scales, strict=True)
        return self.units(layers[0]), *(rescaled(unit, 0 * scale, scale) for unit, scale in hidden)

    def model(self, model):
        """The machine of y that a machine of x is."""
        layers = list(model.layers)
        if self.offset.any():
            first = np.asarray(model.couplings[0], np.float64)
            layers[1] = with_shifted_field(layers[1], self.offset @ first)
        scales = pairwise((self.scale, *self.hidden_scales))
        couplings = tuple(
            (w * below[:, None] * above).astype(model.dtype)
            for w, (below, above) in zip(model.couplings, scales, strict=True)
        )
        return model.rebuilt(couplings, self.of_layers(layers))

    def undone(self, model):
        """The machine of x that a machine of y is."""
        hidden = tuple(1 / scale for scale in self.hidden_scales)
        back = Scaling(-self.offset / self.scale, 1 / self.scale, hidden, self.layers)
        model = back.model(model)
        layers = zip(model.layers, self.layers, strict=True)
        return model.rebuilt(model.couplings, tuple(with_fixed_fields_of(*two) for two in layers))

    def log_volume(self, visible, Y, weights=None):
        """Difference of the log-densities of y and x, on average over rows of y."""
        Y = Y.toarray() if is_sparse(Y) else Y
        volumes = log_volume(visible, self.scale, Y)
        if is_incomplete(Y):  # a missing value has no density
            volumes -= np.isnan(Y) @ np.log(self.scale)
        return float(np.average(volumes, weights=weights))


def scaling_of(independent, model, sparse, centred=True):
    """Make the scaling for data fitted by independent units.

    Steps that are not `centred` are steps of the parameters of the data as they are.
    """
    offset, scale = units_of_measurement(independent)
    if sparse or not centred or not has_tilts(model.layers[1]):
        offset = 0 * offset
    hidden = tuple(map(scale_of_hidden, model.layers[1:]))
    if not centred:
        scale, *hidden = (np.ones_like(part) for part in (scale, *hidden))
    return Scaling(offset, scale, tuple(hidden), model.layers)
