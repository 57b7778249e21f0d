"""The layout of a fully visible machine with sparse couplings, for `kernels.mean_field.tap`.

Columns (units, or groups of states) are coloured so that columns of one colour are not coupled, and
stored colour by colour. So a sweep updates contiguous ranges of units, and their sources are about
as close in memory as in the model.
"""

import numpy as np
import scipy

from fastmf._outcomes import CONFIRMING, RUNNING
from fastmf._threads.workers import VECTOR_SPEED, in_parallel, workers_for
from fastmf.kernels.mean_field.tap import (
    CHUNK_UNITS,
    SparseCouplings,
    SparseWork,
    assess_rows,
    greedy_colours,
    sweep_chunks,
)
from fastmf.kernels.mean_field.units import (
    ACCELERATED,
    CONFIRMS,
    DAMPING,
    INFINITE,
    LAST_WINDOW_RESIDUAL,
    MEAN,
    MEASURED,
    MOMENTUM,
    OSCILLATING,
    RESIDUAL,
    ROW,
    SLOT_SIZE,
    STEP,
    STRICTNESS,
    SWEEP,
    THIRD,
    VAR,
    VAR_RESIDUAL,
    WINDOW_RESIDUAL,
    A,
    B,
    assess_address,
    units_address,
)
from fastmf.priors._compiled import AddressTable, units_of
from fastmf.priors._groups import column_sizes, has_groups
from fastmf.priors._protocol import is_concatenated, n_units, parts_of, precomputed


class SparseLayout:
    """A fully visible machine with sparse couplings as the arrays that kernels take.

    Sweeps go colour by colour, or with the schedule "sequential" in the natural order.

    Attributes
    ----------
    graph : SparseCouplings
    couplings : csr_array
        Couplings of the units in the order of the layout.
    prior : unit prior
        In this order, too.
    units : int array of shape (n_units,)
        Number of each unit in the model.
    colours : list of int64 arrays of shape (n_chunks, 3)
        The chunks of units that are updated at once: see `sweep_chunks`.
    """

    grouped, sparse = False, True

    def __init__(self, model, order, schedule):
        self.n_units, self.n_couplings = model.n_units, model.couplings.nnz
        self.bounds, self.one_by_one = [slice(0, self.n_units)], schedule == "sequential"
        self.grouped = has_groups(model.prior)
        sizes, couplings = column_sizes(model.prior), model.couplings
        if self.grouped:
            couplings = whole_tables(couplings, sizes)
        n_columns = [len(column_sizes(part)) for part in parts_of(model.prior)]
        part = np.repeat(np.arange(len(n_columns)), n_columns)
        colour = np.zeros(len(sizes), np.int64)
        if not self.one_by_one:
            colour = colours_of(columns_graph(couplings, sizes) if self.grouped else couplings)
        # The units of one part of the prior stay contiguous.
        columns = np.lexsort((colour, part))
        first = np.cumsum(sizes) - sizes
        starts = np.cumsum(sizes[columns]) - sizes[columns]
        self.units = np.arange(self.n_units)
        if not self.one_by_one:
            of_column = np.repeat(np.arange(len(sizes)), sizes[columns])
            self.units = first[columns][of_column] + self.units - starts[of_column]
            couplings = couplings[self.units][:, self.units]
            couplings.sort_indices()
        self.couplings = couplings
        self.prior = with_units(model.prior, self.units)
        self.priors = (self.prior,)
        states = np.repeat(sizes[columns], sizes[columns] if self.grouped else 0)
        self.graph = SparseCouplings(
            couplings.indptr.astype(np.int64),
            couplings.indices.astype(np.int32),
            np.array(couplings.data),
            states.astype(np.int32),
            (states == 1).astype(model.dtype),
        )
        self.colours = self._chunks(colour[columns], part[columns], starts, sizes[columns])
        self.width = max(int((c[:, 1] - c[:, 0]).max()) for c in self.colours)
        self.width = int(sizes.max()) if self.one_by_one else self.width
        self.n_chunks = sum(map(len, self.colours))
        names = ("moments", "log_partition", "third_cumulants")[: max(2, order)]
        units = units_of(precomputed(self.prior), model.dtype, names)
        self.layer = AddressTable([*units, self.n_units, 0, 0], units)
        self.max_sources = int(np.diff(couplings.indptr).max(initial=1)) if self.grouped else 0

    def _chunks(self, colour, part, starts, sizes):
        """List the chunks of each colour; one chunk of all units if they are updated singly."""
        if self.one_by_one:
            return [np.array([[0, self.n_units, 0]])]
        ends = starts + sizes
        begins = np.flatnonzero(np.diff(colour, prepend=-1) | np.diff(part, prepend=-1))
        chunks = []
        for first, last in zip(begins, np.append(begins[1:], len(starts)), strict=True):
            while first < last:
                # Whole columns, at least one.
                stop = np.searchsorted(ends, starts[first] + CHUNK_UNITS, side="right")
                stop = min(max(stop, first + 1), last)
                chunks.append((colour[first], starts[first], ends[stop - 1]))
                first = stop
        chunks = np.array(chunks, np.int64)
        numbered = np.column_stack([chunks[:, 1:], np.arange(len(chunks))])
        return [numbered[chunks[:, 0] == k] for k in np.unique(chunks[:, 0])]

    @property
    def addresses(self):
        """Addresses of compiled functions, for `TapSettings`."""
        finish = units_address(self.couplings.dtype)
        return {"update": 0, "finish": finish, "assess": assess_address()}

    def join(self, parts, full):
        """Write the array of the model's units, if not None, into `full`, (n_rows, n_units)."""
        if parts[0] is not None:
            full[...] = parts[0][..., self.units]
        return full

    def split(self, full):
        """Return the array with the units in the order of the model."""
        out = np.empty_like(full)
        out[..., self.units] = full
        return out


def columns_graph(couplings, sizes):
    """Return a csr_array that is not zero where two columns of units are coupled."""
    members = members_of(sizes, couplings.dtype)
    pattern = scipy.sparse.csr_array(
        (np.ones_like(couplings.data), couplings.indices, couplings.indptr), couplings.shape
    )
    return scipy.sparse.csr_array(members.T @ pattern @ members)


def members_of(sizes, dtype):
    """Return the indicator of the units of each column, csr_array of shape (n_units, n_columns)."""
    n_units, column = int(sizes.sum()), np.repeat(np.arange(len(sizes)), sizes)
    arrays = np.ones(n_units, dtype), column, np.arange(n_units + 1)
    return scipy.sparse.csr_array(arrays, shape=(n_units, len(sizes)))


def whole_tables(couplings, sizes):
    """Store all entries of the tables of coupled columns, including zeros."""
    members = members_of(sizes, couplings.dtype)
    full = scipy.sparse.csr_array(members @ columns_graph(couplings, sizes) @ members.T)
    full.sort_indices()
    if full.nnz == couplings.nnz:
        return couplings
    n = couplings.shape[0]
    rows, stored = (np.repeat(np.arange(n), np.diff(c.indptr)) for c in (full, couplings))
    places = np.searchsorted(rows * n + full.indices, stored * n + couplings.indices)
    full.data[:] = 0
    full.data[places] = couplings.data
    return full


def colours_of(graph):
    """Colour the vertices of a graph, a csr_array, by 0, 1, ...; neighbours have other colours."""
    starts, neighbours = graph.indptr.astype(np.int64), graph.indices.astype(np.int32)
    degree = int(np.diff(starts).max(initial=0))
    colours = np.full(graph.shape[0], -1)
    unused, queue = np.full(degree + 2, -1), np.zeros(1, np.int64)
    greedy_colours(starts, neighbours, unused, colours, queue)
    return colours


def with_units(prior, units):
    """Reorder the units of a prior; the order must keep parts and groups together."""
    if is_concatenated(prior):
        ends = np.cumsum([n_units(part) for part in prior.parts])
        pieces = zip(prior.parts, np.split(units, ends[:-1]), ends, strict=True)
        parts = [with_units(part, numbers - end + n_units(part)) for part, numbers, end in pieces]
        return prior._make((tuple(parts),))
    return prior._make(f[units] if np.ndim(f) else f for f in prior)


def rows_and_memory(layout, record, settings, n_workers):
    """Make the `SparseWork` of the rows of a record, before their first sweep."""
    n_rows, dtype = record.state.shape[1], record.state.dtype
    n_planes = 6 if settings.order == 3 else 5
    state = np.zeros((n_rows, n_planes, 1, layout.n_units), dtype)
    state[:, :2, 0] = np.swapaxes(record.state[:2], 0, 1)
    if settings.order == 3:
        for row in state:
            row[THIRD, 0] = layout.prior.third_cumulant(row[MEAN, 0])[0]
    slots = np.zeros((n_rows, 1, 1, SLOT_SIZE))
    slots[:, 0, 0, ROW], slots[..., DAMPING] = np.arange(n_rows), settings.damping
    slots[..., STRICTNESS] = 1
    slots[..., WINDOW_RESIDUAL] = slots[..., LAST_WINDOW_RESIDUAL] = np.inf
    return SparseWork(
        queue=np.zeros(2, np.int64),
        state=state,
        slots=slots,
        measures=np.zeros((n_rows, layout.n_chunks, 1, 1, SLOT_SIZE)),
        products=np.empty((n_workers, 4, 1, layout.width), dtype),
        scratch=np.empty((n_workers, 5, layout.width), dtype),
        group_fields=np.empty((n_workers, 1, 1, layout.max_sources), dtype),
    )


class _SweptRows:
    """Rows of a record while they are iterated."""

    def __init__(self, layout, record, tilt, settings, n_threads):
        self.layout, self.record, self.tilt, self.settings = layout, record, tilt, settings
        n_rows = record.state.shape[1]
        self.cost = 2 * layout.n_couplings + VECTOR_SPEED * layout.n_units
        self.n_workers = workers_for(
            n_rows * max(map(len, layout.colours)), 10 * n_rows * self.cost, n_threads
        )
        self.work = rows_and_memory(layout, record, settings, self.n_workers)
        self.slots = self.work.slots[:, 0, 0]

    def update(self, rows):
        """Update all units of some rows, or measure them."""
        work, settings = self.work, self.settings
        for chunks in self.layout.colours:
            work.queue[:] = 0
            arguments = self.layout.layer, self.layout.graph, chunks, rows, settings
            cost = self.cost * len(rows) // len(self.layout.colours)
            n_workers = min(self.n_workers, len(rows) * len(chunks), 1 + cost // 200_000)
            in_parallel(sweep_chunks, (*arguments, self.tilt, work), n_workers)

    def sweep(self, rows):
        """Sweep some rows once more and return their status."""
        work, settings = self.work, self.settings
        self.update(rows)
        before = self.slots[rows].copy()
        status = np.zeros(len(rows), np.int64)
        work.queue[:] = 0
        assess_rows(rows, settings, work, status, self.record)
        # Measures are cleared where a row is stored.
        damped = (before[:, [DAMPING, ACCELERATED, OSCILLATING]] > 0).any(1)
        confirmed = before[:, CONFIRMS] == 1
        for r, code, refresh, was_confirmed in zip(rows, status, damped, confirmed, strict=True):
            if code == CONFIRMING or (code != RUNNING and not was_confirmed):
                self._store(r, refresh and self.slots[r, INFINITE] == 0)
        self._move_on(rows[status == RUNNING])
        return status

    def _store(self, r, refresh):
        """Copy a row to the record, with the variances of its tilts if it was damped."""
        state = self.work.state[r, :, 0]
        if refresh:
            a = state[A] + self._tilt("precision", r)
            var = self.layout.prior.moments(state[B], a)[1]
            state[VAR] = np.where(self._tilt("clamped", r), state[VAR], var)
        self.record.state[:, r] = state[:4]

    def _tilt(self, name, r):
        rows = getattr(self.tilt, name)
        return rows[min(r, len(rows) - 1)]

    def _move_on(self, rows):
        """Extrapolate the means of rows with momentum by a fraction of their last step."""
        for r in rows[self.slots[rows, MOMENTUM] > 0]:
            state = self.work.state[r, :, 0]
            state[MEAN] += state.dtype.type(self.slots[r, MOMENTUM]) * state[STEP]


def solve_sparse(layout, record, tilt, settings, n_threads):
    """Iterate the rows of a record until they end."""
    rows = _SweptRows(layout, record, tilt, settings, n_threads)
    active = np.arange(record.state.shape[1])
    while len(active):
        status = rows.sweep(active)
        ended = (status != RUNNING) & (status != CONFIRMING)
        numbers, slots = active[ended], rows.slots[active[ended]]
        record.status[numbers], record.n_iter[numbers] = status[ended], slots[:, SWEEP]
        record.residual[numbers] = np.maximum(slots[:, RESIDUAL], slots[:, VAR_RESIDUAL])
        active = active[~ended]


def measure_sparse(layout, record, tilt, settings, n_threads, values):
    """Write the log-partitions of the rows of a record into `values`."""
    rows = _SweptRows(layout, record, tilt, settings, n_threads)
    rows.update(np.arange(len(values)))
    values[:] = rows.work.measures[:, :, 0, 0, MEASURED].sum(1)
