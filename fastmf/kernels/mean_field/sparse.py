"""TAP sweeps of machines with sparse couplings, in chunks of units.

Units obey the equations of `fastmf.kernels.mean_field.units`, and groups of states those of
`fastmf.kernels.mean_field.groups`.
Units of one colour are not coupled: a chunk of them is updated at once, and chunks of one colour by
several threads. Each chunk has measures of its own, which are put together in the order of the
chunks, so that results do not depend on the number of threads, however few the rows are.
"""

from typing import NamedTuple

import numpy as np

from fastmf._jit.argument_types import Float64, Int32, Int64, Real
from fastmf._jit.intrinsics import fetch_and_increment, larger, row
from fastmf._jit.kernel import REORDER, kernel
from fastmf._threads.interrupts import next_task, stopped
from fastmf.kernels.mean_field.rows import (
    CUBIC,
    FIELD,
    INFINITE,
    MEAN,
    ONSAGER,
    SCALE,
    SLOT_SIZE,
    STEP_DOT,
    THIRD,
    VAR,
    WHOLE_FIELD,
    ActiveRows,
    assess_row,
)
from fastmf.kernels.mean_field.units import update_units

# Units of a chunk, whose intermediate results stay in the cache, and columns between two checks for
# KeyboardInterrupt where units are updated one by one.
CHUNK_UNITS = 2048


class SparseCouplings(NamedTuple):
    """Couplings by rows of the units; the rows of a group of states have the same sources."""

    starts: Int64[1]  # (n_units + 1,)
    # int32 (n_entries,): ascending in each row. All states of a group are there, or none
    sources: Int32[1]
    values: Real[1]  # (n_entries,)
    # int32 (n_units,), or empty: number of states of the group that a unit belongs to, 1 for other
    # units; empty without groups
    sizes: Int32[1]
    # (n_units,), or empty: 0 for states of a group, 1 for other units; empty without groups
    alone: Real[1]


class SparseWork(NamedTuple):
    """State of all rows, and memory of each thread."""

    queue: Int64[1]  # (2,): next task and next worker not taken yet
    state: Real[4]  # (n_rows, 5 or 6, 1, n_units): planes as of `ActiveRows`
    slots: Float64[4]  # (n_rows, 1, 1, SLOT_SIZE)
    measures: Float64[5]  # (n_rows, n_chunks, 1, 1, SLOT_SIZE): slots of the chunks of a sweep
    products: Real[4]  # (n_workers, 4, 1, width)
    scratch: Real[3]  # (n_workers, 5, width)
    group_fields: Real[4]  # (n_workers, 1, 1, largest number of sources of a group)


@kernel(mode="inner", fastmath=REORDER)
def _multiply(graph, order, active, first, n):
    """Products of some units that are no states of groups."""
    n_units = active.state.shape[2]
    mean, var = row(active.state, (MEAN, 0, 0), n_units), row(active.state, (VAR, 0, 0), n_units)
    third = row(active.state, (THIRD if order == 3 else MEAN, 0, 0), n_units)
    field, onsager = (
        row(active.products, (FIELD, 0, 0), n),
        row(active.products, (ONSAGER, 0, 0), n),
    )
    cubic = row(active.products, (CUBIC, 0, 0), n)
    zero = mean.dtype.type(0)
    for i in range(n):
        total = square = cube = zero
        for k in range(graph.starts[first + i], graph.starts[first + i + 1]):
            w, j = graph.values[k], graph.sources[k]
            total += w * mean[j]
            square += w * w * var[j]
            if order == 3:
                cube += w * w * w * third[j]
        field[i], onsager[i], cubic[i] = total, square, cube


@kernel(mode="inner", fastmath=REORDER)
def _multiply_block(block, mean, var, group, order, out):
    """Add the products of one column of units with one of its sources.

    See `fastmf.kernels.mean_field.groups`: the fields of a group are W' (m - C s).
    """
    values, width, n, size = block
    own_mean, response = group
    field, onsager, whole_field = out
    zero = mean.dtype.type(0)
    dot = zero
    for j in range(size):
        response[j] = zero
    if n > 1 and order > 1:
        for i in range(n):
            w = values[i * width : i * width + size]
            for j in range(size):
                response[j] += w[j] * own_mean[i]
        for j in range(size):
            dot += response[j] * mean[j]
    for j in range(size):
        # The mean less the response of the source to the column, m - C s.
        response[j] = mean[j] - (
            mean[j] * (response[j] - dot) if size > 1 else var[j] * response[j]
        )
    for i in range(n):
        w = values[i * width : i * width + size]
        total = square = shifted = zero
        for j in range(size):
            total += w[j] * mean[j]
            # In a group v + m^2 is m.
            square += w[j] * w[j] * (mean[j] if size > 1 else var[j])
            shifted += w[j] * response[j]
        whole_field[i] += total
        field[i] += shifted
        onsager[i] += square - total * total if size > 1 else square


@kernel(mode="inner")
def _multiply_columns(graph, order, active, first, n):
    """Products of some columns of units, groups of states among them."""
    zero, unit, end = active.state.dtype.type(0), first, first + n
    while unit < end:
        size, begin = np.int64(graph.sizes[unit]), graph.starts[unit]
        width, column = graph.starts[unit + 1] - begin, unit - first
        field = row(active.products, (FIELD, 0, column), size)
        onsager = row(active.products, (ONSAGER, 0, column), size)
        whole_field = row(active.products, (WHOLE_FIELD, 0, column), size)
        for i in range(size):
            field[i] = onsager[i] = whole_field[i] = zero
        own_mean, k = row(active.state, (MEAN, 0, unit), size), np.int64(0)
        while k < width:
            source = np.int64(graph.sources[begin + k])
            n_source = np.int64(graph.sizes[source])
            mean = row(active.state, (MEAN, 0, source), n_source)
            var = row(active.state, (VAR, 0, source), n_source)
            response = row(active.group_fields, (0, 0, 0), n_source)
            n_values = (size - 1) * width + n_source
            block = row(graph.values, (begin + k,), n_values), width, size, n_source
            out = field, onsager, whole_field
            _multiply_block(block, mean, var, (own_mean, response), order, out)
            k += n_source
        unit += size


@kernel(mode="inner")
def _update(layer, graph, active, units, settings, tilt):
    """New moments of some units that are not coupled, and the step towards them."""
    (first, n), order, alone = units, settings.order, graph.alone
    if alone.shape[0] == 0:
        _multiply(graph, order, active, first, n)
    else:
        _multiply_columns(graph, order, active, first, n)
        alone = row(alone, (first,), n)
    units = np.int64(0), first, n, np.int64(0)
    update_units(settings.finish, layer, active, units, order, tilt, alone)


@kernel(mode="merged")
def _size_of_update(graph, first, last, one_by_one):
    """Number of units that are updated at once: a column if these are updated one by one."""
    if not one_by_one:
        return last - first
    return np.int64(graph.sizes[first]) if graph.sizes.shape[0] > 0 else np.int64(1)


@kernel(fastmath=REORDER, views=True)
def sweep_chunks(layer, graph, chunks, rows, settings, tilt, work):
    """Update the units of some chunks in some rows; each pair of both is a task."""
    w = fetch_and_increment(work.queue[1:])
    if w >= work.products.shape[0]:
        return
    task = next_task(work.queue)
    while task < rows.shape[0] * chunks.shape[0]:
        r, chunk = rows[task // chunks.shape[0]], chunks[task % chunks.shape[0]]
        active = ActiveRows(
            *(work.measures[r, chunk[2]], work.state[r], work.products[w], work.scratch[w]),
            work.group_fields[w],
        )
        slot, measures = row(work.slots, (r, 0, 0, 0), SLOT_SIZE), active.slots[0, 0]
        for k in range(SLOT_SIZE):
            measures[k] = 0 if INFINITE <= k <= STEP_DOT else slot[k]
        first, last, n_columns = chunk[0], chunk[1], np.int64(0)
        while first < last and (n_columns % CHUNK_UNITS > 0 or not stopped(work.queue)):
            size = _size_of_update(graph, first, last, settings.one_by_one)
            _update(layer, graph, active, (first, size), settings, tilt)
            first, n_columns = first + size, n_columns + 1
        task = next_task(work.queue)


@kernel(views=True)
def assess_rows(rows, settings, work, status, record):
    """Status of some rows after a sweep, from the measures of all chunks."""
    k = next_task(work.queue)
    while k < rows.shape[0]:
        r = rows[k]
        slot = row(work.slots, (r, 0, 0, 0), SLOT_SIZE)
        for c in range(work.measures.shape[1]):
            measures = row(work.measures, (r, c, 0, 0, 0), SLOT_SIZE)
            for entry in range(INFINITE, SCALE + 1):
                slot[entry] = larger(slot[entry], measures[entry])
            for entry in range(SCALE + 1, STEP_DOT + 1):
                slot[entry] += measures[entry]
        active = ActiveRows(
            *(work.slots[r], work.state[r], work.products[0], work.scratch[0]),
            work.group_fields[0],
        )
        status[k] = assess_row(active, np.int64(0), slot, settings, record)
        k = next_task(work.queue)
