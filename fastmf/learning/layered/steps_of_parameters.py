"""Steps of learning an RBM of any units of this package, each in one call of a kernel."""

import numpy as np

from fastmf.kernels.mean_field.arguments import Layers
from fastmf.kernels.training import arguments as types
from fastmf.kernels.training.units import phases_of_parameters
from fastmf.learning.layered.domain import after_step, exists, has_constraints
from fastmf.learning.layered.steps_of_fields import StepsOfFields
from fastmf.learning.training.parameters import ModelParameters
from fastmf.models.dbm import machine_of
from fastmf.priors._domain import average_gradient, field_is_tilt, has_spike
from fastmf.priors._protocol import learned_fields, map_parameters, precomputed, project
from fastmf.priors._scaling import by_log_precision, with_log_steps


class StepsOfParameters(StepsOfFields):
    """Steps of learning an RBM of any units of this package from dense rows.

    A step is one call of the kernel, after which the parameters of the units are moved here: what
    that takes is some operations on vectors of all units.
    """

    fields_only = False

    def _phases(self):
        return phases_of_parameters(self.order)

    def _load_units(self, priors, velocities):
        self.priors, self.velocities = priors, velocities
        self._set_units(self.layout, priors)

    def _set_units(self, layout, priors):
        """Let the solvers of a layout have these units."""
        layers = [
            layer._replace(prior=precomputed(prior))
            for layer, prior in zip(layout.layers.of_model, priors, strict=True)
        ]
        spikes = list(map(has_spike, priors))
        groups, options = layout.layers.groups, {"log_partition": spikes, "draws": self.order == 0}
        layout.layers = Layers(layers, groups, **options)

    def _sweeps(self):
        """What the solvers solve, with the units as they are."""
        return (self.layout.sweep,) * 2

    def _units(self, priors):
        return self.priors, self.velocities

    def _run(self, rows, seeds, rates):
        constrained = has_constraints(self.priors)
        for k in range(len(rows)):
            self.solvers = tuple(map(_with_sweep, self.solvers, self._sweeps()))
            before = [w.copy() for w in self.couplings.weights] if constrained else None
            super()._run(rows[k : k + 1], seeds[k : k + 1], rates[k : k + 1])
            squares = self.statistics.units[types.SQUARES]
            # Written so that NaN counts as diverged.
            moved = squares.max() < self.settings.max_weight**2
            if not moved or not self._move_units(rates[k], before):
                self.parameters.diverged[0] = 1
                return

    def _move_units(self, rate, before):
        """Move the parameters of the units along their gradient; whether these stay finite.

        `before` are the couplings before the step, or None if it cannot lead too far.
        """
        statistics = self.statistics.units
        # As numbers of NumPy they would make float64 of the parameters, and a run that resumes from
        # those of the model would go on from others.
        momentum, rate = float(self.options.momentum), float(rate)
        differences = statistics[types.FIRST : types.NONZERO + 1].copy()
        if self.preconditioned:
            differences[0] = statistics[types.GRADIENT]
        # What the steps of couplings between deviations do to the fields.
        shifts = [statistics[types.MOVED, units].copy() for units in self.layout.bounds]
        for shift, above in zip(shifts[1:], self.couplings.above, strict=True):
            shift += above.sum(axis=0)
        priors, velocities = [], []
        parts = zip(self.priors, self.velocities, self.layout.bounds, shifts, strict=True)
        for prior, velocity, units, shift in parts:
            gradient = average_gradient(prior, differences[:, units])
            gradient = by_log_precision(prior, gradient, means_held=True)
            if field_is_tilt(prior):
                gradient = gradient._replace(field=gradient.field - shift)
            velocities.append(
                map_parameters(lambda v, g: momentum * v + rate * g, velocity, gradient)
            )
            moved = map_parameters(np.add, prior, velocities[-1])
            priors.append(project(with_log_steps(prior, moved, velocities[-1])))
        sums = [np.sum(field) for prior in priors for field in learned_fields(prior)]
        if not np.isfinite(sums).all():
            return False
        if before is not None and not exists(self.couplings.weights, priors):
            priors = self._shorten_step(before, velocities)
        self._load_units(tuple(priors), tuple(velocities))
        return True

    def _shorten_step(self, before, velocities):
        """Take back a step as far as there is no machine after it; returns the priors."""
        model = machine_of(before, self.priors)
        step = ModelParameters(couplings=tuple(self.couplings.velocity), layers=tuple(velocities))
        model = after_step(model, ModelParameters.of(model).combine(np.add, step), step)
        self.couplings.load(model.couplings, self.couplings.velocity)
        self._fill(model)
        return model.layers

    def _fill(self, model):
        """Pack the couplings of a model."""
        self.layout.fill(model)


def _with_sweep(solver, sweep):
    return solver._replace(sweep=sweep)
