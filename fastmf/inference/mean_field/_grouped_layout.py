"""The layout of a model with groups of states, for `fastmf.kernels.mean_field.groups`."""

import numpy as np

from fastmf.inference.mean_field._layout import BLOCK_PANELS, MAX_WORKER_ROWS, Layout, chain_of
from fastmf.kernels.linear.product import (
    TILE_VECTORS,
    empty_panels,
    fill_panels,
    pack,
    panel_width,
)
from fastmf.kernels.mean_field.arguments import (
    GROUP,
    GROUP_RUN,
    SCALARS,
    Groups,
    Layer,
    Layers,
)
from fastmf.kernels.mean_field.groups import update_block as update_groups
from fastmf.models._layered import Layered
from fastmf.priors._groups import column_is_group, column_sizes
from fastmf.priors._protocol import n_units, precomputed


class GroupedLayout(Layout):
    """A model with groups of states as the arrays that kernels take.

    The couplings to each group are packed by themselves. A block of a sweep is a range of targets:
    groups, and runs of other units.

    Parameters
    ----------
    model : RBM, DBM or BoltzmannMachine
    order : {1, 2}
    schedule : {"blocked", "sequential"}

    Attributes
    ----------
    couplings : list of arrays of shape (n_source, n_units)
        Couplings of each layer, not packed.
    source : list of int
        Position of the first unit that each layer is coupled to.
    n_group_fields : int
        Numbers for each row that the update of a block keeps or needs: see `ActiveRows`.
    n_own_fields : int
        Most fields that a single group has on the units of a layer, whole vectors.
    """

    grouped = True
    # With the fields of single groups, a worker's cache holds fewer rows.
    max_worker_rows = MAX_WORKER_ROWS // 2
    update_block = staticmethod(update_groups)

    def __init__(self, model, order, schedule):
        if isinstance(model, Layered):
            self.starts, sources, self.couplings = chain_of(model)
        else:
            self.starts, sources, self.couplings = [0], [0], [model.couplings]
        self.priors, self.source = model.layers, sources
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
        tables = self._groups(targets, sources, width)
        self._order = order
        self.layers = self._layers(tables)
        one_by_one = schedule == "sequential" or self._coupled_to_itself
        self.blocks = _blocks([len(of_layer.targets) for of_layer in tables], one_by_one)
        ends = [
            (tables[k].targets[first, 4] // width, tables[k].targets[last - 1, [1, 4]].sum())
            for k, first, last in self.blocks
        ]
        sizes = max(-(-int(end) // width) - int(start) for start, end in ends)
        # Products fill whole vectors, so that products of the last target may end behind it.
        self.max_columns = width * (sizes + 1)
        n_shifted = max(len(matrix) for matrix in self.couplings)
        self.n_group_fields = tables[0].shifted + n_shifted

    def _layers(self, tables):
        """The layers with the priors and the couplings as they are."""
        parts = self.priors, self.starts, self.source, self.couplings, tables
        layers = [
            Layer(
                *(precomputed(prior), n_units(prior), start, source),
                *self._packed(matrix, of_layer.targets),
            )
            for prior, start, source, matrix, of_layer in zip(*parts, strict=True)
        ]
        return Layers(layers, tables)

    def _targets(self, prior, max_units):
        """Groups, and runs of other units of at most `max_units`: (first, number, is group)."""
        targets, first = [], 0
        for size, is_group in zip(column_sizes(prior), column_is_group(prior), strict=True):
            extends = targets and not (is_group or targets[-1][2]) and targets[-1][1] < max_units
            if extends:
                targets[-1][1] += 1
            else:
                targets.append([first, int(size), bool(is_group)])
            first += int(size)
        return targets

    def _groups(self, targets, sources, width):
        """The `Groups` of each layer."""
        n_sources = [len(couplings) for couplings in self.couplings]
        out = [_places(of_layer, width // TILE_VECTORS) for of_layer in targets]
        places, sizes = zip(*out, strict=True)
        self.n_own_fields = max(sizes)
        # Positions of the fields on each layer among the fields of one group of another.
        offsets, fields, n_fields = [], [], 0
        for of_layer, source, n in zip(targets, sources, n_sources, strict=True):
            coupled = [k for k, start in enumerate(self.starts) if source <= start < source + n]
            coupled.sort(key=lambda k: self.starts[k])
            ends = np.cumsum([0, *(sizes[k] for k in coupled)])
            offsets.append(dict(zip(coupled, ends[:-1], strict=True)))
            positions = []
            for _, _, is_group in of_layer:
                positions.append(n_fields if is_group else -1)
                n_fields += int(ends[-1]) if is_group else 0
            fields.append(positions)
        out = []
        for k, (of_layer, positions) in enumerate(zip(targets, fields, strict=True)):
            panels = np.cumsum([0, *(-(-n // width) for _, n, _ in of_layer)])
            # Squared couplings are packed together if the units of the layer are updated from the
            # same values of others.
            alone = self._coupled_to_itself
            rows = [
                [first, n, panel, position, panel * width if alone else first, place]
                for (first, n, _), panel, position, place in zip(
                    of_layer, panels[:-1], positions, places[k], strict=True
                )
            ]
            columns = [
                (
                    self.starts[k_source] + first - sources[k],
                    *(n, position + offsets[k_source][k] if is_group else -1),
                    offset + place,
                )
                for k_source, offset in offsets[k].items()
                for (first, n, is_group), position, place in zip(
                    *(targets[k_source], fields[k_source], places[k_source]), strict=True
                )
            ]
            tables = np.array(rows, np.int64), np.array(_sources(columns), np.int64)
            is_group = np.repeat([row[2] for row in of_layer], [row[1] for row in of_layer])
            not_group = (~is_group).astype(self.couplings[0].dtype)
            out.append(Groups(*tables, not_group, n_fields))
        return out

    def _packed(self, couplings, targets):
        """Packed couplings of each target, and their squares."""
        width = panel_width(couplings.dtype)
        n_panels = int(targets[-1, 2]) + -(-int(targets[-1, 1]) // width)
        panels = empty_panels(len(couplings), n_panels * width, couplings.dtype)
        for first, n, panel, *_ in targets.tolist():
            fill_panels(couplings[:, first : first + n], panels[panel : panel + -(-n // width)])
        none = panels[:0]
        if self._order < 2:
            return panels, none, none
        with np.errstate(over="ignore"):  # rows that meet an infinity say that they have diverged
            if self._coupled_to_itself:
                squares = empty_panels(len(couplings), n_panels * width, couplings.dtype)
                return panels, np.multiply(panels, panels, out=squares), none
            return panels, pack(np.square(couplings)), none

    def fits(self, model):
        """Whether the tables suit another model of the same class."""
        return (
            isinstance(model, Layered)
            and model.dtype == self.couplings[0].dtype
            and len(model.layers) == len(self.priors)
            and all(map(_have_the_same_groups, model.layers, self.priors))
        )

    def refill(self, model):
        """Make it the layout of another model that fits."""
        self.priors = model.layers
        self.fill(model)

    def fill(self, model):
        """Fill in the couplings of a layered model, but not its units."""
        self.couplings = chain_of(model)[2]
        self.layers = self._layers(self.layers.groups)


def covariance_times(mean, var, groups_, x):
    """C x with the covariance C of a layer: v x, and in a group m (x - m.x)."""
    out = var * x
    for group in groups_:
        m, y = mean[:, group], x[:, group]
        out[:, group] = m * (y - np.einsum("ij,ij->i", m, y)[:, None])
    return out


def _have_the_same_groups(prior, k_source):
    """Whether two priors have the same groups of states and other units."""
    pairs = [(f(prior), f(k_source)) for f in (column_sizes, column_is_group)]
    return all(np.array_equal(*pair) for pair in pairs)


def _places(targets, lanes):
    """Where the fields of a group on some targets are, one after another, and their number.

    Products fill whole vectors. So groups begin with a vector, and so do runs of other units: parts
    of these are updated one after another, and what is behind one is overwritten by the next.
    """
    places, end, after_group = [], 0, True
    for _, n, is_group in targets:
        if is_group or after_group:
            end = -(-end // lanes) * lanes
        places.append(end)
        end, after_group = end + n, is_group
    return places, -(-end // lanes) * lanes


def _sources(columns):
    """The table of sources of (first, number, fields of a group or -1, place), in order."""
    table, in_run = [], None
    for first, n, fields, place in sorted(columns):
        kind = SCALARS if fields == -1 else GROUP_RUN
        # Units of two layers are not one run if their places are apart.
        apart = in_run is None or (kind == SCALARS and place != in_run[4] + in_run[1])
        if apart or in_run[2] != kind:
            in_run = [first, 0, kind, -1, place]
            table.append(in_run)
        in_run[1] += n
        if kind == GROUP_RUN:
            table.append([first, n, GROUP, fields, place])
    return table


def _blocks(n_targets, one_by_one):
    """One sweep: layer, first and last target of each block; odd layers before even ones."""
    order = [*range(len(n_targets))[1::2], *range(len(n_targets))[::2]]
    if not one_by_one:
        return np.array([[k, 0, n_targets[k]] for k in order], np.int64)
    single = [(k, t, t + 1) for k in order for t in range(n_targets[k])]
    return np.array(sorted(single, key=lambda v: v[2] / n_targets[v[0]]), np.int64)
