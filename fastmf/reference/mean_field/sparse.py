"""NumPy twin of `fastmf.kernels.mean_field.sparse`: one chunk of one row after another."""

import numpy as np
from scipy.sparse import csr_array

from fastmf._outcomes import CONFIRMING, RUNNING
from fastmf.priors._protocol import take
from fastmf.reference.mean_field import tap
from fastmf.reference.mean_field.units import update_units

# Entries of a slot, as in `fastmf.kernels.mean_field.rows`, which a reference does not import.
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
    """Some slots as the attributes that `fastmf.reference.mean_field.tap` has for rows."""

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
            for here in _updates(graph, first, last, settings.one_by_one):
                units = layer.owners.prior, graph, couplings[here].toarray(), here
                _update(*units, settings, row, work.state[r])
            row.write(measures, measured)


def _updates(graph, first, last, one_by_one):
    """The units of a chunk that are updated at once."""
    if not one_by_one:
        return [slice(first, last)]
    sizes = graph.sizes if len(graph.sizes) else np.ones(len(graph.starts) - 1, int)
    return _columns(sizes, first, last)


def _update(prior, graph, matrix, here, settings, row, state):
    state, alone = state[:, 0], 1
    products = matrix @ state[MEAN], np.square(matrix) @ state[VAR]
    if len(graph.sizes):
        products = _of_columns(graph, matrix, here, state, settings.order)
        alone = graph.alone[here]
    elif settings.order == 3:
        products = *products, matrix**3 @ state[THIRD]
    with np.errstate(invalid="ignore", divide="ignore"):
        update_units(row, here, take(prior, here), products, settings.order, alone)


def _of_columns(graph, matrix, here, state, order):
    """Fields and Onsager terms of columns of units, groups among them."""
    mean, var, sizes = state[MEAN], state[VAR], graph.sizes
    groups = _columns(sizes, 0, len(mean))
    groups = [group for group in groups if sizes[group.start] > 1]
    second = np.where(sizes > 1, mean, var)
    b, onsager = matrix @ mean, np.square(matrix) @ second
    for group in groups:
        onsager -= np.square(matrix[:, group] @ mean[group])
    for column in _columns(sizes, here.start, here.stop) if order > 1 else ():
        if sizes[column.start] == 1:
            continue
        own = slice(column.start - here.start, column.stop - here.start)
        s = mean[column] @ matrix[own]
        response = var * s
        for group in groups:
            m = mean[group]
            response[group] = m * (s[group] - m @ s[group])
        b[own] -= matrix[own] @ response
    return b, onsager


def _columns(sizes, first, last):
    columns = []
    while first < last:
        columns.append(slice(first, first + int(sizes[first])))
        first += int(sizes[first])
    return columns


def assess_rows(rows, settings, work, status, record):
    """Status of some rows after a sweep, from the measures of all chunks."""
    slots, measures = work.slots[rows, 0, 0], work.measures[rows][:, :, 0, 0]
    slots[:, LARGEST] = np.maximum(slots[:, LARGEST], measures[:, :, LARGEST].max(1))
    slots[:, 14:16] += measures[:, :, 14:16].sum(1)
    state = work.state[rows]
    found = _Slots(slots, state)
    found.step = np.zeros_like(found.step)  # nothing is moved by momentum here
    with np.errstate(invalid="ignore"):
        status[:] = tap._assess(found, settings, record)
    running, stored = status == RUNNING, status == CONFIRMING
    found.write(slots, ["sweep", "settled"])
    for which, names in ((running, ENTRIES), (stored, ["confirms", "momentum"])):
        part = slots.copy()
        found.write(part, names)
        slots[which] = part[which]
    slots[running | stored, MEASURES], slots[:, len(ENTRIES)] = 0, status
    work.slots[rows, 0, 0], work.state[rows] = slots, state
