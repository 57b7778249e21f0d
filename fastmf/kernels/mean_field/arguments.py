"""Arguments of the mean-field kernels: layers, settings, external tilts, records.

The state of a model is one array of all its units, layer after layer. A table of layers says where
the units of each are, which units they are coupled to, and where in memory its packed couplings and
the functions of its units are: so kernels are the same for all kinds of units and any number of
layers. A sweep is a list of blocks (layer, first panel, last panel), updated one after another from
the newest state of the units that they are coupled to. An RBM swept hidden layer first and a fully
visible machine swept block by block, or unit by unit, differ only in this list.
"""

from typing import NamedTuple

from fastmf._jit.argument_types import Bool, Int64, Real
from fastmf._jit.intrinsics import view
from fastmf._jit.kernel import kernel
from fastmf.kernels.linear.product import product_address
from fastmf.priors._compiled import INTEGERS, N_ENTRIES, AddressTable, units_of
from fastmf.priors._protocol import has_third_cumulant

# Rows are accelerated once their residual is below the first of these, after LATE_SWEEPS below the
# second. Of 8,000 starts on trained machines 2 reached another fixed point by 0.005 and 52 by 0.05
# from the beginning, of 100 rows 3 by 0.1.
EARLY_RESIDUAL, LATE_RESIDUAL = 0.005, 0.05


class Layer(NamedTuple):
    """One layer of units and its packed couplings."""

    prior: tuple  # unit prior
    n_units: int
    start: int  # position of the layer's first unit among all units of the model
    source: int  # position of the first unit that the layer is coupled to
    # (n_panels, n_source, panel_width): packed couplings and their elementwise powers (no panels if
    # the order does not need them)
    couplings: Real[3]
    squares: Real[3]  # (n_panels, n_source, panel_width)
    cubes: Real[3]  # (n_panels, n_source, panel_width)


# The columns of a table of layers: first the columns of a table of units
# (`fastmf.priors._compiled`), then these; of couplings, and after them of their squares and cubes,
# the addresses.
N_UNITS, START, SOURCE, N_SOURCE, N_PANELS, WIDTH, COUPLINGS = range(N_ENTRIES, N_ENTRIES + 7)
# The address of the product; of models with groups of states also addresses, numbers and `shifted`
# of `Groups`, otherwise 0.
PRODUCT, TARGETS, SOURCES, ALONE, N_TARGETS, N_SOURCES, SHIFTED = range(
    COUPLINGS + 3, COUPLINGS + 10
)


class Groups(NamedTuple):
    """The groups of states of one layer and of the units that it is coupled to."""

    # (n_targets, 6): each group of the layer, and runs of its other units: first unit, number of
    # units, first panel of their couplings, for a group where the fields of the group alone are
    # among all fields of single groups (otherwise -1), first column of the squared couplings, and
    # place among the fields that one group has on the layer
    targets: Int64[2]
    # (n_sources, 5): runs of the units that the layer is coupled to: first one, number, kind
    # (below), of a group where its fields on the layer are among all fields of single groups, and
    # place among the fields that one group of the layer has. Runs of groups are followed by their
    # groups
    sources: Int64[2]
    alone: Real[1]  # (n_units,): 1 for units that are no groups, 0 for states of groups
    shifted: int  # number of fields of single groups of the whole model


# Kinds of sources: a run of units that are no groups, a run of groups, a single group.
SCALARS, GROUP_RUN, GROUP = range(3)


class Layers(AddressTable):
    """The layers of a model: for kernels a table of numbers, otherwise also tuples.

    `of_model` has the layers, `units` their tables of units, and `groups` their `Groups`, or is
    None without groups of states.
    """

    def __new__(cls, layers, groups=None):
        """Fill the table, and keep the layers."""
        units = tuple(units_of(la.prior, la.couplings.dtype, _functions(la)) for la in layers)
        rows = []
        for layer, of_layer, of_groups in zip(
            layers, units, groups or [None] * len(layers), strict=True
        ):
            n_panels, n_source, width = layer.couplings.shape
            sizes = layer.n_units, layer.start, layer.source, n_source, n_panels, width
            powers = (power.ctypes.data for power in layer[4:])
            row = [*of_layer, *sizes, *powers, product_address(layer.couplings.dtype)]
            rows.append(row + _of_groups(of_groups))
        return super().__new__(cls, rows, (tuple(layers), units, groups and tuple(groups)))

    of_model = property(lambda self: self.owners[0])
    units = property(lambda self: self.owners[1])
    groups = property(lambda self: self.owners[2])


def _of_groups(groups):
    """The columns of a table of layers that are about groups."""
    if groups is None:
        return [0] * 6
    addresses = (array.ctypes.data for array in groups[:3])
    return [*addresses, len(groups.targets), len(groups.sources), groups.shifted]


def _functions(layer):
    """Names of the functions of its units that are needed."""
    third = ("third_cumulants",) if has_third_cumulant(layer.prior) else ()
    return "moments", "log_partition", *third


@kernel(mode="merged")
def packed_couplings(layer, power, first, last, like):
    """Some panels of the couplings (power 0), their squares or their cubes."""
    n_source, width = layer[N_SOURCE], layer[WIDTH]
    panel = n_source * width * like.itemsize
    return view(layer[COUPLINGS + power] + first * panel, (last - first, n_source, width), like)


@kernel(mode="merged")
def targets_of(layer):
    """The table of targets of a layer: see `Groups`."""
    return view(layer[TARGETS], (layer[N_TARGETS], 6), INTEGERS)


@kernel(mode="merged")
def sources_of(layer):
    """The table of sources of a layer: see `Groups`."""
    return view(layer[SOURCES], (layer[N_SOURCES], 5), INTEGERS)


class Sweep(NamedTuple):
    """The updates of one sweep."""

    layers: Int64[2]  # Layers
    # (n_blocks, 3): layer, first panel and last panel of each block of units, in order
    blocks: Int64[2]


class TapSettings(NamedTuple):
    """Options of a TAP solve."""

    order: int  # 1 naive mean field, 2 TAP, 3 third order (binary units)
    # Largest change of a mean or variance, before damping, of a row that has converged: see
    # `fastmf.FixedPoint`.
    tol: float
    max_iter: int
    # Address of the compiled update of a block: see `fastmf.kernels.mean_field.tap.update_address`.
    update: int
    # Address of the last part of it, or of the measurement of the log-partition: see
    # `fastmf.kernels.mean_field.units.units_address`.
    finish: int
    # Address of the assessment of a row: see `fastmf.kernels.mean_field.rows.assess_address`.
    assess: int = 0
    damping: float = 0.0  # weight of the old mean; the smallest one if `adaptive`
    adaptive: bool = True  # raise the damping of rows that oscillate
    # Residuals below which a row is accelerated (momentum, half-implicit Onsager terms): from the
    # third sweep on, and after LATE_SWEEPS (this and the next).
    early_residual: float = 0.0
    late_residual: float = LATE_RESIDUAL
    # Update the units of a block one after another (for a layer coupled to itself).
    one_by_one: bool = False
    rows_per_worker: int = 1  # number of rows that a worker iterates at a time
    resolution: float = 2.0**-52  # relative spacing of the floating type
    # Whether `finish` is the measurement of the log-partition, which needs all fields of groups.
    measures: bool = False


class Tilt(NamedTuple):
    """External tilts and clamped units, per row or (with one row) the same for all rows."""

    # (n_rows, n_units) or (1, n_units): tilt exp(field x - precision x^2 / 2) of each unit
    field: Real[2]
    precision: Real[2]  # (n_rows, n_units) or (1, n_units)
    # bool array of the same shapes: units that stay at their starting mean and variance
    clamped: Bool[2]


class MeanFieldRecord(NamedTuple):
    """Starts on entry and results on exit, row by row."""

    # (4, n_rows, n_units): mean, variance and the tilts b and a of which these are the moments
    # (external tilts included). On entry the first two hold the start
    state: Real[3]
    status: Int64[1]  # (n_rows,)
    n_iter: Int64[1]  # (n_rows,)
    # (n_rows,): largest change of a mean or variance, before damping, in the last sweep
    residual: Real[1]
    history: Real[2]  # (n_rows, max_iter) or (0, 0): the residual of every sweep
    # (4, n_rows, n_units) or (0, 0, 0): the state when the first layer of the sweep has been
    # updated for the first time
    first: Real[3]
