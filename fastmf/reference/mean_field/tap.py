"""NumPy twin of `fastmf.kernels.mean_field.tap`: all rows that have not ended, at once.

A sweep updates one layer, or some units of a layer, after another, each from the newest values;
with sparse couplings, one chunk of one row after another.
"""

import itertools
from functools import partial

import numpy as np
from scipy.sparse import csr_array

from fastmf._outcomes import (
    CONFIRMING,
    CONVERGED,
    CYCLING,
    DIVERGED,
    LATE_SWEEPS,
    MAX_DAMPING,
    MAX_MOMENTUM,
    MEAN_ROUNDING,
    OUT_OF_ITERATIONS,
    RUNNING,
    STEEPNESS,
    VAR_ROUNDING,
    WINDOW_SWEEPS,
)
from fastmf.priors._groups import column_is_group, column_sizes
from fastmf.priors._protocol import take
from fastmf.reference.linear.product import unpacked
from fastmf.reference.mean_field.units import update_units
from fastmf.reference.units import log_partition, moments

# Attributes that a row restores if its convergence is not confirmed.
ADAPTED = (
    "mean_cosine",
    "min_residual",
    "last_min_residual",
    "damping",
    "oscillating",
    "squared_step",
    "accelerated",
)


class RunningRows:
    """The rows that have not ended: `index` has their positions, other arrays their values."""

    def __init__(self, settings, tilt, record):
        n_rows, n_units = record.state.shape[1:]
        self.index = np.arange(n_rows)
        self.mean, self.var, self.b, self.a = (part.copy() for part in record.state)
        self.b[:], self.a[:] = 0, 0
        self.step = np.zeros_like(self.mean)
        self.third = np.zeros_like(self.mean) if settings.order == 3 else self.mean[:, :0]
        self.group_fields = np.zeros((n_rows, 0))
        self.field, self.precision, self.clamped = (
            np.broadcast_to(part, (n_rows, n_units)).copy() if len(part) == 1 else part
            for part in tilt
        )
        self.sweep = np.zeros(n_rows, int)
        self.accelerated, self.oscillating, self.settled = np.zeros((3, n_rows), bool)
        self.confirms, self.strictness = np.zeros(n_rows, bool), np.ones(n_rows)
        self.damping, self.momentum = np.full(n_rows, settings.damping), np.zeros(n_rows)
        self.squared_step, self.mean_cosine = np.zeros(n_rows), np.zeros(n_rows)
        self.min_residual, self.last_min_residual = np.full((2, n_rows), np.inf)
        self.start_sweep()

    def start_sweep(self):
        """Reset the measures of the last sweep."""
        n = len(self.index)
        self.damped = (self.damping > 0) | self.accelerated | self.oscillating
        self.finite = np.ones(n, bool)
        self.residual, self.var_residual, self.effect, self.var_effect = np.zeros((4, n))
        self.scale, self.squared_change, self.step_dot = np.zeros((3, n))

    def keep(self, rows):
        """Remove all rows but these."""
        for name, part in vars(self).items():
            if len(part) == len(rows):
                setattr(self, name, part[rows])


def tap(sweep, settings, tilt, workers, queue, record):
    """Iterate every row of `record` to a fixed point of the mean-field equations."""
    layers, rows = sweep.layers.of_model, RunningRows(settings, tilt, record)
    if settings.order == 3:
        for layer in layers:
            units = slice(layer.start, layer.start + layer.n_units)
            rows.third[:, units] = layer.prior.third_cumulant(rows.mean[:, units])[0]
    if sweep.layers.groups:
        updates = updates_of_groups(sweep, settings, rows)
        return _iterate(layers, rows, updates, settings, record)
    blocks = _updates(layers, sweep.blocks, settings.one_by_one)
    updates = [partial(_update, *update, settings=settings, rows=rows) for update in blocks]
    first = len(_joined_blocks(layers, sweep.blocks[: settings.first_block]))
    return _iterate(layers, rows, updates, settings, record, first)


def moments_given(layers, k, states, out, work):
    """Compute fields, means and variances of a layer, given rows of states of its neighbours."""
    layer = layers.of_model[k]
    out[0] = states @ unpacked(layer.couplings, layer.n_units)
    out[1:] = moments(layer.prior, out[0], out.dtype.type(0))


def log_partitions(sweep, settings, tilt, workers, queue, record, values):
    """Compute log-partitions from the matrix J of all couplings and the covariance C of units.

    With K = J C J the pair terms are m'Jm / 2 + tr(C K) / 4 + k'J^3 k / 12; a is minus the diagonal
    of K, and b is J m minus the block of K within a unit or group times m.
    """
    layers, (m, v) = sweep.layers.of_model, record.state[:2].astype(float)
    J, label, in_group = np.zeros((m.shape[1],) * 2), np.arange(m.shape[1]), np.zeros(m.shape[1])
    third, derivative = np.zeros((2, *m.shape))
    for k, layer in enumerate(layers):
        units = slice(layer.start, layer.start + layer.n_units)
        sizes = column_sizes(layer.prior)
        label[units] = np.repeat(layer.start + np.cumsum(sizes) - sizes, sizes)
        in_group[units] = np.repeat(column_is_group(layer.prior), sizes)
        sources = slice(layer.source, layer.source + layer.couplings.shape[1])
        for first, n, panels in panels_of(sweep.layers, k):
            J[sources, layer.start + first : layer.start + first + n] = unpacked(panels, n)
        if settings.order == 3:
            third[:, units], derivative[:, units] = layer.prior.third_cumulant(m[:, units])
    alike = label[:, None] == label
    for r in range(len(m)):
        C = np.where(in_group, np.diag(m[r]) - np.outer(m[r], m[r]), np.diag(v[r])) * alike
        K = J @ C @ J * (settings.order > 1)
        a, b, cubic = -np.diag(K), J @ m[r] - (K * alike) @ m[r], J**3 @ third[r]
        pairs = m[r] @ J @ m[r] / 2 + (C * K).sum() / 4 + cubic @ third[r] / 12
        b = b + cubic * derivative[r] / 6
        terms = a * np.where(in_group, m[r], m[r] ** 2 + v[r]) / 2 - b * m[r]
        field, precision, clamped = (part[min(r, len(part) - 1)] for part in tilt)
        values[r] = pairs + terms[~clamped].sum()
        for layer in layers:
            units = slice(layer.start, layer.start + layer.n_units)
            log_z = log_partition(layer.prior, (b + field)[units], (a + precision)[units])
            sizes = column_sizes(layer.prior)
            values[r] += log_z[~clamped[units][np.cumsum(sizes) - sizes]].sum()


def _iterate(layers, rows, updates, settings, record, first=0):
    """Sweep until all rows have ended; the first sweep begins with update `first`."""
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        while len(rows.index):
            rows.start_sweep()
            for update in updates[first:]:
                update()
            first = 0
            status = _assess(rows, settings, record)
            _store(layers, rows, status, record)
            rows.keep((status == RUNNING) | (status == CONFIRMING))


def _updates(layers, blocks, one_by_one):
    """List the updates of a sweep: layer, unpacked couplings, (first, last) unit."""
    dense = [
        [unpacked(panels, layer.n_units) if len(panels) else None for panels in layer[4:7]]
        for layer in layers
    ]
    updates = []
    for k, first, last in _joined_blocks(layers, blocks):
        size = 1 if one_by_one else last - first
        updates += [(layers[k], dense[k], (u, u + size)) for u in range(first, last, size)]
    return updates


def _joined_blocks(layers, blocks):
    """Convert blocks to ranges of units, and join adjacent ones if results do not change."""
    joined = []
    for which, first_panel, last_panel in blocks:
        layer = layers[which]
        width = layer.couplings.shape[2]
        first, last = first_panel * width, min(last_panel * width, layer.n_units)
        coupled_to_itself = layer.source < layer.start + layer.n_units and (
            layer.start < layer.source + layer.couplings.shape[1]
        )
        if joined and joined[-1][0] == which and joined[-1][2] == first and not coupled_to_itself:
            joined[-1][2] = last
        else:
            joined.append([which, first, last])
    return joined


def _update(layer, matrices, bounds, rows, settings):
    """Update some units of a layer in all rows; `bounds` are the first unit and the end."""
    (first, last), states = bounds, (rows.mean, rows.var, rows.third)
    prior = take(layer.prior, slice(first, last))
    units = slice(layer.start + first, layer.start + last)
    source = slice(layer.source, layer.source + len(matrices[0]))
    products = [
        part[:, source] @ matrix[:, first:last]
        for part, matrix in zip(states, matrices[: settings.order], strict=False)
    ]
    update_units(rows, units, prior, products, settings.order)


def _assess(rows, settings, record):
    """Return the status of each row after a sweep, and adapt damping and momentum."""
    rows.sweep += 1
    residual = rows.residual
    if len(record.history):
        history = np.maximum(residual, rows.var_residual)
        record.history[rows.index, rows.sweep - 1] = history
    status = _verdict(rows, settings, record)
    stored, before = status == CONFIRMING, {name: getattr(rows, name) for name in ADAPTED}
    lengths = np.sqrt(rows.squared_change * rows.squared_step)
    cosine = np.divide(rows.step_dot, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    rows.mean_cosine = rows.mean_cosine + 0.1 * (cosine - rows.mean_cosine)
    rows.min_residual = np.minimum(rows.min_residual, residual)
    exhausted = rows.sweep >= settings.max_iter
    cycling = (rows.mean_cosine < 0.9) & (rows.min_residual > rows.last_min_residual / 2)
    of_exhausted = np.where(cycling, CYCLING, OUT_OF_ITERATIONS)
    status = np.where(exhausted & (status == RUNNING), of_exhausted, status)

    window = rows.sweep % WINDOW_SWEEPS == 0
    straight = np.where(rows.accelerated, 0.5, 0.9)
    stagnant = (rows.min_residual > 0.95 * rows.last_min_residual) & (rows.mean_cosine < straight)
    alternating = (rows.min_residual > 0.5 * rows.last_min_residual) & (rows.mean_cosine < 0)
    if settings.adaptive:
        detected = window & ~rows.settled & (stagnant | alternating)
        again = detected & (rows.oscillating | (settings.order < 2))
        stronger = np.minimum((1 + rows.damping) / 2, MAX_DAMPING)
        rows.damping = np.where(again, stronger, rows.damping)
        rows.oscillating = rows.oscillating | detected
    rows.last_min_residual = np.where(window, rows.min_residual, rows.last_min_residual)
    rows.min_residual = np.where(window, np.inf, rows.min_residual)

    momentum = rows.momentum
    rows.squared_step = rows.squared_change + momentum * (
        2 * rows.step_dot + momentum * rows.squared_step
    )
    late = rows.sweep >= LATE_SWEEPS
    limit = np.where(late, settings.late_residual, settings.early_residual)
    rows.accelerated = (rows.sweep >= 2) & (residual < limit)
    rows.momentum = np.where(rows.accelerated & (cosine > 0), (momentum + MAX_MOMENTUM) / 2, 0)
    factor = np.where(status == RUNNING, rows.momentum, 0)
    rows.mean += factor[:, None].astype(rows.mean.dtype) * rows.step
    for name, values in before.items():
        setattr(rows, name, np.where(stored, values, getattr(rows, name)))
    rows.momentum[stored] = 0
    return status


def _verdict(rows, settings, record):
    """Return how each row has ended, RUNNING if it has not; CONFIRMING if it is to be stored."""
    confirms = rows.confirms
    tol = np.where(confirms, settings.tol, settings.tol / rows.strictness)
    unit = settings.resolution * np.where(confirms, STEEPNESS, 1)
    rounding, var_tol = MEAN_ROUNDING * unit * rows.scale, np.maximum(tol, VAR_ROUNDING * unit)
    rows.settled = rows.residual <= np.maximum(tol, rounding)
    still = (rows.var_residual <= var_tol) & (rows.var_effect <= var_tol)
    small = (rows.residual <= rounding) | (rows.effect <= var_tol)
    converged = rows.settled & still & small

    failed = confirms & ~(converged & rows.finite)
    for part, stored in zip((rows.mean, rows.var), record.state, strict=False):
        part[failed] = stored[rows.index[failed]]
    rows.strictness = np.where(failed, 4 * rows.strictness, rows.strictness)
    rows.squared_change[failed] = rows.step_dot[failed] = 0
    damped = (rows.damping > 0) | rows.oscillating
    held = converged & ~confirms & damped
    rows.confirms = (confirms & ~failed) | (held & rows.finite & (rows.sweep < settings.max_iter))
    status = np.where(converged & ~held, CONVERGED, RUNNING)
    status = np.where(rows.confirms & ~confirms, CONFIRMING, status)
    return np.where(failed, RUNNING, np.where(rows.finite, status, DIVERGED))


def _store(layers, rows, status, record):
    """Copy the rows that have ended to the record, with the variances of their tilts.

    Rows that a sweep has confirmed have been copied before.
    """
    ended = (status == CONFIRMING) | ((status != RUNNING) & ~rows.confirms)
    refreshed = (ended & rows.damped & rows.finite)[:, None]
    for layer in layers:
        units = slice(layer.start, layer.start + layer.n_units)
        a = rows.a[:, units] + rows.precision[:, units]
        new = moments(layer.prior, rows.b[:, units], a)[1]
        replaced = refreshed & ~rows.clamped[:, units]
        rows.var[:, units] = np.where(replaced, new, rows.var[:, units])
    index = rows.index[ended]
    for part, values in zip(record.state, (rows.mean, rows.var, rows.b, rows.a), strict=True):
        part[index] = values[ended]
    ended = status != RUNNING
    index = rows.index[ended]
    record.status[index] = status[ended]
    record.n_iter[index] = rows.sweep[ended]
    record.residual[index] = np.maximum(rows.residual, rows.var_residual)[ended]


# As in `fastmf.kernels.mean_field.units`, which a reference does not import.
SCALARS, GROUP_RUN, GROUP = range(3)


def updates_of_groups(sweep, settings, rows):
    """List the updates of a sweep: a function for each target."""
    layers, groups = sweep.layers.of_model, sweep.layers.groups
    rows.group_fields = np.zeros((len(rows.index), groups[0].shifted), rows.mean.dtype)
    steps = []
    for k, first, last in sweep.blocks:
        layer, sources = layers[k], groups[k].sources
        width = layer.couplings.shape[2]
        for target in groups[k].targets[first:last]:
            panels = slice(target[2], target[2] - (-target[1] // width))
            couplings = unpacked(layer.couplings[panels], target[1])
            steps.append(partial(_update_group, layer, couplings, target, sources, settings, rows))
    return steps


def panels_of(layers, k):
    """List (first unit, number of units, couplings) of each block that is packed together."""
    layer, width = layers.of_model[k], layers.of_model[k].couplings.shape[2]
    if not layers.groups:
        return [(0, layer.n_units, layer.couplings)]
    return [
        (first, n, layer.couplings[panel : panel - (-n // width)])
        for first, n, panel, *_ in layers.groups[k].targets
    ]


def _update_group(layer, couplings, target, sources, settings, rows):
    """Update a group, or some other units, in all rows."""
    first, n, _, of_group, _, place = target
    units = slice(layer.start + first, layer.start + first + n)
    neighbours = slice(layer.source, layer.source + len(couplings))
    source_mean, source_var = rows.mean[:, neighbours], rows.var[:, neighbours]
    prior = take(layer.prior, slice(first, first + n))
    second = source_var.copy()
    for begin, size, kind, *_ in sources:
        if kind == GROUP_RUN:
            second[:, begin : begin + size] = source_mean[:, begin : begin + size]
    onsager = second @ couplings**2
    shifted = source_mean
    if settings.order > 1 and of_group >= 0:
        effect = np.empty_like(source_mean)
        for begin, size, _, _, offset in sources:
            fields = rows.group_fields[:, of_group + offset : of_group + offset + size]
            effect[:, begin : begin + size] = fields
        shifted = source_mean - covariance_times(source_mean, source_var, sources, effect)
    for begin, size, kind, position, _ in sources:
        if kind == GROUP:
            fields = source_mean[:, begin : begin + size] @ couplings[begin : begin + size]
            rows.group_fields[:, position + place : position + place + n] = fields
            onsager -= fields**2
    products = shifted @ couplings, onsager
    update_units(rows, units, prior, products, settings.order, alone=of_group < 0)


def covariance_times(mean, var, sources, x):
    """Compute C x: the response of the sources to fields x."""
    out = var * x
    for begin, size, kind, *_ in sources:
        if kind == GROUP:
            group = slice(begin, begin + size)
            m = mean[:, group]
            out[:, group] = m * (x[:, group] - (m * x[:, group]).sum(1)[:, None])
    return out


# Entries of a slot, as in `fastmf.kernels.mean_field.units`, which a reference does not import.
ENTRIES = {
    "index": 0, "sweep": 1, "damping": 2, "momentum": 3, "accelerated": 4, "oscillating": 5,
    "settled": 6, "confirms": 7, "finite": 8, "residual": 9, "var_residual": 10, "effect": 11,
    "var_effect": 12, "scale": 13, "squared_change": 14, "step_dot": 15, "squared_step": 16,
    "mean_cosine": 17, "min_residual": 18, "last_min_residual": 19, "strictness": 20,
}  # fmt: skip
FLAGS = "accelerated", "oscillating", "settled", "confirms"
MEASURES = slice(8, 16)
LARGEST = slice(8, 14)
MEAN, VAR, B, A, STEP, THIRD = range(6)


class _Slots:
    """Slots with the attributes that `fastmf.reference.mean_field.tap` uses for rows."""

    def __init__(self, slots, state, tilt=None):
        for name, entry in ENTRIES.items():
            setattr(self, name, slots[:, entry].copy())
        for name in FLAGS:
            setattr(self, name, getattr(self, name) == 1)
        self.finite = self.finite == 0
        self.index, self.sweep = self.index.astype(int), self.sweep.astype(int)
        self.mean, self.var, self.step = (state[:, plane, 0] for plane in (MEAN, VAR, STEP))
        if tilt is not None:
            self.b, self.a, self.third = (
                state[:, plane, 0] for plane in (B, A, state.shape[1] - 1)
            )
            self.field, self.precision, self.clamped = (
                part[np.minimum(self.index, len(part) - 1)] for part in tilt
            )

    def write(self, slots, names=ENTRIES):
        """Write the attributes of these names back to the slots."""
        for name in names:
            value = getattr(self, name)
            slots[:, ENTRIES[name]] = ~value if name == "finite" else value


def sweep_chunks(layer, graph, chunks, rows, settings, tilt, work):
    """Update the units of some chunks in some rows."""
    n_units = len(graph.starts) - 1
    couplings = csr_array((graph.values, graph.sources, graph.starts), shape=(n_units, n_units))
    measured = [name for name, entry in ENTRIES.items() if entry in range(16)[MEASURES]]
    for r in rows:
        for first, last, c in chunks:
            measures = work.measures[r, c, 0]
            measures[:] = work.slots[r, 0]
            measures[:, MEASURES] = 0
            row = _Slots(measures, work.state[r : r + 1], tilt)
            for part in _parts_of_chunk(graph, first, last, settings.one_by_one):
                units = layer.owners.prior, graph, couplings[part].toarray(), part
                _update_chunk(*units, settings, row, work.state[r])
            row.write(measures, measured)


def _parts_of_chunk(graph, first, last, one_by_one):
    """Return ranges of units of a chunk that are updated at once."""
    if not one_by_one:
        return [slice(first, last)]
    sizes = graph.sizes if len(graph.sizes) else np.ones(len(graph.starts) - 1, int)
    return _columns(sizes, first, last)


def _update_chunk(prior, graph, matrix, part, settings, row, state):
    state, alone = state[:, 0], 1
    products = matrix @ state[MEAN], np.square(matrix) @ state[VAR]
    if len(graph.sizes):
        products = _of_columns(graph, matrix, part, state, settings.order)
        alone = graph.alone[part]
    elif settings.order == 3:
        products = *products, matrix**3 @ state[THIRD]
    with np.errstate(invalid="ignore", divide="ignore"):
        update_units(row, part, take(prior, part), products, settings.order, alone)


def _of_columns(graph, matrix, part, state, order):
    """Compute fields and Onsager terms of columns of units, including groups."""
    mean, var, sizes = state[MEAN], state[VAR], graph.sizes
    groups = _columns(sizes, 0, len(mean))
    groups = [group for group in groups if sizes[group.start] > 1]
    second = np.where(sizes > 1, mean, var)
    b, onsager = matrix @ mean, np.square(matrix) @ second
    for group in groups:
        onsager -= np.square(matrix[:, group] @ mean[group])
    for column in _columns(sizes, part.start, part.stop) if order > 1 else ():
        if sizes[column.start] == 1:
            continue
        local = slice(column.start - part.start, column.stop - part.start)
        s = mean[column] @ matrix[local]
        response = var * s
        for group in groups:
            m = mean[group]
            response[group] = m * (s[group] - m @ s[group])
        b[local] -= matrix[local] @ response
    return b, onsager


def _columns(sizes, first, last):
    columns = []
    while first < last:
        columns.append(slice(first, first + int(sizes[first])))
        first += int(sizes[first])
    return columns


def assess_rows(rows, settings, work, status, record):
    """Compute the status of some rows after a sweep, from the measures of all chunks."""
    slots, measures = work.slots[rows, 0, 0], work.measures[rows][:, :, 0, 0]
    slots[:, LARGEST] = np.maximum(slots[:, LARGEST], measures[:, :, LARGEST].max(1))
    slots[:, 14:16] += measures[:, :, 14:16].sum(1)
    state = work.state[rows]
    slots_of_rows = _Slots(slots, state)
    slots_of_rows.step = np.zeros_like(slots_of_rows.step)  # nothing is moved by momentum here
    with np.errstate(invalid="ignore"):
        status[:] = _assess(slots_of_rows, settings, record)
    running, stored = status == RUNNING, status == CONFIRMING
    slots_of_rows.write(slots, ["sweep", "settled"])
    for which, names in ((running, ENTRIES), (stored, ["confirms", "momentum"])):
        part = slots.copy()
        slots_of_rows.write(part, names)
        slots[which] = part[which]
    slots[running | stored, MEASURES], slots[:, len(ENTRIES)] = 0, status
    work.slots[rows, 0, 0], work.state[rows] = slots, state


def greedy_colours(starts, neighbours, last_used, colours, queue):
    """Give each vertex in turn the smallest colour that no neighbour has."""
    for i in range(len(colours)):
        taken = set(colours[neighbours[starts[i] : starts[i + 1]]])
        colours[i] = next(c for c in itertools.count() if c not in taken)
        last_used[[c for c in taken if c >= 0]] = i
