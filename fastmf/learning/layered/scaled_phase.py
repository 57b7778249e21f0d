"""The phase of compiled steps that moves units whose scale is free: see `hidden_scales`."""

import numpy as np

from fastmf.kernels.training import arguments as types
from fastmf.learning.layered.general_step import apply
from fastmf.learning.layered.moves import MoveUnits, are_finite
from fastmf.learning.training.ascent import State
from fastmf.learning.training.hidden_scales import products_of_units
from fastmf.learning.training.parameters import ModelParameters
from fastmf.priors._queries import average_gradient


class MoveScaled(MoveUnits):
    """The update of machines with units whose scale is free, by the general path.

    The kernel gives the gradient by the couplings: their step, of rate 1, without all else.
    """

    def load(self, state, rows):
        """Take over the machine, and its last step."""
        velocity = state.velocity.combine(np.copy)
        self._state = State(state.model, velocity)
        self._set(state.model.layers, velocity.layers)

    def parameters(self, priors):
        """The priors of the layers as they are, and their last step."""
        return self.priors, self._state.velocity.combine(np.copy).layers

    def before_step(self, rate):
        """The rate that the kernel takes."""
        return 1.0

    def after_step(self, rate):
        """Take the step of the general path; whether all stays finite."""
        run, state, units = self.run, self._state, self.run.statistics.units
        parts = list(zip(self.priors, run.layout.bounds, strict=True))
        differences = units[types.FIRST : types.NONZERO + 1]
        layers = tuple(average_gradient(prior, differences[:, here]) for prior, here in parts)
        gradient = ModelParameters(couplings=tuple(run.couplings.velocity), layers=layers)
        means = [units[types.OFFSET, here].copy() for _, here in parts]
        mean, var, *_ = run.statistics.data
        products = products_of_units(self.priors, [(mean[:, u], var[:, u]) for _, u in parts[1:]])
        try:
            apply(state, gradient, means, run.options, rate, run.n_workers, products=products)
        except FloatingPointError:
            return False
        if not are_finite(state.model.layers):
            return False
        run.couplings.load(state.model.couplings, state.velocity.couplings)
        run.fill(state.model)
        self._set(state.model.layers, state.velocity.layers)
        return True
