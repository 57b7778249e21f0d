"""The phases of compiled training steps that move couplings and units."""

from collections.abc import Sequence

import numpy as np

from fastmf.kernels.linear.product import panel_width
from fastmf.kernels.mean_field.rows import MEAN, VAR
from fastmf.kernels.training import arguments as types
from fastmf.kernels.training import deep, gradients, groups, sparse
from fastmf.kernels.training.units import average_moments
from fastmf.learning.layered.domain import after_step, exists, has_constraints, layers_after
from fastmf.learning.layered.memory import Couplings, gradient_of, tasks_of, terms_of
from fastmf.learning.layered.phases import Phase
from fastmf.learning.training.ascent import MAX_MODULUS
from fastmf.learning.training.centring import tilts, with_moved_fields
from fastmf.learning.training.parameters import ModelParameters
from fastmf.models.dbm import machine_of
from fastmf.priors._protocol import learned_fields, map_parameters
from fastmf.priors._queries import average_gradient, has_average_gradient
from fastmf.priors._scaling import by_log_precision

# Units whose averages are taken in one task: where fields alone are learned, and otherwise.
TASK_FIELDS, TASK_UNITS = 512, 64


class MoveCouplings(Phase):
    """Averages of units, the gradient by the couplings, their update and packed copies."""

    # Whether there is memory for the packed gradient times preconditioners: see `Couplings`.
    conditioned = False
    kernels_of_update: Sequence = (gradients.move_couplings,)

    def __init__(self, run, arguments):
        super().__init__(run, arguments)
        problem, options = run.problem, run.options
        self.kernels = self._kernels(problem)
        data, state = arguments["data"], arguments["model"].state
        second_moments = arguments.get("second_moments", state[VAR])
        of_model = (state[MEAN], second_moments, *state[VAR + 1 :])
        data = None if problem.sparse else data
        n_couplings, width = len(run.sizes) - 1, panel_width(run.dtype)
        terms = [terms_of(k, data, of_model, problem.order) for k in range(n_couplings)]
        gradient = gradient_of(terms, run.layout.bounds, run.dtype)
        effects = "second_moments" in arguments or problem.integrated
        self.couplings = Couplings(problem.model, gradient.ends, effects, self.conditioned)
        starts = [units.start for units in run.layout.bounds]
        n_units = TASK_FIELDS if problem.fields_only else TASK_UNITS
        arguments |= {
            "couplings": self.couplings.table,
            "copies": self._copies(run),
            "terms": gradient.table,
            "scales": gradient.scales,
            "hidden": gradient.hidden,
            "averages": tasks_of(starts, run.sizes, n_units),
            "panels": tasks_of([0] * n_couplings, run.sizes[:-1], width),
            "weight_rows": np.zeros((run.n_workers, width, max(run.sizes[1:])), run.dtype),
            "left": np.zeros((run.n_workers, gradient.n_rows, width), run.dtype),
            "centred": np.zeros(n_couplings + 1, np.int64),
            "max_weight": MAX_MODULUS,
        }
        if not problem.scaled:
            arguments |= {
                "momentum": float(options.momentum),
                "decay": (float(options.l2), 0.0),
                "l1": float(options.l1),
                "centred": np.array(tilts(problem.model.layers), np.int64) * options.centred,
            }

    def _kernels(self, problem):
        return [
            sparse.average_sparse if problem.sparse
            else gradients.average if problem.fields_only
            else average_moments,
            *((sparse.move_sparse,) if problem.sparse else self.kernels_of_update),
            *[groups.repack_groups] * problem.grouped,
            *[deep.repack_hidden] * problem.model.deep,
        ]  # fmt: skip

    @staticmethod
    def _copies(run):
        """Where the packed copies of the couplings are."""
        copies = np.zeros((len(run.sizes) - 1, 4, 5), np.int64)
        if run.layout.grouped:  # `repack_groups` fills them in
            return copies
        for k, of_coupling in enumerate(copies):
            of_coupling[:2] = run.layout.copies(k)
            if k > 0:
                of_coupling[2:] = run.layouts[1].copies(k - 1)
        if run.problem.sparse and not run.problem.order:
            copies[0, 0, 0] = 0  # no product takes them
        return copies

    def load(self, state, rows):
        """Take over couplings, and their last step."""
        self.couplings.load(state.model.couplings, state.velocity.couplings)


class MoveFields(Phase):
    """The update of the fields of binary units, in the kernel."""

    kernels = (gradients.move_fields,)
    in_kernel = True

    def __init__(self, run, arguments):
        super().__init__(run, arguments)
        self.fields = arguments["fields"] = np.zeros((2, run.n_units), run.dtype)

    def load(self, state, rows):
        """Take over fields, and their last step."""
        layers, velocities = state.model.layers, state.velocity.layers
        for prior, step, units in zip(layers, velocities, self.run.layout.bounds, strict=True):
            self.fields[:, units] = prior.field, step.field
        self.run.set_units(self._with_fields(layers, self.fields[0]))

    def _with_fields(self, priors, fields):
        pairs = zip(priors, self.run.layout.bounds, strict=True)
        return tuple(prior._replace(field=fields[units]) for prior, units in pairs)

    def parameters(self, priors):
        """The priors of the layers as they are, and their last step."""
        fields, velocities = (self._with_fields(priors, part.copy()) for part in self.fields)
        return fields, velocities


class MoveUnits(Phase):
    """The update of all parameters of the units, from averages over the rows.

    It takes some operations on vectors of all units, which are made after each call of the kernel.
    """

    in_kernel = False

    @staticmethod
    def requires(problem):
        """Gradients by the parameters of units are linear in averages over rows."""
        known = all(map(has_average_gradient, problem.model.layers))
        return {"units of this package": known}

    def load(self, state, rows):
        """Take over the units, and their last step."""
        self._constrained = has_constraints(state.model.layers)
        self._set(state.model.layers, state.velocity.layers)

    def _set(self, priors, velocities):
        self.priors, self.velocities = priors, velocities
        self.run.set_units(priors)

    def parameters(self, priors):
        """The priors of the layers as they are, and their last step."""
        return self.priors, self.velocities

    def before_step(self, rate):
        """Keep the couplings before a step, if it may be taken back; returns the kernel's rate."""
        weights = self.run.couplings.weights
        self._before = [w.copy() for w in weights] if self._constrained else None
        return rate

    def after_step(self, rate):
        """Move the parameters of the units along their gradient; whether all stay finite."""
        statistics, couplings = self.run.statistics.units, self.run.couplings
        # Written so that NaN counts as diverged.
        if not statistics[types.SQUARES].max() < MAX_MODULUS**2:
            return False
        # As numbers of NumPy they would make float64 of the parameters, and a run that resumes from
        # those of the model would go on from others.
        momentum, rate = float(self.run.options.momentum), float(rate)
        pairs = zip(self.velocities, self._gradients(statistics), strict=True)
        velocities = tuple(
            map_parameters(lambda v, g: momentum * v + rate * g, *pair) for pair in pairs
        )
        if not are_finite(velocities):
            return False
        moved = tuple(map(_sum, self.priors, velocities))
        priors = layers_after(self.priors, moved, velocities)
        if self._constrained and not exists(couplings.weights, priors):
            priors = self._shorten_step(velocities)
        self._set(priors, velocities)
        return True

    def _gradients(self, statistics):
        """Gradients by the parameters of each layer, given the steps of the couplings."""
        run, priors = self.run, self.priors
        differences = statistics[types.FIRST : types.NONZERO + 1].copy()
        if run.options.preconditioning is not None:
            differences[0] = statistics[types.GRADIENT]
        gradients = [
            by_log_precision(prior, average_gradient(prior, differences[:, units]), means_held=True)
            for prior, units in zip(priors, run.layout.bounds, strict=True)
        ]
        moves = [statistics[types.STEP_DOT_OFFSET, units].copy() for units in run.layout.bounds]
        for move, products in zip(moves[1:], run.couplings.offset_products, strict=True):
            move += products.sum(axis=0)
        return with_moved_fields(priors, gradients, moves)

    def _shorten_step(self, velocities):
        """Take back a step as far as there is no machine after it; returns the priors."""
        couplings, before = self.run.couplings, machine_of(self._before, self.priors)
        step = ModelParameters(couplings=tuple(couplings.velocity), layers=velocities)
        model = after_step(before, ModelParameters.of(before).combine(np.add, step), step)
        couplings.load(model.couplings, couplings.velocity)
        self.run.fill(model)
        return model.layers


def _sum(prior, step):
    return map_parameters(np.add, prior, step)


def are_finite(priors):
    """Whether all learned parameters of some layers are finite."""
    sums = [np.sum(field) for prior in priors for field in learned_fields(prior)]
    return bool(np.isfinite(sums).all())
