"""Steps of learning an RBM with groups of states by mean field or TAP, each in one call."""

import numpy as np

from fastmf.inference.mean_field._grouped_layout import GroupedLayout
from fastmf.kernels.training.groups import phases_of_groups
from fastmf.learning.layered.steps_of_parameters import StepsOfParameters


class StepsOfGroups(StepsOfParameters):
    """Steps of learning an RBM with groups of states by mean field or TAP, from dense rows.

    Samples need no couplings that are packed group by group: `StepsOfParameters` draws them.
    """

    layout_class = GroupedLayout

    def _phases(self):
        return phases_of_groups(self.order)

    def _second_moments(self, n_units, dtype):
        return np.zeros((self.n_starts if self.order > 1 else 0, n_units), dtype)

    def _right(self, n_above, width):
        return -(-n_above // width), self.n_starts if self.order > 1 else 0, width

    def _copies(self, n_couplings):
        """None that the update of the couplings fills in: a phase of its own does."""
        return np.zeros((n_couplings, 4, 5), np.int64)
