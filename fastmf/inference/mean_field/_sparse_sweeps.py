"""Sweeps of TAP with sparse couplings: all rows at once, one colour of units after another."""

import numpy as np

from fastmf._outcomes import CONFIRMING, RUNNING
from fastmf._threads.workers import for_each, in_parallel, workers_for
from fastmf.kernels.mean_field.rows import (
    ACCELERATED,
    CONFIRMS,
    DAMPING,
    INFINITE,
    LAST_WINDOW_RESIDUAL,
    MEAN,
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
)
from fastmf.kernels.mean_field.sparse import SparseWork, assess_rows, sweep_chunks

# Multiply-adds that a unit costs beside its couplings.
UNIT_COST = 50


def rows_and_memory(layout, record, settings, n_workers):
    """The `SparseWork` of the rows of a record, before their first sweep."""
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
        self.cost = 2 * layout.n_couplings + UNIT_COST * layout.n_units
        self.n_workers = workers_for(
            n_rows * max(map(len, layout.colours)), 10 * n_rows * self.cost, n_threads
        )
        self.work = rows_and_memory(layout, record, settings, self.n_workers)
        self.slots = self.work.slots[:, 0, 0]

    def sweep(self, rows):
        """Status of some rows after one more sweep of them."""
        work, settings = self.work, self.settings
        for chunks in self.layout.colours:
            work.queue[:] = 0
            arguments = self.layout.layer, self.layout.graph, chunks, rows, settings
            cost = self.cost * len(rows) // len(self.layout.colours)
            n_workers = min(self.n_workers, len(rows) * len(chunks), 1 + cost // 200_000)
            in_parallel(sweep_chunks, (*arguments, self.tilt, work), n_workers)
        before = self.slots[rows].copy()
        status = np.zeros(len(rows), np.int64)
        work.queue[:] = 0
        assess_rows(rows, settings, work, status, self.record)
        # Measures are cleared where a row is stored.
        damped = (before[:, [DAMPING, ACCELERATED, OSCILLATING]] > 0).any(1)
        confirmed = before[:, CONFIRMS] == 1
        for r, code, refresh, kept in zip(rows, status, damped, confirmed, strict=True):
            if code == CONFIRMING or (code != RUNNING and not kept):
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
        """Move the means of rows with momentum on by a part of their last step."""
        moving = rows[self.slots[rows, MOMENTUM] > 0]
        if not len(moving):
            return
        pieces = [(r, first) for r in moving for first in range(0, self.layout.n_units, 1 << 16)]

        def move(piece):
            r, first = piece
            state = self.work.state[r, :, 0, first : first + (1 << 16)]
            state[MEAN] += state.dtype.type(self.slots[r, MOMENTUM]) * state[STEP]

        for_each(move, pieces, min(self.n_workers, len(pieces)))


def solve_sparse(layout, record, tilt, settings, n_threads):
    """Iterate the rows of a record until they end; returns the number of threads."""
    rows = _SweptRows(layout, record, tilt, settings, n_threads)
    active = np.arange(record.state.shape[1])
    while len(active):
        status = rows.sweep(active)
        ended = (status != RUNNING) & (status != CONFIRMING)
        here, slots = active[ended], rows.slots[active[ended]]
        record.status[here], record.n_iter[here] = status[ended], slots[:, SWEEP]
        record.residual[here] = np.maximum(slots[:, RESIDUAL], slots[:, VAR_RESIDUAL])
        active = active[~ended]
    return rows.n_workers
