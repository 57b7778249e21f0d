"""Many steps of learning an RBM of binary units in one call of a kernel."""

from functools import cache

import numpy as np
from scipy.sparse import csr_array

from fastmf._common.rows import is_sparse
from fastmf._threads import in_parallel
from fastmf.inference.mean_field._layout import Layout, rows_per_worker
from fastmf.inference.mean_field._layouts import prepare_solve
from fastmf.inference.mean_field._rows import record_from
from fastmf.inference.mean_field.data import sparse_rows
from fastmf.kernels import training_types as types
from fastmf.kernels.ascent import AscentStep
from fastmf.kernels.mean_field_types import Layers, TapSettings, Tilt
from fastmf.kernels.product import empty_panels, panel_width
from fastmf.kernels.sparse_rows import SparseRows, add_rows_address
from fastmf.kernels.statistics import N_ROWS
from fastmf.kernels.tap_rows import MEAN, SLOT_SIZE, VAR, A, ActiveRows, worker_shapes
from fastmf.kernels.training import TASK_ROWS, phase_addresses, phases
from fastmf.kernels.training import train as train_kernel
from fastmf.kernels.training_sparse import sparse_phases
from fastmf.learning.layered.gradients import MEAN_FIELD, ORDERS
from fastmf.learning.layered.starts import starts
from fastmf.learning.training.ascent import MAX_WEIGHT, diverged
from fastmf.learning.training.parameters import ModelParameters
from fastmf.priors._compiled import AddressTable
from fastmf.priors._domain import (
    field_is_tilt,
    two_values,
)

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

    def __init__(self, model, X, settings, n_batch, n_starts, n_workers=1):
        self.X, self.options, self.n_batch, self.n_starts = X, settings, n_batch, n_starts
        self.order = ORDERS.get(settings.gradient, 0)
        self.model = None
        self.n_workers, self.sparse = n_workers, is_sparse(X)
        self._allocate(model)
        self.layout = self._layout(model)
        self.solver = self._solver(model.dtype)
        self.settings = types.Settings(
            ascent=AscentStep(0.0, *map(float, (settings.momentum, settings.l2, settings.l1))),
            centred=settings.centred,
            tilts=np.array([field_is_tilt(prior) for prior in model.layers], np.int64),
            phases=np.zeros(types.N_PHASES, np.int64),
            solved=self.order > 0,
            order=max(1, self.order),
            n_sweeps=settings.n_sweeps,
            tilts_kept=not self.fields_only,
            persistent=is_persistent(settings),
            max_weight=MAX_WEIGHT,
            values=np.array([two_values(prior) or (0.0, 0.0) for prior in model.layers]),
            add_rows=add_rows_address(model.dtype) if self.sparse else 0,
            task_rows=self._task_rows(),
            task_samples=min(TASK_ROWS, max(4, -(-n_starts // n_workers))),
            task_units=TASK_UNITS if self.fields_only else TASK_UNITS // 8,
        )

        arguments = self.arguments(np.zeros((0, n_batch), np.int64), [], 0.0)
        self.settings.phases[:] = phase_addresses(arguments, self._phases())

    def _phases(self):
        """The compiled phases."""
        return (sparse_phases if self.sparse else phases)(self.order)

    def _task_rows(self):
        """Rows of one task: several for each thread, but not so few that products are slow."""
        if self.sparse:  # all couplings are read once for each task
            return -(-self.n_batch // self.n_workers)
        each = -(-self.n_batch // (4 * self.n_workers))
        return min(TASK_ROWS, max(4, each // 4 * 4))

    def _allocate(self, model):
        (n_visible, n_hidden), dtype = model.weights.shape, model.dtype
        n_units, width = n_visible + n_hidden, panel_width(dtype)
        self.parameters = types.Parameters(
            weights=np.zeros_like(model.weights),
            velocity=np.zeros_like(model.weights),
            fields=np.zeros((3, n_units), dtype),
            copies=np.zeros((2, 5), np.int64),
            diverged=np.zeros(1, np.int64),
        )
        data, state = self._moments(n_visible, n_units, dtype)
        terms, scales = self._terms(data.mean, state, n_visible)
        n_slabs, n_term_rows = -(-n_visible // width), int(terms[:, N_ROWS].sum())
        rights = empty_panels(n_term_rows, n_hidden, dtype)
        rights[:] = 0  # and the padding stays so
        self.statistics = types.Statistics(
            data=data,
            model=record_from(state, self.options.n_sweeps, False),
            terms=terms,
            scales=scales.astype(dtype),
            rights=rights,
            units=np.zeros((types.N_STATISTICS, n_units), dtype),
            above=np.zeros((n_slabs, n_hidden), dtype),
            turned=self._turned(0, n_visible, dtype),
        )
        n_columns = -(-max(n_visible, n_hidden) // width) * width
        self.scratch = types.Scratch(
            products=np.zeros((self.n_workers, max(TASK_ROWS, width), n_columns), dtype),
            slab=np.zeros((self.n_workers, width, n_hidden), dtype),
            left=np.zeros((self.n_workers, n_term_rows, width), dtype),
            vectors=np.zeros((self.n_workers, 3, n_columns), dtype),
            active=np.zeros((self.n_workers, n_visible if self.sparse else 0), np.int32),
            n_active=np.zeros((self.n_workers, 2), np.int64),
        )

    def _moments(self, n_visible, n_units, dtype):
        """Memory for moments given the rows of data, and for solutions or samples."""
        state = 4, self.n_starts, n_units
        if self.sparse:
            data = np.zeros((3, self.n_batch, n_units - n_visible), dtype)
            return types.Moments(*data), np.zeros(state, dtype)
        # The rows of data lie before those of the model, so that one product is of both.
        memory = np.zeros((self.n_batch + 4 * self.n_starts, n_units), dtype)
        var, b = np.zeros((2, self.n_batch, n_units), dtype)
        data = types.Moments(memory[: self.n_batch], var, b)
        return data, memory[self.n_batch :].reshape(state)

    def _turned(self, n_stored, n_visible, dtype):
        """Memory for the transpose of a batch of sparse rows."""
        stored = np.empty(n_stored, dtype), np.empty(n_stored, np.int32)
        return SparseRows(*stored, *np.empty((2, n_visible if self.sparse else 0), np.int64))

    def _terms(self, data, state, n_visible):
        """The terms of the gradient by the couplings, and the weights of their rows."""
        n_batch, (n_starts, n_units) = len(data), state.shape[1:]
        of_data, of_model = np.full(n_batch, 1 / n_batch), np.full(n_starts, -1 / n_starts)
        if self.sparse:  # products with data, and with samples, are not those of dense rows
            terms = [(state[MEAN], of_model)] if self.order else []
        else:  # after data come the means of the model
            terms = [(data, np.append(of_data, of_model))]
        if self.order >= 2:
            terms.insert(0, (state[VAR], of_model))
        if self.order == 3:
            terms.insert(0, (state[A], of_model / 2))
        n_hidden, hidden = n_units - n_visible, n_visible * state.itemsize
        table = []
        for power, (rows, scales) in zip(range(len(terms))[::-1], terms, strict=True):
            address = rows.ctypes.data
            table.append([address, len(scales), n_units, power, address + hidden, n_hidden])
        scales = np.concatenate([np.zeros(0), *(scales for _, scales in terms)])
        return np.array(table, np.int64).reshape(-1, 6), scales

    def _layout(self, model):
        """A layout whose units have the fields that steps change, if these are all they change."""
        if self.order:
            prepare_solve(model.dtype, self.order, False)
        layout = Layout(model, max(1, self.order), "blocked")
        if self.fields_only:
            layers = [
                layer._replace(prior=layer.prior._replace(field=self.parameters.fields[0, units]))
                for layer, units in zip(layout.layers.of_model, layout.bounds, strict=True)
            ]
            layout.layers = Layers(layers)
        self.parameters.copies[:] = layout.copies(0)
        if self.sparse and not self.order:
            self.parameters.copies[0, 0] = 0  # no product takes them
        return layout

    def _solver(self, dtype):
        half_sweep = self.options.starts == "data" and self.n_starts == self.n_batch
        settings = TapSettings(
            order=max(1, self.order),
            tol=1e-8,
            max_iter=self.options.n_sweeps,
            **(self.layout.addresses(self.order) if self.order else {"update": 0, "finish": 0}),
            rows_per_worker=rows_per_worker(self.n_starts, self.n_workers),
            resolution=float(np.finfo(dtype).eps),
            half_sweep_done=half_sweep,
            tilts_kept=not self.fields_only,
            zero_variance=self.options.starts == "data" and not half_sweep,
        )
        n_units = self.layout.n_units
        shapes = worker_shapes(settings, n_units, self.layout.max_columns)
        slots = np.empty((self.n_workers, 1, settings.rows_per_worker, SLOT_SIZE))
        parts = (np.empty((self.n_workers, *shape), dtype) for shape in shapes)
        none = np.zeros((1, n_units), dtype)
        tilt = Tilt(none, none, none.astype(bool))
        return types.Solver(self.layout.sweep, settings, tilt, ActiveRows(slots, *parts))

    def load(self, state, rows):
        """Take over the parameters of a state, and its solutions or samples.

        Without these, persistent ones start from some rows of the data.
        """
        model, velocity, parameters = state.model, state.velocity, self.parameters
        self.layout.fill(model)
        parameters.weights[:], parameters.velocity[:] = model.weights, velocity.couplings[0]
        self._load_units(model.layers, velocity.layers)
        if self.settings.persistent and state.chains:
            self._go_on_from(state.chains)
        elif self.settings.persistent:
            visible = starts("data", model, self.X[rows], self.n_starts, 0.0, None)
            hidden = np.zeros((self.n_starts, model.n_hidden), model.dtype)
            self._go_on_from((visible, hidden, np.zeros_like(visible), hidden))

    def _load_units(self, priors, velocities):
        """Take over the parameters of the units, and their last step."""
        for prior, step, units in zip(priors, velocities, self.layout.bounds, strict=True):
            self.parameters.fields[:2, units] = prior.field, step.field
            self.parameters.fields[2, units] = prior.max_field

    def _go_on_from(self, chains):
        """Solutions or samples, as they are in a state."""
        planes = self.statistics.model.state
        planes[:] = 0
        if not self.order:
            planes[MEAN][:, self.layout.bounds[0]] = chains[0]
            return
        for k, units in enumerate(self.layout.bounds):
            planes[MEAN][:, units], planes[VAR][:, units] = chains[k], chains[2 + k]

    def take(self, state, rows, seeds, rate):
        """Take the steps of some batches.

        Parameters
        ----------
        state : State
            Changed in place.
        rows : int array of shape (n_steps, n_batch)
            Rows of the data of each batch.
        seeds : sequence of int
            Of Gibbs sampling in each.
        rate : float

        Raises
        ------
        FloatingPointError
            If couplings grow without bound.
        """
        if state.model is not self.model:
            self.load(state, rows[0])
        self._run(rows, seeds, rate)
        if self.parameters.diverged[0]:
            raise diverged(state.epoch)
        self._store(state)

    def _run(self, rows, seeds, rate):
        """Take the steps in one call of the kernel."""
        in_parallel(train_kernel, self.arguments(rows, seeds, rate), self.n_workers)

    def arguments(self, rows, seeds, rate):
        """Those of the kernel; see `take`."""
        ascent = self.settings.ascent._replace(rate=float(rate))
        rows, seeds = np.ascontiguousarray(rows, np.int64), np.array(seeds, np.uint64)
        queues = np.zeros((len(rows), types.N_PHASES, types.QUEUE_SIZE), np.int64)
        return (
            self._batches(rows, seeds),
            *(self.parameters, self.solver, self.settings._replace(ascent=ascent)),
            *(self.statistics, self.scratch, queues, np.zeros(1, np.int64)),
        )

    def _batches(self, rows, seeds):
        """The rows of batches, with memory for the transpose of the largest."""
        dtype = self.parameters.weights.dtype
        if not self.sparse:
            data = AddressTable([self.X.ctypes.data], self.X)
            return types.Batches(data, rows, seeds, _no_rows(dtype))
        given = sparse_rows(self.X[rows.ravel()], dtype)
        n_stored = np.diff(given.ends[self.n_batch - 1 :: self.n_batch], prepend=0).max(initial=0)
        if n_stored > len(self.statistics.turned.values):
            turned = self._turned(n_stored, self.X.shape[1], dtype)
            self.statistics = self.statistics._replace(turned=turned)
        return types.Batches(AddressTable([0], given), rows, seeds, given)

    def _store(self, state):
        """Give a state the parameters as they are."""
        parameters, bounds = self.parameters, self.layout.bounds
        weights = parameters.weights.copy()
        weights.flags.writeable = False  # for the model to keep
        layers, moved = self._units(state.model.layers)
        state.model = self.model = state.model.rebuilt((weights,), layers)
        state.velocity = ModelParameters(couplings=(parameters.velocity.copy(),), layers=moved)
        if self.settings.persistent:
            mean, var = self.statistics.model.state[:2]
            kept = [(mean, units) for units in bounds] + [(var, units) for units in bounds]
            # Of samples, the visible units are enough.
            kept = kept if self.order else kept[:1]
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
