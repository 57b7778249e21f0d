"""Steps of learning a deep machine of any units of this package, each in one call of a kernel."""

import numpy as np

from fastmf.inference.mean_field._layout import Layout
from fastmf.inference.mean_field._rows import record_from
from fastmf.kernels.mean_field.arguments import EARLY_RESIDUAL, LATE_RESIDUAL
from fastmf.kernels.mean_field.rows import MEAN
from fastmf.kernels.training.deep import phases_of_deep
from fastmf.learning.layered.step import hidden_layers
from fastmf.learning.layered.steps_of_parameters import StepsOfParameters
from fastmf.models.dbm import machine_of


class StepsOfDeep(StepsOfParameters):
    """Steps of learning a deep machine by mean field, TAP or persistent chains, from dense rows.

    The hidden layers given data are a machine of their own, `above`, with packed couplings of its
    own, which each step fills in, too.
    """

    def __init__(self, model, X, settings, n_batch, n_starts, n_workers=1):
        self.hidden = hidden_layers(model, settings)
        super().__init__(model, X, settings, n_batch, n_starts, n_workers)

    def _phases(self):
        return phases_of_deep(self.order)

    def _allocate(self, model):
        machine = machine_of(model.couplings[1:], model.layers[1:])
        self.above = Layout(machine, max(1, self.order), "blocked")
        super()._allocate(model)

    def _posterior(self, n_units, dtype):
        n_hidden = self.above.n_units
        state = np.zeros((4, self.n_batch, n_hidden), dtype)
        return {
            "posterior": record_from(state, self.hidden["max_iter"], False),
            "data_fields": np.zeros((self.n_batch, n_hidden), dtype),
            "columns": np.array([0, *(b.start for b in self.above.bounds)], np.int64),
            "uncoupled": np.zeros((2, n_units), dtype),
        }

    def _copies(self, n_couplings):
        copies = super()._copies(n_couplings)
        for k in range(1, n_couplings):
            copies[k, 2:] = self.above.copies(k - 1)
        return copies

    def _solvers(self):
        zero_variance = self.options.starts == "data"
        solver = self._solver(self.layout, self.n_starts, self.order, zero_variance=zero_variance)
        posterior = self._solver(
            self.above,
            self.n_batch,
            max(1, self.order),
            tol=self.hidden["tol"],
            max_iter=self.hidden["max_iter"],
            early_residual=EARLY_RESIDUAL,
            late_residual=LATE_RESIDUAL,
        )
        tilt = posterior.tilt._replace(field=self.statistics.data_fields)
        return solver, posterior._replace(tilt=tilt)

    def load(self, state, rows):
        """Take over the parameters of a state."""
        self.above.fill(machine_of(state.model.couplings[1:], state.model.layers[1:]))
        super().load(state, rows)

    def _load_units(self, priors, velocities):
        super()._load_units(priors, velocities)
        self._set_units(self.above, priors[1:])
        zero = self.dtype.type(0)
        for prior, units in zip(priors, self.layout.bounds, strict=True):
            mean, var = prior.moments(zero, zero)
            self.statistics.uncoupled[:, units] = mean, np.where(np.isfinite(var), var, 0)

    def _start_from(self, visible):
        super()._start_from(visible)
        for units in self.layout.bounds[2:]:
            self.statistics.model.state[MEAN][:, units] = self.statistics.uncoupled[MEAN, units]

    def _fill(self, model):
        super()._fill(model)
        self.above.fill(machine_of(model.couplings[1:], model.layers[1:]))

    def _sweeps(self):
        return self.layout.sweep, self.above.sweep
