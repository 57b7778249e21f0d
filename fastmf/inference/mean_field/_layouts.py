"""The layout of a model for kernels: packed layers, order of updates, one array of all units.

Models with groups of states, or with sparse couplings, have other layouts, and kernels for these.
`layout_of` caches the layout of a model. Starts, external tilts, records and results of all
mean-field solvers are arrays with the units in the order of the layout.
"""

import threading
import weakref

import numpy as np

from fastmf._common import arguments as check
from fastmf._common.rows import is_sparse
from fastmf._outcomes import CONVERGED, messages_of
from fastmf._threads.workers import computed_once
from fastmf.inference.fixed_point import FixedPoint, trace_of
from fastmf.inference.mean_field._sparse_layout import SparseLayout
from fastmf.kernels.linear.product import (
    TILE_ROWS,
    TILE_VECTORS,
    empty_panels,
    fill_panels,
    pack,
    panel_width,
)
from fastmf.kernels.mean_field.tap import update_address, update_block, update_groups
from fastmf.kernels.mean_field.units import (
    GROUP,
    GROUP_RUN,
    SCALARS,
    Groups,
    Layer,
    Layers,
    MeanFieldRecord,
    Tilt,
    assess_address,
    units_address,
)
from fastmf.models.boltzmann import check_machine
from fastmf.models.layered import Layered
from fastmf.priors._groups import (
    as_states,
    check_clamped_groups,
    column_is_group,
    column_sizes,
    has_groups,
)
from fastmf.priors._protocol import contains, has_third_cumulant, n_units, precomputed, sample
from fastmf.priors._queries import bounds
from fastmf.priors._values import refuse_clamped

# Panels of one block: enough to make the overhead of a block small, few enough to stay in the
# cache. In a fully visible machine a block has SWEEP_UNITS units, updated from the same old values.
BLOCK_PANELS = 8
SWEEP_UNITS = 48
# Number of rows whose state fits into the cache of a worker.
MAX_WORKER_ROWS = 52


class Layout:
    """A model as the arrays that kernels take; `order` is the highest power of the couplings.

    Attributes
    ----------
    layers : Layers
    blocks : int64 array of shape (n_blocks, 3)
        One sweep: layer, first panel and last panel of each block of units, in order.
    max_columns : int
        Columns of the widest block.
    one_by_one : bool
        Whether the units of a block are to be updated one after another.
    bounds : list of slice
        Where each of the model's layers is among all units.
    priors : sequence of unit priors
        Of each layer.
    """

    # Kind of the layout, and a number that only groups of states need: see `GroupedLayout`.
    grouped = sparse = False
    # The layers as arrays for Gibbs sampling, made on first use.
    sampled = None
    n_group_fields = 0
    max_worker_rows = MAX_WORKER_ROWS
    # The kernel that updates a block.
    update_block = staticmethod(update_block)

    def __init__(self, model, order, schedule):
        if isinstance(model, Layered):
            self._layered(model, order, schedule)
        else:
            self._fully_visible(model, order, schedule)
        n_panels = int((self.blocks[:, 2] - self.blocks[:, 1]).max())
        self.max_columns = n_panels * panel_width(model.dtype)
        layers = self.layers.of_model
        self.bounds = [slice(la.start, la.start + la.n_units) for la in layers]
        self.n_units = max(units.stop for units in self.bounds)
        self.n_couplings = sum(la.couplings.shape[1] * la.n_units for la in layers)

    def _layered(self, model, order, schedule):
        parts = zip(model.layers, model.sizes, *chain_of(model), strict=True)
        layers = [
            Layer(precomputed(prior), *bounds, *_powers(couplings, order))
            for prior, *bounds, couplings in parts
        ]
        self.layers = Layers(layers)
        step = BLOCK_PANELS if schedule == "blocked" else 1
        pieces = [[(k, *v) for v in _pieces(layer, step)] for k, layer in enumerate(layers)]
        blocks = [v for of_layer in pieces[1::2] + pieces[::2] for v in of_layer]
        if schedule == "sequential":
            # Units of one layer are not coupled: updating a block of them is updating each in turn.
            # Blocks of the layers alternate, in proportion to their sizes.
            blocks = sorted(blocks, key=lambda v: v[2] / len(pieces[v[0]]))
        self.blocks = np.array(blocks, dtype=np.int64)
        self.one_by_one = False

    def _fully_visible(self, model, order, schedule):
        prior, powers = precomputed(model.prior), _powers(model.couplings, order)
        layer = Layer(prior, model.n_units, 0, 0, *powers)
        self.layers = Layers([layer])
        self.one_by_one = schedule == "sequential"
        step = 1 if self.one_by_one else max(1, SWEEP_UNITS // panel_width(model.dtype))
        blocks = [(0, *v) for v in _pieces(layer, step)]
        self.blocks = np.array(blocks, dtype=np.int64)

    def set_units(self, priors):
        """Replace the priors of the units."""
        layers = zip(self.layers.of_model, priors, strict=True)
        self.layers = Layers([la._replace(prior=precomputed(prior)) for la, prior in layers])
        self.sampled = None

    def fill(self, model):
        """Copy the couplings of a layered model into the packed arrays; priors are unchanged."""
        layers = self.layers.of_model
        for k, weights in enumerate(model.couplings):
            # The sources of a layer are the units of the layer below, then of the layer above.
            begin = layers[k - 1].n_units if k > 0 else 0
            fill_panels(weights, layers[k + 1].couplings[:, : len(weights)])
            fill_panels(weights.T, layers[k].couplings[:, begin : begin + weights.shape[1]])
        for layer in layers:
            _fill_powers(layer.couplings, layer.squares, layer.cubes)

    @computed_once
    def addresses(self):
        """Addresses of the compiled update of a block, for `TapSettings`."""
        dtype = self.layers.of_model[0].couplings.dtype
        return {
            "update": update_address(dtype, self.update_block),
            "finish": units_address(dtype),
            "assess": assess_address(),
        }

    @computed_once
    def copies(self):
        """Packed couplings and squares of the upper and of the lower layer of an RBM."""
        return tuple((la.couplings, la.squares) for la in self.layers.of_model[::-1])

    def join(self, parts, joined):
        """Write the arrays of the layers, where not None, into `joined`, (n_rows, n_units)."""
        for units, part in zip(self.bounds, parts, strict=True):
            if part is not None:
                joined[:, units] = part
        return joined

    def split(self, joined):
        """Return the arrays of the layers; for a model with one layer, the array itself."""
        if len(self.bounds) == 1:
            return joined
        return tuple(joined[..., units] for units in self.bounds)


def chain_of(model):
    """Return the first unit of each layer, its first neighbour, and its couplings to neighbours.

    Even layers are stored before odd ones, so that both neighbours of a layer are contiguous and
    need one product.
    """
    weights, starts = model.couplings, [units.start for units in model.bounds]
    sources, couplings = [starts[abs(k - 1)] for k in range(len(starts))], []
    for k in range(len(starts)):
        parts = [*weights[max(k - 1, 0) : k], *(w.T for w in weights[k : k + 1])]
        couplings.append(np.concatenate(parts) if len(parts) > 1 else parts[0])
    return starts, sources, couplings


def _powers(couplings, order):
    """Pack couplings, and their squares and cubes if `order` needs them."""
    first = pack(couplings)
    none = np.zeros((0, *first.shape[1:]), first.dtype)
    squares = _memory_for(couplings) if order >= 2 else none
    cubes = _memory_for(couplings) if order >= 3 else none
    _fill_powers(first, squares, cubes)
    return first, squares, cubes


def _fill_powers(couplings, squares, cubes):
    """Compute the powers whose arrays are not empty."""
    if not len(squares):
        return
    with np.errstate(over="ignore"):  # rows with infinite values are reported as diverged
        np.multiply(couplings, couplings, out=squares)
        if len(cubes):
            np.multiply(squares, couplings, out=cubes)


def _memory_for(couplings):
    return empty_panels(*couplings.shape, couplings.dtype)


def _pieces(layer, step):
    n_panels = len(layer.couplings)
    return [(first, min(first + step, n_panels)) for first in range(0, n_panels, step)]


def rows_per_worker(n_rows, n_workers, max_rows=MAX_WORKER_ROWS):
    """Return how many rows a worker iterates at a time, such that the last round is full, too.

    In learning all rows take the same few sweeps, and a round ends for all at once: with few
    rounds, one tile of rows too many in each would leave no rows for the last worker.
    """
    each = -(-n_rows // max(n_workers, 1))
    # At least two rounds, so that threads that finish early take rows of the second one. But each
    # round reads all couplings, which dominates the time of less than a few tiles of rows.
    n_rounds = max(-(-each // max_rows), min(2, n_workers, each // (2 * TILE_ROWS)), 1)
    multiple = TILE_ROWS if n_rounds > 4 else 2
    return min(each, -(-each // n_rounds // multiple) * multiple)


# --- groups of states ----------------------------------------------------------------------------


class GroupedLayout(Layout):
    """A model with groups of states as the arrays that kernels take.

    The couplings to each group are packed separately. A block of a sweep is a range of targets:
    groups, and runs of units outside groups.

    Attributes
    ----------
    couplings : list of arrays of shape (n_source, n_units)
        Couplings of each layer, not packed.
    source : list of int
        Position of the first unit that each layer is coupled to.
    n_group_fields : int
        Numbers stored for each row for the update of a block: see `ActiveRows`.
    """

    grouped = True
    # With the fields of single groups, a worker's cache holds fewer rows.
    max_worker_rows = MAX_WORKER_ROWS // 2
    update_block = staticmethod(update_groups)

    def __init__(self, model, order, schedule):
        if isinstance(model, Layered):
            self.starts, self.source, self.couplings = chain_of(model)
        else:
            self.starts, self.source, self.couplings = [0], [0], [model.couplings]
        self.priors = model.layers
        self._coupled_to_itself = not isinstance(model, Layered)
        self.bounds = [
            slice(start, start + n_units(prior))
            for start, prior in zip(self.starts, self.priors, strict=True)
        ]
        self.n_units = max(units.stop for units in self.bounds)
        self.n_couplings = sum(couplings.size for couplings in self.couplings)
        self.one_by_one = False
        width = panel_width(model.dtype)
        max_units = width * (BLOCK_PANELS if schedule == "blocked" else 1)
        max_units = 1 if self._coupled_to_itself else max_units
        targets = [self._targets(prior, max_units) for prior in self.priors]
        tables = self._groups(targets, width)
        self._order = order
        self.layers = self._layers(tables)
        one_by_one = schedule == "sequential" or self._coupled_to_itself
        self.blocks = _blocks([len(of_layer.targets) for of_layer in tables], one_by_one)
        ends = [
            (tables[k].targets[first, 4] // width, tables[k].targets[last - 1, [1, 4]].sum())
            for k, first, last in self.blocks
        ]
        sizes = max(-(-int(end) // width) - int(start) for start, end in ends)
        # Products fill whole vectors, so that the last one may end behind its target.
        self.max_columns = width * (sizes + 1)
        n_shifted = max(len(matrix) for matrix in self.couplings)
        self.n_group_fields = tables[0].shifted + n_shifted

    def _layers(self, tables):
        """Make the `Layers` of the current priors and couplings."""
        parts = self.priors, self.starts, self.source, self.couplings, tables
        layers = []
        for prior, start, source, matrix, of_layer in zip(*parts, strict=True):
            powers = self._packed(matrix, of_layer.targets)
            layers.append(Layer(precomputed(prior), n_units(prior), start, source, *powers))
        return Layers(layers, tables)

    def _targets(self, prior, max_units):
        """List groups, and runs of at most `max_units` other units: (first, number, is group)."""
        targets, first = [], 0
        for size, is_group in zip(column_sizes(prior), column_is_group(prior), strict=True):
            extends = targets and not (is_group or targets[-1][2]) and targets[-1][1] < max_units
            if extends:
                targets[-1][1] += 1
            else:
                targets.append([first, int(size), bool(is_group)])
            first += int(size)
        return targets

    def _groups(self, targets, width):
        """Make the `Groups` of each layer."""
        parts = [_places(of_layer, width // TILE_VECTORS) for of_layer in targets]
        places, sizes = zip(*parts, strict=True)
        # offsets[k][j]: where the fields on layer j begin among the fields of a group of layer k.
        offsets, fields, n_fields = [], [], 0
        for k, of_layer in enumerate(targets):
            coupled = [0] if self._coupled_to_itself else [k - 1, k + 1]
            coupled = [j for j in coupled if 0 <= j < len(targets)]
            ends = np.cumsum([0, *(sizes[k] for k in coupled)])
            offsets.append(dict(zip(coupled, ends[:-1], strict=True)))
            positions = []
            for _, _, is_group in of_layer:
                positions.append(n_fields if is_group else -1)
                n_fields += int(ends[-1]) if is_group else 0
            fields.append(positions)
        groups = []
        for k, of_layer in enumerate(targets):
            panels = np.cumsum([0, *(-(-n // width) for _, n, _ in of_layer)])
            # Squared couplings of a layer are packed as one matrix, but with the panels of the
            # targets if it is coupled to itself.
            rows, columns = [], []
            parts = zip(of_layer, panels[:-1], fields[k], places[k], strict=True)
            for (first, n, _), panel, position, place in parts:
                column = panel * width if self._coupled_to_itself else first
                rows.append([first, n, panel, position, column, place])
            for j, offset in offsets[k].items():
                start = self.starts[j] - self.source[k]
                parts = zip(targets[j], fields[j], places[j], strict=True)
                for (first, n, is_group), position, place in parts:
                    of_group = position + offsets[j][k] if is_group else -1
                    columns.append((start + first, n, of_group, offset + place))
            tables = (
                np.array(rows, np.int64).reshape(-1, 6),
                np.array(_sources(columns), np.int64).reshape(-1, 5),
            )
            in_group = np.repeat(column_is_group(self.priors[k]), column_sizes(self.priors[k]))
            not_group = (~in_group).astype(self.couplings[0].dtype)
            groups.append(Groups(*tables, not_group, n_fields))
        return groups

    def _packed(self, couplings, targets):
        """Pack the couplings of each target, and their squares."""
        width = panel_width(couplings.dtype)
        n_panels = int(max(targets[:, 2] - (-targets[:, 1] // width), default=0))
        panels = empty_panels(len(couplings), n_panels * width, couplings.dtype)
        for first, n, panel, *_ in targets.tolist():
            fill_panels(couplings[:, first : first + n], panels[panel : panel + -(-n // width)])
        none = panels[:0]
        if self._order < 2:
            return panels, none, none
        with np.errstate(over="ignore"):  # rows with infinite values are reported as diverged
            if self._coupled_to_itself:
                squares = empty_panels(len(couplings), n_panels * width, couplings.dtype)
                return panels, np.multiply(panels, panels, out=squares), none
            return panels, pack(np.square(couplings)), none


def _places(targets, lanes):
    """Return the positions of the fields of a group on some targets, and their total number.

    Products fill whole vectors, so that groups and runs of other units begin at whole vectors. The
    targets of a run are updated in order: each overwrites the excess of the one before.
    """
    places, end, after_group = [], 0, True
    for _, n, is_group in targets:
        if is_group or after_group:
            end = -(-end // lanes) * lanes
        places.append(end)
        end, after_group = end + n, is_group
    return places, -(-end // lanes) * lanes


def _sources(columns):
    """Make the table of sources from columns (first, number, fields of a group or -1, place)."""
    table, in_run = [], None
    for first, n, fields, place in sorted(columns):
        kind = SCALARS if fields == -1 else GROUP_RUN
        # Units of two layers form one run only if their places are contiguous.
        apart = in_run is None or (kind == SCALARS and place != in_run[4] + in_run[1])
        if apart or in_run[2] != kind:
            in_run = [first, 0, kind, -1, place]
            table.append(in_run)
        in_run[1] += n
        if kind == GROUP_RUN:
            table.append([first, n, GROUP, fields, place])
    return table


def _blocks(n_targets, one_by_one):
    """List the blocks of a sweep, (layer, first target, end of targets), odd layers first."""
    order = [*range(len(n_targets))[1::2], *range(len(n_targets))[::2]]
    if not one_by_one:
        return np.array([[k, 0, n_targets[k]] for k in order if n_targets[k]], np.int64)
    single = [(k, t, t + 1) for k in order for t in range(n_targets[k])]
    return np.array(sorted(single, key=lambda v: v[2] / n_targets[v[0]]), np.int64)


# --- the layout of a model, made once -------------------------------------------------------------


class _Latest(threading.local):
    """The latest layouts of a thread, with their models, by type of model and options."""

    def __init__(self):
        self.entries = {}


_latest = _Latest()


def layout_of(model, order, schedule):
    """Return the layout of a model; the latest ones are cached, as models do not change."""
    if order == 3 and not all(map(has_third_cumulant, model.layers)):
        raise ValueError(
            "order=3 needs binary units (Bernoulli or Ising) in every layer: use order=2 for units "
            "of more values."
        )
    key = type(model), order, schedule
    reference, layout = _latest.entries.get(key, (None, None))
    if reference and reference() is model:
        return layout
    layout = _kind_of(model)(model, order, schedule)
    if not layout.sparse:  # a sparse layout has reordered units
        layout.priors = model.layers
    # Cache two: learning alternates between a deep machine and its hidden layers.
    _latest.entries.pop(key, None)
    entries = [*_latest.entries.items(), (key, (weakref.ref(model), layout))]
    _latest.entries = dict(entries[-2:])
    return layout


def handed_over(layout, model, in_place):
    """Make a layout that has the couplings of `model` its cached layout, after a learning step.

    If the parameters of the units were changed `in_place`, the layout has them already.
    """
    if not in_place:
        layout.set_units(model.layers)
    for key, (_, stored) in _latest.entries.items():
        if stored is layout:
            _latest.entries[key] = weakref.ref(model), layout


def layout_of_checks(model):
    """Return a layout whose units are in the order of `model.bipartite()`, or of the one layer."""
    check_machine(model)
    return layout_of(model, 1, "sequential" if is_sparse(model.couplings) else "blocked")


def _kind_of(model):
    if is_sparse(model.couplings):
        return SparseLayout
    return GroupedLayout if any(map(has_groups, model.layers)) else Layout


def record_from(state, max_iter, history):
    """Make the record of rows that start from `state`, (4, n_rows, n_units), changed in place."""
    n_rows = state.shape[1]
    return MeanFieldRecord(
        state=state,
        status=np.zeros(n_rows, np.int64),
        n_iter=np.zeros(n_rows, np.int64),
        residual=np.zeros(n_rows, state.dtype),
        history=np.zeros((n_rows, max_iter) if history else (0, 0), state.dtype),
    )


def start_and_tilt(model, layout, init, field, precision, clamp):
    """Return the starting state, the external tilt, and the number of rows (None without rows)."""
    none = [None] * len(layout.bounds)

    def arrays(name, value):
        if value is None:
            return none
        parts = check.per_layer(name, value, none)
        if layout.grouped and name in ("init", "clamp"):
            parts = [as_states(name, *pair) for pair in zip(model.layers, parts, strict=True)]
        if layout.grouped and name == "init":
            parts = list(map(_uncoupled_where_missing, model.layers, parts))
        return [
            check.rows(name, part, units.stop - units.start, model.dtype, missing=name == "clamp")
            for part, units in zip(parts, layout.bounds, strict=True)
        ]

    tilts = {"field": field, "precision": precision, "clamp": clamp}
    tilts = {name: none if part is None else arrays(name, part) for name, part in tilts.items()}
    if init is None:
        mean, var = map(list, zip(*model.uncoupled_moments, strict=True))
        var = [np.where(np.isfinite(v), v, 0) for v in var]
    else:
        mean, var = _start(model, init, arrays)
    for k in range(2, len(mean)):
        if mean[k] is None:
            mean[k] = model.uncoupled_moments[k][0]
    named = [("init", mean), ("init", var), *tilts.items()]
    n_rows = check.common_rows([(name, a) for name, parts in named for a in parts])
    if clamp is not None:
        tilts["clamp"] = _clamped(model.layers, mean, tilts["clamp"], layout.grouped)

    tilt = []
    for parts, dtype in zip(tilts.values(), (model.dtype, model.dtype, np.bool_), strict=True):
        has_rows = any(part is not None and part.ndim == 2 for part in parts)
        tilt.append(np.zeros((n_rows if has_rows else 1, layout.n_units), dtype))
        layout.join(parts, tilt[-1])
    tilt = Tilt(*tilt)
    state = np.zeros((4, n_rows or 1, layout.n_units), model.dtype)
    layout.join(mean, state[0])
    layout.join(var, state[1])
    if clamp is not None:
        state[1][np.broadcast_to(tilt.clamped, state[1].shape)] = 0
    return state, tilt, n_rows


def _clamped(priors, mean, values, grouped):
    """Return masks of clamped units, by layer, and set their starting means to their values."""
    masks = list(values)
    for k, (prior, part) in enumerate(zip(priors, values, strict=True)):
        if part is None:
            continue
        masks[k] = ~np.isnan(part)
        mean[k] = np.where(masks[k], part, 0 if mean[k] is None else mean[k])
        wrong = masks[k] & np.logical_not(contains(prior, mean[k]))
        if wrong.any():
            refuse_clamped(prior, mean[k], wrong)
        if grouped:
            check_clamped_groups(prior, *np.broadcast_arrays(mean[k], masks[k]))
    return masks


def drawn_starts(model, n_rows, rng):
    """Sample the uncoupled units of the first layer."""
    first, dtype = model.layers[0], model.dtype
    shape = (n_rows, n_units(first))
    draws = sample(first, np.zeros(shape, dtype), np.zeros(shape, dtype), check.generator(rng))
    return draws.astype(dtype)


def _highest(prior, dtype):
    """Return the largest value of each unit, the last state of each group."""
    largest, last = np.zeros(n_units(prior)), np.cumsum(column_sizes(prior)) - 1
    largest[last] = bounds(prior)[1][last]
    if not np.isfinite(largest).all():
        raise ValueError("init='up': needs units with a largest value.")
    return largest.astype(dtype)


def _start(model, init, arrays):
    """Return lists of starting means and variances, one entry per layer."""
    if isinstance(init, str):
        check.one_of("init", init, ("up",))
        return [_highest(p, model.dtype) for p in model.layers], [None] * len(model.layers)
    if isinstance(init, FixedPoint):
        init = (init.mean, init.var)
    if not isinstance(init, tuple):
        return arrays("init", init), arrays("init", None)
    if len(init) != 2:
        raise ValueError(f"init must be an array or a pair (mean, var), got {len(init)} items.")
    mean, var = arrays("init", init[0]), arrays("init", init[1])
    if any((v < 0).any() for v in var if v is not None):
        raise ValueError("init must have variances that are not negative.")
    return mean, var


def _uncoupled_where_missing(prior, mean):
    """Replace missing labels of groups, in starting means, by the means of uncoupled groups."""
    if mean is None or not has_groups(prior) or not np.isnan(mean).any():
        return mean
    zero = mean.dtype.type(0)
    in_group = np.repeat(column_is_group(prior), column_sizes(prior))
    return np.where(np.isnan(mean) & in_group, prior.moments(zero, zero)[0], mean)


def result(layout, record, log_partition, question, single):
    """Make the `FixedPoint` of a record, with its `Question`; the log-partition may be None."""
    rows = 0 if single else slice(None)
    mean, var, b, a = map(layout.split, record.state[:, rows])
    answer = FixedPoint(
        mean=mean,
        var=var,
        b=b,
        a=a,
        log_partition=None if log_partition is None else log_partition[rows],
        converged=record.status[rows] == CONVERGED,
        n_iter=record.n_iter[rows],
        residual=record.residual[rows],
        message=messages_of(record.status)[rows],
        history=trace_of(record)[rows] if record.history.size else None,
    )
    answer.__dict__["_check"] = question
    return answer
