"""The phase of compiled steps that moves couplings along preconditioned gradients."""

import numpy as np

from fastmf.kernels.linear.product import empty_panels, fill_panels
from fastmf.kernels.training import preconditioned
from fastmf.learning.layered.moves import MoveCouplings
from fastmf.priors._compiled import AddressTable


class Preconditioners:
    """The preconditioners of all layers, also packed, and the table that kernels take.

    Parameters
    ----------
    model : RBM or DBM

    Attributes
    ----------
    table : AddressTable of shape (n_layers, 2)
    """

    def __init__(self, model):
        self._matrices = [np.zeros((n, n), model.dtype) for n in model.sizes]
        self._packed = [empty_panels(n, n, model.dtype) for n in model.sizes]
        arrays = list(zip(self._matrices, self._packed, strict=True))
        self.table = AddressTable([[a.ctypes.data for a in pair] for pair in arrays], arrays)

    def load(self, given):
        """Take over those of a state."""
        for matrix, packed, new in zip(self._matrices, self._packed, given, strict=True):
            matrix[:] = new
            fill_panels(matrix, packed)


class MovePreconditioned(MoveCouplings):
    """The update of couplings along the gradient times the preconditioners of both layers."""

    conditioned = True
    kernels_of_update = preconditioned.find_gradients, preconditioned.move_preconditioned

    def __init__(self, run, arguments):
        super().__init__(run, arguments)
        self.preconditioners = Preconditioners(run.problem.model)
        arguments |= {
            "preconditioners": self.preconditioners.table,
            "decay": (float(run.options.l2), float(run.options.l1)),
            "l1": 0.0,
        }

    def load(self, state, rows):
        """Take over couplings, their last step, and preconditioners."""
        super().load(state, rows)
        self.preconditioners.load(state.preconditioners)
