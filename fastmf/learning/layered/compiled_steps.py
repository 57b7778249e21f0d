"""Many steps of learning a layered machine in one call of a kernel."""

import numpy as np

from fastmf._common.rows import is_sparse
from fastmf._jit.argument_types import Workers, placeholder
from fastmf._threads.workers import in_parallel
from fastmf.inference.mean_field._grouped_layout import GroupedLayout
from fastmf.inference.mean_field._layout import Layout
from fastmf.kernels.linear.product import panel_width
from fastmf.kernels.mean_field.arguments import Layers
from fastmf.kernels.training import arguments as types
from fastmf.kernels.training.gradients import TASK_ROWS
from fastmf.kernels.training.train import phase_table
from fastmf.kernels.training.train import train as train_kernel
from fastmf.learning.layered.deep_phase import DeepRows
from fastmf.learning.layered.gradients import MEAN_FIELD
from fastmf.learning.layered.integrated_phase import SolveOthers
from fastmf.learning.layered.moves import MoveCouplings, MoveFields, MoveUnits
from fastmf.learning.layered.phases import DenseRows, Problem, Sample, Solve
from fastmf.learning.layered.preconditioned_phase import MovePreconditioned
from fastmf.learning.layered.scaled_phase import MoveScaled
from fastmf.learning.layered.sparse_phase import SparseRows
from fastmf.learning.training.ascent import diverged
from fastmf.learning.training.parameters import ModelParameters
from fastmf.models.dbm import machine_of
from fastmf.priors._protocol import precomputed
from fastmf.priors._queries import has_spike


def phases_of(problem):
    """The classes of the phases of a step, in order."""
    return (
        SparseRows if problem.sparse else DeepRows if problem.model.deep else DenseRows,
        SolveOthers
        if problem.integrated
        else Solve
        if problem.settings.gradient in MEAN_FIELD
        else Sample,
        MoveCouplings if problem.settings.preconditioning is None else MovePreconditioned,
        MoveFields if problem.fields_only else MoveScaled if problem.scaled else MoveUnits,
    )


class CompiledSteps:
    """Steps of learning from batches of so many rows: a list of phases, run by one kernel.

    Parameters
    ----------
    model : RBM or DBM
        Machine of the shape and the units of those that will be trained.
    X : C-contiguous array or csr_array of shape (n_rows, n_visible)
        Rows in the type of the model.
    settings : LayeredSettings
    n_batch, n_starts : int
        Rows of a batch, and solutions or samples in each step.
    n_workers : int
        Threads; results do not depend on it.

    Attributes
    ----------
    phases : list of Phase
    layouts : list of Layout
        Packed couplings of the model and, if it is deep, of its hidden layers.
    """

    def __init__(self, model, X, settings, n_batch, n_starts, n_workers=1):
        problem = self.problem = Problem(model, settings, is_sparse(X))
        self.X, self.options, self.n_batch, self.n_starts = X, settings, n_batch, n_starts
        self.n_workers, self.dtype = n_workers, model.dtype
        self.sizes, self.n_units = model.sizes, sum(model.sizes)
        kind = GroupedLayout if problem.grouped else Layout
        self.layouts = [kind(m, max(1, problem.order), "blocked") for m in _machines(model)]
        self.layout = self.layouts[0]
        self.solvers = [placeholder(self.dtype, types.Solver) for _ in range(2)]
        found = self._shared_arguments()
        self.phases = [phase(self, found) for phase in phases_of(problem)]
        self.rows, _, moved, self.units = self.phases
        self.couplings = moved.couplings
        self.parts = self._parts()
        kinds = types.Parameters, types.Settings, types.Statistics, Workers[types.Scratch]
        parts = (placeholder(self.dtype, kind, n_workers) for kind in kinds)
        self.parameters, self.settings, self.statistics, self.scratch = (
            part._replace(**{name: found[name] for name in part._asdict() if name in found})
            for part in parts
        )
        self._known = None, None

    def _parts(self):
        """The tables of phases of each call of the kernel, and what is done after each."""
        parts, kernels = [], []
        for phase in self.phases:
            kernels += phase.kernels
            if phase.after is not None:
                parts.append((phase_table(self.dtype, kernels), phase.after))
                kernels = []
        return [*parts, (phase_table(self.dtype, kernels), None)]

    def _shared_arguments(self):
        """Arguments of the kernel that belong to no phase alone."""
        width, layout, n = panel_width(self.dtype), self.layout, self.n_workers
        n_columns = max(*self.sizes, layout.max_columns, layout.n_own_fields)
        n_columns = -(-n_columns // width) * width
        return {
            "solved": self.problem.order > 0,
            "order": max(1, self.problem.order),
            "n_sweeps": self.options.n_sweeps,
            "tilts_kept": not self.problem.fields_only,
            "persistent": self.problem.persistent,
            "diverged": np.zeros(1, np.int64),
            "units": np.zeros((types.N_STATISTICS, self.n_units), self.dtype),
            "products": np.zeros((n, max(TASK_ROWS, width), n_columns), self.dtype),
            "vectors": np.zeros((n, 3, n_columns), self.dtype),
            "uniforms": np.zeros((n, n_columns)),
        }

    def fill(self, model):
        """Pack the couplings of a model."""
        for layout, machine in zip(self.layouts, _machines(model), strict=True):
            layout.fill(machine)

    def set_units(self, priors):
        """Let all phases have these units."""
        for first, layout in enumerate(self.layouts):
            here, old = priors[first:], layout.layers
            layers = [
                layer._replace(prior=precomputed(prior))
                for layer, prior in zip(old.of_model, here, strict=True)
            ]
            options = {
                "log_partition": list(map(has_spike, here)),
                "draws": not self.settings.solved,
            }
            layout.layers = Layers(layers, old.groups, **options)
        if self.problem.model.deep:
            zero = self.dtype.type(0)
            for prior, units in zip(priors, self.layout.bounds, strict=True):
                mean, var = prior.moments(zero, zero)
                self.statistics.uncoupled[:, units] = mean, np.where(np.isfinite(var), var, 0)

    def load(self, state, rows):
        """Take over a state; where it has no persistent states, these start from rows of data."""
        self.fill(state.model)
        # In this order: units without couplings are among the starts of solutions.
        for phase in reversed(self.phases):
            phase.load(state, rows)

    def take(self, state, rows, seeds, rates):
        """Take the steps of some batches."""
        model, preconditioners = self._known
        if state.model is not model or state.preconditioners is not preconditioners:
            self.load(state, rows[0])
        self._known = None, None  # Ctrl-C: parameters are those of no step
        if not self._run(rows, seeds, rates):
            raise diverged(state.epoch)
        weights, velocity = self.couplings.copies()
        layers, moved = self.units.parameters(state.model.layers)
        state.model = state.model.rebuilt(weights, layers)
        state.velocity = ModelParameters(couplings=velocity, layers=moved)
        for phase in self.phases:
            phase.store(state)
        self._known = state.model, state.preconditioners

    def _run(self, rows, seeds, rates):
        """Take steps, in one call of the kernel if it moves the units; whether all stay finite."""
        if self.units.in_kernel:
            self._call(rows, seeds, rates)
            return not self.parameters.diverged[0]
        for k, rate in enumerate(rates):
            here = slice(k, k + 1)
            self._call(rows[here], seeds[here], [self.units.before_step(rate)])
            if not self.units.after_step(rate):
                return False
        return True

    def _call(self, rows, seeds, rates):
        for phases, then in self.parts:
            arguments = self.arguments(rows, seeds, rates, phases)
            in_parallel(train_kernel, arguments, self.n_workers)
            if then is not None:
                then()

    def arguments(self, rows, seeds, rates, phases):
        """Arguments of the kernel for the steps of some rows, and a table of phases."""
        rows, seeds = np.ascontiguousarray(rows, np.int64), np.array(seeds, np.uint64)
        batches = self.rows.batches(rows, seeds, np.array(rates, np.float64))
        layouts = self.layout, self.layouts[-1]
        solvers = tuple(
            solver._replace(sweep=layout.sweep)
            for solver, layout in zip(self.solvers, layouts, strict=True)
        )
        queues = np.zeros((len(rows), len(phases), types.QUEUE_SIZE), np.int64)
        settings = self.settings._replace(phases=phases)
        return (
            *(batches, self.parameters, solvers, settings, self.statistics, self.scratch),
            *(queues, np.zeros(1, np.int64)),
        )


def _machines(model):
    """A model, and if it is deep the machine of its hidden layers."""
    yield model
    if model.deep:
        yield machine_of(model.couplings[1:], model.layers[1:])
