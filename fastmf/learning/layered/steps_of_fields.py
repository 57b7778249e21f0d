"""Many steps of learning an RBM of binary units in one call of a kernel."""

from functools import cache

import numpy as np
from scipy.sparse import csr_array

from fastmf._common.rows import is_sparse
from fastmf._threads.workers import in_parallel
from fastmf.inference.mean_field._layout import Layout, rows_per_worker
from fastmf.inference.mean_field._rows import record_from
from fastmf.inference.mean_field.data import sparse_rows
from fastmf.kernels.linear.product import panel_width
from fastmf.kernels.linear.sparse_rows import SparseRows, add_rows_address
from fastmf.kernels.mean_field.arguments import Layers, TapSettings, Tilt
from fastmf.kernels.mean_field.rows import MEAN, SLOT_SIZE, VAR, ActiveRows, worker_shapes
from fastmf.kernels.training import arguments as types
from fastmf.kernels.training.gradients import TASK_ROWS
from fastmf.kernels.training.preconditioned import PRECONDITIONED
from fastmf.kernels.training.sparse import sparse_phases
from fastmf.kernels.training.train import phase_addresses, phases
from fastmf.kernels.training.train import train as train_kernel
from fastmf.learning.layered.gradients import MEAN_FIELD, ORDERS
from fastmf.learning.layered.starts import starts
from fastmf.learning.layered.step_memory import (
    Couplings,
    Preconditioners,
    gradient_of,
    tasks_of,
    terms_of,
)
from fastmf.learning.training.ascent import MAX_WEIGHT, diverged, initial_state
from fastmf.learning.training.parameters import ModelParameters
from fastmf.priors._compiled import AddressTable
from fastmf.priors._domain import field_is_tilt

# Units whose averages are taken in one task.
TASK_UNITS = 512


def is_persistent(settings):
    """Whether solutions or samples go on from those of the step before."""
    return settings.gradient == "pcd" or (
        settings.gradient in MEAN_FIELD and settings.starts == "persistent"
    )


class StepsOfFields:
    """Steps of learning an RBM of binary units from batches of so many rows.

    Parameters
    ----------
    model : RBM
        Of the shape and the units of those that will be trained.
    X : C-contiguous array or csr_array of shape (n_rows, n_visible)
        In the type of the model.
    settings : LayeredSettings
    n_batch, n_starts : int
        Rows of a batch, and solutions or samples in each step.
    n_workers : int
        Threads; results do not depend on it.
    """

    # Whether fields are all that is learned of the units.
    fields_only = True
    layout_class = Layout

    def __init__(self, model, X, settings, n_batch, n_starts, n_workers=1):
        self.X, self.options, self.n_batch, self.n_starts = X, settings, n_batch, n_starts
        self.order = ORDERS.get(settings.gradient, 0)
        self.model, self.dtype = None, model.dtype
        self.preconditioned = settings.preconditioning is not None
        self.n_workers, self.sparse = n_workers, is_sparse(X)
        self.layout = self.layout_class(model, max(1, self.order), "blocked")
        self._allocate(model)
        self._load_units(model.layers, initial_state(model).velocity.layers)
        self.solvers = self._solvers()
        tilts = [field_is_tilt(prior) for prior in model.layers]
        self.settings = types.Settings(
            momentum=float(settings.momentum),
            decay=(float(settings.l2), float(settings.l1) * self.preconditioned),
            l1=float(settings.l1) * (not self.preconditioned),
            centred=np.array(tilts, np.int64) * settings.centred,
            phases=np.zeros(types.N_PHASES, np.int64),
            solved=self.order > 0,
            order=max(1, self.order),
            n_sweeps=settings.n_sweeps,
            tilts_kept=not self.fields_only,
            persistent=is_persistent(settings),
            max_weight=MAX_WEIGHT,
            add_rows=add_rows_address(model.dtype) if self.sparse else 0,
            task_rows=self._task_rows(),
            task_samples=min(TASK_ROWS, max(4, -(-n_starts // n_workers))),
        )
        self.settings.phases[:] = phase_addresses(model.dtype, self._all_phases())

    def _all_phases(self):
        return self._phases() | (PRECONDITIONED if self.preconditioned else {})

    def _phases(self):
        """The compiled phases, for gradients without preconditioners."""
        return (sparse_phases if self.sparse else phases)(self.order)

    def _task_rows(self):
        """Rows of one task: several for each thread, but not so few that products are slow."""
        if self.sparse:  # all couplings are read once for each task
            return -(-self.n_batch // self.n_workers)
        each = -(-self.n_batch // (4 * self.n_workers))
        return min(TASK_ROWS, max(4, each // 4 * 4))

    def _allocate(self, model):
        dtype, width, bounds = model.dtype, panel_width(model.dtype), self.layout.bounds
        n_visible, n_units, n_couplings = model.sizes[0], sum(model.sizes), len(model.couplings)
        data, state = self._moments(n_visible, n_units, dtype)
        task_units = TASK_UNITS if self.fields_only else TASK_UNITS // 8
        second = self._second_moments(n_units, dtype)
        of_model = (*state[:VAR], second if second.size else state[VAR], *state[VAR + 1 :])
        terms = [
            terms_of(k, None if self.sparse else data, of_model, self.order)
            for k in range(n_couplings)
        ]
        gradient = gradient_of(terms, bounds, dtype)
        options = {"grouped": second.size > 0, "preconditioned": self.preconditioned}
        self.couplings = Couplings(model, gradient.ends, **options)
        self.preconditioners = Preconditioners(model, self.preconditioned)
        self.parameters = types.Parameters(
            couplings=self.couplings.table,
            fields=np.zeros((3, n_units), dtype),
            copies=self._copies(n_couplings),
            diverged=np.zeros(1, np.int64),
            preconditioners=self.preconditioners.table,
        )
        self.statistics = types.Statistics(
            data=data,
            model=record_from(state, self.options.n_sweeps, False),
            terms=gradient.table,
            scales=gradient.scales,
            hidden=gradient.hidden,
            averages=tasks_of([b.start for b in bounds], model.sizes, task_units),
            slabs=tasks_of([0] * n_couplings, model.sizes[:-1], width),
            units=np.zeros((types.N_STATISTICS, n_units), dtype),
            turned=self._turned(0, n_visible, dtype),
            second=second,
            **self._posterior(n_units, dtype),
        )
        n_above = max(model.sizes[1:])
        n_columns = max(n_visible, n_above, self.layout.max_columns, self.layout.n_own_fields)
        n_columns = -(-n_columns // width) * width
        self.scratch = types.Scratch(
            products=np.zeros((self.n_workers, max(TASK_ROWS, width), n_columns), dtype),
            slab=np.zeros((self.n_workers, width, n_above), dtype),
            left=np.zeros((self.n_workers, gradient.n_rows, width), dtype),
            right=np.zeros((self.n_workers, *self._right(n_above, width)), dtype),
            vectors=np.zeros((self.n_workers, 3, n_columns), dtype),
            uniforms=np.zeros((self.n_workers, n_columns)),
            active=np.zeros((self.n_workers, n_visible if self.sparse else 0), np.int32),
            n_active=np.zeros((self.n_workers, 2), np.int64),
        )

    def _moments(self, n_visible, n_units, dtype):
        """Memory for moments given the rows of data, and for solutions or samples."""
        state = 4, self.n_starts, n_units
        if self.sparse:
            data = np.zeros((4, self.n_batch, n_units - n_visible), dtype)
            return types.Moments(*data), np.zeros(state, dtype)
        # The rows of data lie before those of the model, so that one product is of both.
        memory = np.zeros((self.n_batch + 4 * self.n_starts, n_units), dtype)
        others = np.zeros((3, self.n_batch, n_units), dtype)
        return types.Moments(memory[: self.n_batch], *others), memory[self.n_batch :].reshape(state)

    def _second_moments(self, n_units, dtype):
        """Memory for second moments: none without groups of states, where variances suffice."""
        return np.zeros((0, n_units), dtype)

    def _right(self, n_above, width):
        """Shape of packed hidden units of the model: of none without groups of states."""
        return 0, 0, width

    def _turned(self, n_stored, n_visible, dtype):
        """Memory for the transpose of a batch of sparse rows."""
        stored = np.empty(n_stored, dtype), np.empty(n_stored, np.int32)
        return SparseRows(*stored, *np.empty((2, n_visible if self.sparse else 0), np.int64))

    def _posterior(self, n_units, dtype):
        """Memory for solutions for the hidden layers given data: none but in deep machines."""
        return {
            "posterior": record_from(np.zeros((4, 0, 0), dtype), 0, False),
            "data_fields": np.zeros((0, 0), dtype),
            "columns": np.zeros(0, np.int64),
            "uncoupled": np.zeros((2, 0), dtype),
        }

    def _copies(self, n_couplings):
        """Where the packed copies of the couplings are."""
        copies = np.zeros((n_couplings, 4, 5), np.int64)
        for k in range(n_couplings):
            copies[k, :2] = self.layout.copies(k)
        if self.sparse and not self.order:
            copies[0, 0, 0] = 0  # no product takes them
        return copies

    def _solvers(self):
        """The solver of the model, twice: the second one is that of deep machines."""
        from_data = self.options.starts == "data"
        half_sweep = from_data and self.n_starts <= self.n_batch
        options = {"half_sweep_done": half_sweep, "zero_variance": from_data and not half_sweep}
        # Groups need the fields of single groups, which half a sweep would not leave.
        options = {} if self.layout.grouped else options
        return (self._solver(self.layout, self.n_starts, self.order, **options),) * 2

    def _solver(self, layout, n_rows, order, **options):
        """A solver of so many rows, of order 0 none; `options` are those of `TapSettings`."""
        settings = TapSettings(
            order=max(1, order),
            **{"tol": 1e-8, "max_iter": self.options.n_sweeps, "late_residual": 0.0} | options,
            **(layout.addresses(order) if order else {"update": 0, "finish": 0}),
            rows_per_worker=rows_per_worker(n_rows, self.n_workers, layout.max_worker_rows),
            resolution=float(np.finfo(self.dtype).eps),
            tilts_kept=not self.fields_only,
        )
        sizes = layout.n_units, layout.max_columns, layout.n_group_fields
        shapes = worker_shapes(settings, *sizes)
        slots = np.empty((self.n_workers, 1, settings.rows_per_worker, SLOT_SIZE))
        parts = (np.empty((self.n_workers, *shape), self.dtype) for shape in shapes)
        none = np.zeros((1, layout.n_units), self.dtype)
        tilt = Tilt(none, none, none.astype(bool))
        return types.Solver(layout.sweep, settings, tilt, ActiveRows(slots, *parts))

    def load(self, state, rows):
        """Take over the parameters of a state, and its solutions or samples.

        Without these, persistent ones start from some rows of the data.
        """
        model, velocity = state.model, state.velocity
        self.layout.fill(model)
        self.couplings.load(model.couplings, velocity.couplings)
        self._load_units(model.layers, velocity.layers)
        if self.settings.persistent and state.chains:
            self._go_on_from(state.chains)
        elif self.settings.persistent:
            self._start_from(starts("data", model, self.X[rows], self.n_starts, 0.0, None))

    def _start_from(self, visible):
        """Solutions or samples of which the visible units are known."""
        state = self.statistics.model.state
        state[:] = 0
        state[MEAN][:, self.layout.bounds[0]] = visible

    def _load_units(self, priors, velocities):
        """Take over the parameters of the units, and their last step."""
        for prior, step, units in zip(priors, velocities, self.layout.bounds, strict=True):
            self.parameters.fields[:2, units] = prior.field, step.field
            self.parameters.fields[2, units] = prior.max_field
        layers = [
            layer._replace(prior=layer.prior._replace(field=self.parameters.fields[0, units]))
            for layer, units in zip(self.layout.layers.of_model, self.layout.bounds, strict=True)
        ]
        self.layout.layers = Layers(layers, draws=self.order == 0)

    def _go_on_from(self, chains):
        """Solutions or samples, as they are in a state."""
        planes = self.statistics.model.state
        planes[:] = 0
        if not self.order:
            planes[MEAN][:, : self.layout.bounds[1].start] = chains[0]
            return
        for k, units in enumerate(self.layout.bounds):
            planes[MEAN][:, units], planes[VAR][:, units] = chains[k], chains[len(chains) // 2 + k]

    def take(self, state, rows, seeds, rates):
        """Take the steps of some batches.

        Parameters
        ----------
        state : State
            Changed in place.
        rows : int array of shape (n_steps, n_batch)
            Rows of the data of each batch.
        seeds : sequence of int
            Of Gibbs sampling in each.
        rates : sequence of float
            Learning rate of each.

        Raises
        ------
        FloatingPointError
            If couplings grow without bound.
        """
        if state.model is not self.model:
            self.load(state, rows[0])
        if self.preconditioned:
            self.preconditioners.load(state.preconditioners)
        self._run(rows, seeds, rates)
        if self.parameters.diverged[0]:
            raise diverged(state.epoch)
        self._store(state)

    def _run(self, rows, seeds, rates):
        """Take the steps in one call of the kernel."""
        try:
            in_parallel(train_kernel, self.arguments(rows, seeds, rates), self.n_workers)
        except BaseException:  # Ctrl-C: parameters are those of no step
            self.model = None
            raise

    def arguments(self, rows, seeds, rates):
        """Those of the kernel; see `take`."""
        rows, seeds = np.ascontiguousarray(rows, np.int64), np.array(seeds, np.uint64)
        queues = np.zeros((len(rows), types.N_PHASES, types.QUEUE_SIZE), np.int64)
        return (
            self._batches(rows, seeds, np.array(rates, np.float64)),
            *(self.parameters, self.solvers, self.settings, self.statistics, self.scratch),
            *(queues, np.zeros(1, np.int64)),
        )

    def _batches(self, rows, seeds, rates):
        """The rows of batches, with memory for the transpose of the largest."""
        if not self.sparse:
            data = AddressTable([self.X.ctypes.data], self.X)
            return types.Batches(data, rows, seeds, rates, _no_rows(self.dtype))
        given = sparse_rows(self.X[rows.ravel()], self.dtype)
        n_stored = np.diff(given.ends[self.n_batch - 1 :: self.n_batch], prepend=0).max(initial=0)
        if n_stored > len(self.statistics.turned.values):
            turned = self._turned(n_stored, self.X.shape[1], self.dtype)
            self.statistics = self.statistics._replace(turned=turned)
        return types.Batches(AddressTable([0], given), rows, seeds, rates, given)

    def _store(self, state):
        """Give a state the parameters as they are."""
        weights, velocity = self.couplings.copies()
        layers, moved = self._units(state.model.layers)
        state.model = self.model = state.model.rebuilt(weights, layers)
        state.velocity = ModelParameters(couplings=velocity, layers=moved)
        if self.settings.persistent:
            bounds, (mean, var) = self.layout.bounds, self.statistics.model.state[:2]
            kept = [(mean, units) for units in bounds] + [(var, units) for units in bounds]
            if not self.order:
                # Samples of the even layers, which lie before the others, are enough.
                kept = [(mean, slice(bounds[1].start))]
            state.chains = tuple(part[:, units].copy() for part, units in kept)

    def _units(self, priors):
        """The priors of the layers as they are, and their last step."""
        fields, moves, _ = self.parameters.fields
        pairs = list(zip(priors, self.layout.bounds, strict=True))
        moved = (prior._replace(field=moves[units].copy()) for prior, units in pairs)
        return tuple(prior._replace(field=fields[units]) for prior, units in pairs), tuple(moved)


@cache
def _no_rows(dtype):
    """The sparse rows of dense data."""
    return sparse_rows(csr_array((0, 0), dtype=dtype), dtype)
