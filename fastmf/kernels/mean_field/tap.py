"""TAP sweeps: many rows iterated to fixed points of the mean-field equations.

A sweep updates a block of units at a time (`fastmf.kernels.mean_field.units`), from the newest
values of all units. Rows are independent: each worker iterates a few of them and loads the next
when one has ended, so that the result of a row does not depend on other rows.

*Groups of states* (categorical units) have the covariance C = diag(m) - m m', so that the Onsager
term of a group i is a matrix. With the field r_k = W_k' m_k of each group k, a whole group of units
is updated by

    s = W_i m_i                       fields of this group on the units that it is coupled to
    b = W' (m - C s)                  with C s = v s for units outside groups
    a = -sum_j v_j W_j^2 - sum_k [(W_k^2)' m_k - r_k^2]
    m_i = softmax(field_i + b - a / 2)

and a unit outside groups by b = W' m + a m, with the same a. The fields of single groups are stored
from the update of one side until the update of the other side, where they are s. So an RBM of
groups and other units needs four products a sweep, and a fully visible machine three. This is order
2 of Plefka's expansion at fixed means of all states; for two states it is the equations of units.

*Sparse couplings* are swept in chunks of units. Units of one colour are not coupled: a chunk of
them is updated at once, and chunks of one colour by several threads. Each chunk has its measures,
which are combined in the order of the chunks, so that results do not depend on the number of
threads.
"""

from functools import cache
from typing import NamedTuple

import numpy as np

from fastmf._jit.argument_types import Float64, Int32, Int64, Real, argument_types
from fastmf._jit.intrinsics import fetch_and_increment, larger, row, smaller, view
from fastmf._jit.kernel import REORDER, address_of, call, kernel
from fastmf._outcomes import CONFIRMING, RUNNING
from fastmf._threads.workers import next_task, stopped
from fastmf.kernels.linear.product import TASK_ROWS, copy, new_work, product, set_to_zero
from fastmf.kernels.mean_field.units import (
    ALONE,
    CONFIRMS,
    CUBIC,
    DAMPING,
    FIELD,
    GROUP,
    INFINITE,
    LAST_WINDOW_RESIDUAL,
    MEAN,
    MEASURED,
    N_PANELS,
    N_SOURCE,
    N_UNITS,
    ONE_SOURCE,
    ONSAGER,
    PRODUCT,
    RESIDUAL,
    ROW,
    SCALARS,
    SCALE,
    SHIFTED,
    SLOT_SIZE,
    SOURCE,
    START,
    STEP,
    STEP_DOT,
    STRICTNESS,
    SWEEP,
    THIRD,
    VAR,
    VAR_RESIDUAL,
    WHOLE_FIELD,
    WIDTH,
    WINDOW_RESIDUAL,
    ActiveRows,
    TapSettings,
    Tilt,
    assess_row,
    copy_row,
    move_on,
    packed_couplings,
    refresh_variances,
    sources_of,
    targets_of,
    update_units,
)
from fastmf.priors._compiled import third_cumulants, tilted_moments

# --- a block of units of all active rows --------------------------------------------------------


@kernel(mode="merged")
def _propagate_change(layer, active, s, panel, i, old, order):
    """Add the change of unit i to the products of the later units of a block.

    `old` has mean, variance and third cumulant of the unit when the products were computed.
    """
    width = layer[WIDTH]
    unit = layer[START] + panel * width + i
    for power in range(order):
        change = active.state[THIRD if power == 2 else power, s, unit] - old[power]
        packed = packed_couplings(layer, power, panel, panel + 1, active.products)
        couplings = row(packed, (0, unit - layer[SOURCE], 0), width)
        products = row(active.products, (power, s, 0), width)
        # Products of earlier units are not needed any more, so that the loop uses whole vectors.
        for j in range(width):
            products[j] += couplings[j] * change


@kernel(mode="by_address", fastmath=REORDER, views=True)
def update_block(layer, panels, n_active, active, settings, tilt):
    """Update one block of units, the `panels` (first, last) of a layer, in all active rows."""
    width, last = layer[WIDTH], panels[1]
    first = panels[0] * width
    n, n_columns = smaller(last * width, layer[N_UNITS]) - first, layer[N_UNITS] - first
    for power in range(settings.order):
        states, out = active.state[THIRD if power == 2 else power], active.products[power]
        packed = packed_couplings(layer, power, panels[0], last, out)
        product(layer[PRODUCT], states, n_active, layer[SOURCE], packed, out, n_columns)
    at_once = 1 if settings.one_by_one else n
    old, no_groups = row(active.scratch, (4, 0), 3), row(active.scratch, (4, 0), 0)
    for s in range(n_active):
        for i in range(0, n, at_once):
            for power in range(settings.order):
                plane = THIRD if power == 2 else power
                old[power] = active.state[plane, s, layer[START] + first + i]
            units, order = (s, first + i, at_once, i), settings.order
            update_units(settings.finish, layer, active, units, order, tilt, no_groups)
            if settings.one_by_one:
                _propagate_change(layer, active, s, panels[0], i, old, order)


# --- whole solves -------------------------------------------------------------------------------


@kernel(mode="merged")
def _load_rows(layers, active, n_active, queue, settings, record):
    """Fill free slots with rows from the queue.

    Return the number of active rows, and whether the queue may have more rows.
    """
    while n_active < settings.rows_per_worker:
        index = next_task(queue)
        if index >= record.state.shape[1]:
            return n_active, False
        copy_row(record.state, index, active.state, n_active, 4)
        set_to_zero(row(active.state, (STEP, n_active, 0), active.state.shape[2]))
        set_to_zero(row(active.group_fields, (0, n_active, 0), active.group_fields.shape[2]))
        slot = row(active.slots, (0, n_active, 0), SLOT_SIZE)
        set_to_zero(slot)
        slot[ROW], slot[DAMPING], slot[STRICTNESS] = index, settings.damping, 1
        slot[WINDOW_RESIDUAL] = slot[LAST_WINDOW_RESIDUAL] = np.inf
        for k in range(layers.shape[0] if settings.order == 3 else 0):
            n, start = layers[k, N_UNITS], layers[k, START]
            mean = row(active.state, (MEAN, n_active, start), n)
            third = row(active.state, (THIRD, n_active, start), n)
            third_cumulants(layers[k], 0, mean, third, row(active.scratch, (0, 0), n))
        n_active += 1
    return n_active, True


@kernel(mode="merged")
def _store_ended_rows(layers, active, n_active, settings, tilt, record):
    """Store rows that have ended, move the last rows to their slots; return the number left."""
    s = np.int64(0)  # with a Python integer, callees would be compiled for two types
    while s < n_active:
        slot = row(active.slots, (0, s, 0), SLOT_SIZE)
        status = assess_row(active, s, slot, settings, record)
        if status == RUNNING:
            move_on(active, s, slot)
            s += 1
            continue
        index = np.int64(slot[ROW])
        # Confirmed rows have been stored before.
        if status == CONFIRMING or slot[CONFIRMS] == 0:
            refresh_variances(layers, active, s, slot, tilt)
            copy_row(active.state, s, record.state, index, 4)
        if status == CONFIRMING:
            s += 1
            continue
        record.status[index], record.n_iter[index] = status, np.int64(slot[SWEEP])
        record.residual[index] = larger(slot[RESIDUAL], slot[VAR_RESIDUAL])
        n_active -= 1
        if s != n_active:
            copy_row(active.slots, n_active, active.slots, s, 1)
            copy_row(active.state, n_active, active.state, s, active.state.shape[0])
            copy_row(active.group_fields, n_active, active.group_fields, s, 1)
    return n_active


@kernel(mode="merged")
def _rows_of_worker(workers, w):
    """Return the rows of one worker, with its scratch memory."""
    return ActiveRows(
        *(workers.slots[w], workers.state[w], workers.products[w]),
        *(workers.scratch[w], workers.group_fields[w]),
    )


@kernel(fastmath=REORDER, views=True)
def tap(sweep, settings, tilt, workers, queue, record):
    """Take rows from the queue and iterate them to fixed points of the mean-field equations."""
    w, layers, blocks = fetch_and_increment(queue[1:]), sweep.layers, sweep.blocks
    if w >= workers.state.shape[0]:
        return
    active = _rows_of_worker(workers, w)
    n_active, more_rows = np.int64(0), True
    while more_rows or n_active > 0:
        # Next to older rows, new rows repeat the first blocks, which does not change them.
        first = settings.first_block if n_active == 0 else np.int64(0)
        if more_rows:
            n_active, more_rows = _load_rows(layers, active, n_active, queue, settings, record)
        if n_active == 0:
            continue
        for k in range(first, blocks.shape[0]):
            if stopped(queue):
                return
            layer, panels = layers[blocks[k, 0]], (blocks[k, 1], blocks[k, 2])
            call(settings.update, (layer, panels, n_active, active, settings, tilt))
        n_active = _store_ended_rows(layers, active, n_active, settings, tilt, record)


@kernel(fastmath=REORDER, views=True)
def log_partitions(sweep, settings, tilt, workers, queue, record, values):
    """Compute the log-partition of each row of a record, by sweeps without updates.

    The last of `settings.max_iter` sweeps counts: with groups of states, the first sweep computes
    the fields of single groups.
    """
    w, layers, blocks = fetch_and_increment(queue[1:]), sweep.layers, sweep.blocks
    if w >= workers.state.shape[0]:
        return
    active, more_rows = _rows_of_worker(workers, w), True
    while more_rows:
        n_active, more_rows = _load_rows(layers, active, np.int64(0), queue, settings, record)
        for k in range(settings.max_iter * blocks.shape[0] if n_active > 0 else 0):
            if stopped(queue):
                return
            block = blocks[k % blocks.shape[0]]
            for s in range(n_active if k % blocks.shape[0] == 0 else 0):
                active.slots[0, s, MEASURED] = 0
            layer, panels = layers[block[0]], (block[1], block[2])
            call(settings.update, (layer, panels, n_active, active, settings, tilt))
        for s in range(n_active):
            values[np.int64(active.slots[0, s, ROW])] = active.slots[0, s, MEASURED]


def given_work(layer, n_workers=1):
    """Allocate memory of `moments_given` for a number of threads."""
    n_panels, _, width = layer.couplings.shape
    return new_work(np.zeros((n_workers, TASK_ROWS + 1, n_panels * width), layer.couplings.dtype))


@kernel(views=True)
def moments_given(layers, k, states, moments, work):
    """Compute fields, means and variances of a layer, given rows of states of its neighbours."""
    layer, (scratch, queue), n_rows = layers[k], work, states.shape[0]
    n = layer[N_UNITS]
    w = fetch_and_increment(row(queue, (1,), 1))
    if w >= scratch.shape[0]:
        return
    fields, zero = scratch[w, :TASK_ROWS], row(scratch, (w, TASK_ROWS, 0), n)
    packed = packed_couplings(layer, 0, 0, layer[N_PANELS], states)
    first = next_task(queue) * TASK_ROWS
    while first < n_rows:
        last = smaller(n_rows, first + TASK_ROWS)
        of_task = states[first:last]
        product(layer[PRODUCT], of_task, last - first, np.int64(0), packed, fields, n)
        for r in range(first, last):
            b = row(moments, (0, r, 0), n)
            copy(row(fields, (r - first, 0), n), b)
            mean, var = row(moments, (1, r, 0), n), row(moments, (2, r, 0), n)
            tilted_moments(layer, np.int64(0), b, zero, mean, var)
        first = next_task(queue) * TASK_ROWS


@cache
def update_address(dtype, update=update_block):
    """Return the address of the compiled update of a block of units, for a floating type."""
    arguments = Int64[1], (int, int), int, ActiveRows, TapSettings, Tilt
    return address_of(update, *argument_types(dtype, *arguments))


@kernel(mode="merged")
def _shift(mean, var, s, shifted, sources):
    """Set `shifted` to m - C s: the means of the sources minus their response to a group."""
    for k in range(sources.shape[0]):
        begin, n, kind = sources[k, 0], sources[k, 1], sources[k, 2]
        # Loops that begin at 0 have no negative index, so that they vectorise.
        m = row(mean, (begin,), n)
        out = row(shifted, (begin,), n)
        field = row(s, (sources[k, 4],), n)
        if kind == SCALARS:
            v = row(var, (begin,), n)
            for j in range(n):
                out[j] = m[j] - v[j] * field[j]
        if kind == GROUP:
            subtract_response(m, field, out)


@kernel(mode="inner", fastmath=REORDER)
def subtract_response(mean, field, out):
    """Set `out` to mean - C field for one group, with C = diag(mean) - mean mean'."""
    total = mean[0] * field[0]
    for i in range(1, mean.shape[0]):
        total += mean[i] * field[i]
    total += 1
    for i in range(mean.shape[0]):
        out[i] = mean[i] * (total - field[i])


@kernel(mode="inner")
def _multiply_source(layer, n_active, states, source, packed, out, n):
    """Multiply one source by its rows of packed couplings, or their squares.

    Whole vectors are written; the columns after the last one are overwritten later.
    """
    begin, packed = layer[SOURCE] + source[0], packed[:, source[0] : source[0] + source[1]]
    product(layer[PRODUCT], states, n_active, begin, packed, out, n)


@kernel(mode="inner")
def _add_own(active, n_active, plane, column, n):
    """Add the products with one source to the sums."""
    for s in range(n_active):
        total = row(active.products, (plane, s, column), n)
        of_source = row(active.products, (ONE_SOURCE, s, 0), n)
        for i in range(n):
            total[i] += of_source[i]


@kernel(mode="merged")
def _add_variances(layer, active, n_active, sources, columns):
    """Sum W^2 v, or W^2 m for groups, for some columns of the packed squares."""
    first, n = columns
    packed = packed_couplings(layer, 1, first, first - (-n // layer[WIDTH]), active.products)
    plane = np.int64(ONSAGER)
    for s in range(n_active if sources.shape[0] == 0 else 0):
        set_to_zero(row(active.products, (plane, s, 0), n))
    for k in range(sources.shape[0]):
        source = sources[k]
        if source[2] == GROUP:
            continue
        states = active.state[VAR if source[2] == SCALARS else MEAN]
        _multiply_source(layer, n_active, states, source, packed, active.products[plane], n)
        if plane == ONE_SOURCE:
            _add_own(active, n_active, np.int64(ONSAGER), np.int64(0), n)
        plane = np.int64(ONE_SOURCE)


@kernel(mode="merged")
def _add_groups(active, s, sources, target, n, column):
    """Add the fields of single groups, and subtract their squares from the variances."""
    field = row(active.products, (FIELD, s, column), n)
    onsager = row(active.products, (ONSAGER, s, column), n)
    for k in range(sources.shape[0]):
        if sources[k, 2] == GROUP:
            r = row(active.group_fields, (0, s, sources[k, 3] + target[5]), n)
            for i in range(n):
                field[i] += r[i]
                onsager[i] -= r[i] * r[i]


@kernel(mode="merged")
def _add_fields(layer, active, n_active, target, sources, packed, column):
    """Compute the fields of a target, and store the fields of single groups on it.

    For a target that is a group, only fields of sources that are groups are computed.
    """
    n, is_group = target[1], target[3] >= 0
    states, of_source = active.state[MEAN], active.products[ONE_SOURCE]
    for s in range(n_active):
        zero = row(active.products, (FIELD, s, column), n)
        for i in range(n):
            zero[i] = 0
    for k in range(sources.shape[0]):
        source = sources[k]
        if source[2] == GROUP:
            out = active.group_fields[0, :, source[3] + target[5] :]
            _multiply_source(layer, n_active, states, source, packed, out, n)
        elif source[2] == SCALARS and not is_group:
            _multiply_source(layer, n_active, states, source, packed, of_source, n)
            _add_own(active, n_active, np.int64(FIELD), column, n)
    for s in range(n_active):
        _add_groups(active, s, sources, target, n, column)


@kernel(mode="inner")
def _multiply_means(layer, active, n_active, target, packed, plane, column):
    """Compute the fields W' m of a target."""
    states, out = active.state[MEAN], active.products[plane, :, column:]
    product(layer[PRODUCT], states, n_active, layer[SOURCE], packed, out, target[1])


@kernel(mode="merged")
def _multiply_shifted(layer, active, n_active, target, sources, packed, column):
    """Compute the fields of a group without its effect on its neighbours."""
    n_source, n_fields = layer[N_SOURCE], active.group_fields.shape[2] - target[3]
    for s in range(n_active):
        mean = row(active.state, (MEAN, s, layer[SOURCE]), n_source)
        var = row(active.state, (VAR, s, layer[SOURCE]), n_source)
        of_source = row(active.group_fields, (0, s, target[3]), n_fields)
        shifted = row(active.group_fields, (0, s, layer[SHIFTED]), n_source)
        _shift(mean, var, of_source, shifted, sources)
    states, out = active.group_fields[0], active.products[FIELD, :, column:]
    product(layer[PRODUCT], states, n_active, layer[SHIFTED], packed, out, target[1])


@kernel(mode="merged")
def _finish_groups(layer, active, s, targets, settings, tilt):
    """Update the units of some targets, in one row, from their products."""
    first, last = targets[0, 0], targets.shape[0] - 1
    n, column = targets[last, 0] + targets[last, 1] - first, targets[0, 4] % layer[WIDTH]
    like, units = active.products, (s, first, n, column)
    alone = view(layer[ALONE] + first * like.itemsize, (n,), like)
    update_units(settings.finish, layer, active, units, settings.order, tilt, alone)


@kernel(mode="by_address", fastmath=REORDER, views=True)
def update_groups(layer, block, n_active, active, settings, tilt):
    """Update the targets `block` (first, last) of a layer together, in all active rows."""
    width = layer[WIDTH]
    targets = targets_of(layer)[block[0] : block[1]]
    sources = sources_of(layer)
    last, first_panel = targets[targets.shape[0] - 1], targets[0, 4] // width
    start = first_panel * width
    if settings.order > 1:
        columns = (first_panel, last[4] + last[1] - start)
        _add_variances(layer, active, n_active, sources, columns)
    for t in range(targets.shape[0]):
        target = targets[t]
        column, panel = target[4] - start, target[2]
        packed = packed_couplings(layer, 0, panel, panel - (-target[1] // width), active.products)
        if settings.order == 1:
            _multiply_means(layer, active, n_active, target, packed, np.int64(FIELD), column)
        else:
            _add_fields(layer, active, n_active, target, sources, packed, column)
        if settings.order > 1 and target[3] >= 0:
            _multiply_shifted(layer, active, n_active, target, sources, packed, column)
        if settings.measures:
            _multiply_means(layer, active, n_active, target, packed, np.int64(WHOLE_FIELD), column)
    for s in range(n_active):
        _finish_groups(layer, active, s, targets, settings, tilt)


# Number of units of a chunk, whose intermediate results stay in the cache, and of columns between
# checks for an interrupt if units are updated one by one.
CHUNK_UNITS = 2048


class SparseCouplings(NamedTuple):
    """Couplings by rows of the units; the rows of a group of states have the same sources."""

    starts: Int64[1]  # (n_units + 1,)
    # int32 (n_entries,): ascending in each row, with all states of a group or none
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
def _multiply_units(graph, order, active, first, n):
    """Compute the products of some units outside groups."""
    n_units = active.state.shape[2]
    mean, var = row(active.state, (MEAN, 0, 0), n_units), row(active.state, (VAR, 0, 0), n_units)
    third = row(active.state, (THIRD if order == 3 else MEAN, 0, 0), n_units)
    field = row(active.products, (FIELD, 0, 0), n)
    onsager = row(active.products, (ONSAGER, 0, 0), n)
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

    As in the head of this module, the fields of a group are W' (m - C s).
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
        # The mean minus the response of the source to the column, m - C s.
        response[j] = mean[j] - (
            mean[j] * (response[j] - dot) if size > 1 else var[j] * response[j]
        )
    for i in range(n):
        w = values[i * width : i * width + size]
        total = square = shifted = zero
        for j in range(size):
            total += w[j] * mean[j]
            # In a group v + m^2 equals m.
            square += w[j] * w[j] * (mean[j] if size > 1 else var[j])
            shifted += w[j] * response[j]
        whole_field[i] += total
        field[i] += shifted
        onsager[i] += square - total * total if size > 1 else square


@kernel(mode="inner")
def _multiply_columns(graph, order, active, first, n):
    """Compute the products of some columns of units, including groups of states."""
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
def _update_chunk(layer, graph, active, units, settings, tilt):
    """Update some units that are not coupled."""
    (first, n), order, alone = units, settings.order, graph.alone
    if alone.shape[0] == 0:
        _multiply_units(graph, order, active, first, n)
    else:
        _multiply_columns(graph, order, active, first, n)
        alone = row(alone, (first,), n)
    units = np.int64(0), first, n, np.int64(0)
    update_units(settings.finish, layer, active, units, order, tilt, alone)


@kernel(mode="merged")
def _size_of_update(graph, first, last, one_by_one):
    """Return the number of units that are updated at once: one column if `one_by_one`."""
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
            _update_chunk(layer, graph, active, (first, size), settings, tilt)
            first, n_columns = first + size, n_columns + 1
        task = next_task(work.queue)


@kernel(views=True)
def assess_rows(rows, settings, work, status, record):
    """Compute the status of some rows after a sweep, from the measures of all chunks."""
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
            *(work.slots[r], work.state[r], work.products[0], work.scratch[0]), work.group_fields[0]
        )
        status[k] = assess_row(active, np.int64(0), slot, settings, record)
        k = next_task(work.queue)


@kernel(views=True)
def greedy_colours(starts, neighbours, last_used, colours, queue):
    """Give each vertex in turn the smallest colour that no neighbour has."""
    if next_task(queue) > 0:
        return
    for i in range(colours.shape[0]):
        for k in range(starts[i], starts[i + 1]):
            colour = colours[neighbours[k]]
            if colour >= 0:
                last_used[colour] = i
        colour = 0
        while last_used[colour] == i:
            colour += 1
        colours[i] = colour
