"""The layout of a model for kernels: packed layers, order of updates, one array of all units."""

import numpy as np

from fastmf._threads.workers import computed_once, in_parallel
from fastmf.kernels.linear.product import (
    TILE_ROWS,
    empty_panels,
    fill_panels,
    multiply,
    pack,
    panel_width,
    product_address,
)
from fastmf.kernels.mean_field.arguments import Layer, Layers, Sweep
from fastmf.kernels.mean_field.rows import assess_address
from fastmf.kernels.mean_field.tap import update_address, update_block
from fastmf.kernels.mean_field.units import units_address
from fastmf.models._layered import Layered
from fastmf.priors._protocol import precomputed

# Panels of one block: enough to make the overhead of a block small, few enough to stay in the
# cache. In a machine coupled to itself all units of a block are updated from the same old values.
BLOCK_PANELS = 8
SWEEP_UNITS = 48
# Rows whose state a worker's cache holds.
MAX_WORKER_ROWS = 52


class Layout:
    """A model as the arrays that kernels take.

    Parameters
    ----------
    model : RBM, DBM or BoltzmannMachine
    order : {1, 2, 3}
        Highest power of the couplings that is needed.
    schedule : {"blocked", "sequential"}

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

    # Whether there are groups of states, and the numbers for each row that only these need.
    grouped = sparse = False
    # The layers as Gibbs sampling takes them, and memory of short runs of sweeps, once asked for.
    sampled = sweeps = None
    n_group_fields = n_own_fields = 0
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

    def fits(self, model):
        """Whether the memory suits another model of the same class."""
        sizes = tuple(layer.n_units for layer in self.layers.of_model)
        like = self.layers.of_model[0].couplings
        return isinstance(model, Layered) and (model.sizes, model.dtype) == (sizes, like.dtype)

    def refill(self, model):
        """Make it the layout of another model that fits, in the same memory."""
        self.fill(model)
        self.set_units(model.layers)

    def set_units(self, priors):
        """Take over other units."""
        layers = zip(self.layers.of_model, priors, strict=True)
        self.layers = Layers([la._replace(prior=precomputed(prior)) for la, prior in layers])
        self.sampled = None

    def fill(self, model):
        """Fill in the couplings of a layered model, but not its units."""
        layers = self.layers.of_model
        for k, weights in enumerate(model.couplings):
            # A layer's sources are the units of the layer below, and after them of that above.
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

    @property
    def sweep(self):
        """Arguments of kernels."""
        return Sweep(self.layers, self.blocks)

    def fields(self, k, cumulants, order):
        """Return W' m for layer k (None without groups), tilts b and a, and at order 3 (W^3)' k.

        `cumulants` are means, variances and third cumulants of all units.
        """
        layer, units = self.layers.of_model[k], self.bounds[k]
        states = zip(cumulants[:order], (layer.couplings, layer.squares, layer.cubes), strict=False)
        b, *higher = (_products(part, layer, packed) for part, packed in states)
        mean = cumulants[0][:, units]
        a = -higher[0] if higher else np.zeros_like(mean)
        b += a * mean
        return None, b, a, *higher[1:]

    def join(self, parts, joined):
        """Write the arrays of the layers, where not None, into `whole`, (n_rows, n_units)."""
        for units, part in zip(self.bounds, parts, strict=True):
            if part is not None:
                joined[:, units] = part
        return joined

    def split(self, joined):
        """The arrays of the layers; of a model with one layer, the array itself."""
        if len(self.bounds) == 1:
            return joined
        return tuple(joined[..., units] for units in self.bounds)


def _products(states, layer, packed):
    """Rows of states times the packed couplings to the units of a layer."""
    n_panels, _, width = packed.shape
    out = np.empty((len(states), n_panels * width), states.dtype)
    arguments = states, layer.source, packed, layer.n_units, np.zeros(1, np.int64), out
    in_parallel(multiply, (product_address(states.dtype), *arguments), 1)
    return out[:, : layer.n_units]


def chain_of(model):
    """First unit of each layer, first one that it is coupled to, and its couplings to those.

    Even layers are stored before odd ones. So the neighbours of a layer are contiguous, and one
    product is enough for both of them.
    """
    n_layers, sizes, weights = len(model.sizes), model.sizes, model.couplings
    starts = [sum(sizes[k % 2 : k : 2]) + k % 2 * sum(sizes[::2]) for k in range(n_layers)]
    sources = [starts[abs(k - 1)] for k in range(n_layers)]
    couplings = []
    for k in range(n_layers):
        parts = [*weights[max(k - 1, 0) : k], *(w.T for w in weights[k : k + 1])]
        couplings.append(np.concatenate(parts) if len(parts) > 1 else parts[0])
    return starts, sources, couplings


def _powers(couplings, order):
    """Packed couplings, their squares and their cubes, as far as they are needed."""
    first = pack(couplings)
    none = np.zeros((0, *first.shape[1:]), first.dtype)
    squares = _memory_for(couplings) if order >= 2 else none
    cubes = _memory_for(couplings) if order >= 3 else none
    _fill_powers(first, squares, cubes)
    return first, squares, cubes


def _fill_powers(couplings, squares, cubes):
    """Compute the powers for which there is memory."""
    if not len(squares):
        return
    with np.errstate(over="ignore"):  # rows that meet an infinity say that they have diverged
        np.multiply(couplings, couplings, out=squares)
        if len(cubes):
            np.multiply(squares, couplings, out=cubes)


def _memory_for(couplings):
    return empty_panels(*couplings.shape, couplings.dtype)


def _pieces(layer, step):
    n_panels = len(layer.couplings)
    return [(first, min(first + step, n_panels)) for first in range(0, n_panels, step)]


def rows_per_worker(n_rows, n_workers, max_rows=MAX_WORKER_ROWS):
    """Number of rows that each worker iterates at a time, so that the last round is full too.

    With a few sweeps each, as in learning, all rows of a round end together; with few rounds, a
    tile of rows too many in each leaves no rows for the last worker.
    """
    each = -(-n_rows // n_workers)
    # Two rounds at least: the rows of the second one are taken by the threads that are free first.
    # But each round reads all couplings, and fewer rows than a few tiles wait for these.
    n_rounds = max(-(-each // max_rows), min(2, n_workers, each // (2 * TILE_ROWS)), 1)
    multiple = TILE_ROWS if n_rounds > 4 else 2
    return min(each, -(-each // n_rounds // multiple) * multiple)
