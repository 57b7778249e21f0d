"""Layers, rows and units of the mean-field kernels: arguments, equations of a unit, convergence.

The state of a model is one array of all its units, layer after layer. A table of layers has the
positions of the units of each layer and of their neighbours, and the addresses of packed couplings
and of functions of the units, so that kernels are the same for all kinds of units and any number of
layers. A sweep is a list of blocks (layer, first panel, last panel), which are updated one after
another from the newest state of their neighbours. An RBM swept hidden layer first and a fully
visible machine swept block by block, or unit by unit, differ only in this list.

The neighbours of a unit act on it through a tilt exp(b x - a x^2 / 2) of its prior. Plefka's
expansion of the free energy at fixed means m and variances v, to second order in the couplings W,
gives (Eqs. 67-69 of Tramel et al. 2018)

    a = -(W^2)' v                   Onsager term; 0 for order 1 (naive mean field)
    b = W' m + a m                  order 3 adds (W^3)' k k'(m) / 6, k the third cumulant
    (m, v) = moments of the prior under (b + field, a + precision)

without a m for the states of a group (see `fastmf.kernels.mean_field.tap`). All updates use these
functions. After each sweep, `assess_row` decides whether a row has ended.
"""

from functools import cache
from typing import NamedTuple

import numpy as np

from fastmf._jit.argument_types import Bool, Float64, Int64, Real, argument_types
from fastmf._jit.intrinsics import bits_to_float, float_to_bits, larger, row, smaller, view
from fastmf._jit.kernel import REORDER, address_of, call, calls, kernel
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
    SMALLEST_NORMAL,
    STEEPNESS,
    VAR_ROUNDING,
    WINDOW_SWEEPS,
)
from fastmf.kernels.linear.product import add_multiple, copy, product_address, set_to_zero
from fastmf.priors._compiled import (
    INTEGERS,
    N_ENTRIES,
    AddressTable,
    third_cumulants,
    tilted_log_partition,
    tilted_moments,
    units_of,
)
from fastmf.priors._protocol import has_third_cumulant
from fastmf.special import where

# Rows are accelerated once their residual is below the first of these, after LATE_SWEEPS below the
# second. Of 8,000 starts on trained machines, 2 reached another fixed point with 0.005, and 52 with
# 0.05 from the beginning; with 0.1, 3 of 100 rows.
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
# (`fastmf.priors._compiled`), then these; COUPLINGS is followed by the addresses of squares and
# cubes.
N_UNITS, START, SOURCE, N_SOURCE, N_PANELS, WIDTH, COUPLINGS = range(N_ENTRIES, N_ENTRIES + 7)
# The address of the product; for models with groups of states also addresses, lengths and `shifted`
# of `Groups`, otherwise 0.
PRODUCT, TARGETS, SOURCES, ALONE, N_TARGETS, N_SOURCES, SHIFTED = range(
    COUPLINGS + 3, COUPLINGS + 10
)


class Groups(NamedTuple):
    """The groups of states of one layer and of the units that it is coupled to."""

    # (n_targets, 6): each group of the layer, and runs of its other units: first unit, number of
    # units, first panel of their couplings, for a group the position of its fields among all fields
    # of single groups (otherwise -1), first column of the squared couplings, and position among the
    # fields of a group on the layer
    targets: Int64[2]
    # (n_sources, 5): runs of neighbours of the layer: first unit, number, kind (below), for a group
    # the position of its fields on the layer among all fields of single groups, and position among
    # the fields of a group of the layer. Runs of groups are followed by their groups
    sources: Int64[2]
    alone: Real[1]  # (n_units,): 1 for units outside groups, 0 for states of groups
    shifted: int  # number of fields of single groups of the whole model


# Kinds of sources: a run of units outside groups, a run of groups, a single group.
SCALARS, GROUP_RUN, GROUP = range(3)


class Layers(AddressTable):
    """The layers of a model, as a table of integers for kernels, with the tuples that own memory.

    `of_model` has the layers, `units` their tables of units, and `groups` their `Groups`, or is
    None without groups of states.
    """

    def __new__(cls, layers, groups=None):
        """Fill the table, and store the layers."""
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
    """Return the columns of a table of layers for groups."""
    if groups is None:
        return [0] * 6
    addresses = (array.ctypes.data for array in groups[:3])
    return [*addresses, len(groups.targets), len(groups.sources), groups.shifted]


def _functions(layer):
    """Return the names of the functions of the units that are needed."""
    third = ("third_cumulants",) if has_third_cumulant(layer.prior) else ()
    return "moments", "log_partition", *third


@kernel(mode="merged")
def packed_couplings(layer, power, first, last, like):
    """Return some panels of the couplings (power 0), their squares or their cubes."""
    n_source, width = layer[N_SOURCE], layer[WIDTH]
    panel = n_source * width * like.itemsize
    return view(layer[COUPLINGS + power] + first * panel, (last - first, n_source, width), like)


@kernel(mode="merged")
def targets_of(layer):
    """Return the table of targets of a layer: see `Groups`."""
    return view(layer[TARGETS], (layer[N_TARGETS], 6), INTEGERS)


@kernel(mode="merged")
def sources_of(layer):
    """Return the table of sources of a layer: see `Groups`."""
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
    # Address of `update_units`, or of the measurement of the log-partition: see
    # `fastmf.kernels.mean_field.units.units_address`.
    finish: int
    # Address of the assessment of a row: see `fastmf.kernels.mean_field.units.assess_address`.
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
    first_block: int = 0  # first block of the first sweep: starts are updates of earlier blocks


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
    # (including external tilts). On entry the first two are the start
    state: Real[3]
    status: Int64[1]  # (n_rows,)
    n_iter: Int64[1]  # (n_rows,)
    # (n_rows,): largest change of a mean or variance, before damping, in the last sweep
    residual: Real[1]
    history: Real[2]  # (n_rows, max_iter) or (0, 0): the residual of every sweep


# The entries of the slot of an active row; flags are 1 or 0.
# Position in the record, number of sweeps, and options that adapt.
ROW, SWEEP, DAMPING, MOMENTUM = range(4)
# Whether it has momentum, whether oscillations have been detected, whether means have converged, so
# that variances are not damped any more, and whether the row is stored and this sweep is to confirm
# it.
ACCELERATED, OSCILLATING, SETTLED, CONFIRMS = range(4, 8)
# Measures of this sweep: whether moments are missing, largest change of a mean and of a variance,
# largest effects of these on the log-partition, and largest absolute mean, or variance up to 1;
# squared norm of the change of the means, and its inner product with the last step.
INFINITE, RESIDUAL, VAR_RESIDUAL, EFFECT, VAR_EFFECT, SCALE = range(8, 14)
SQUARED_CHANGE, STEP_DOT = range(14, 16)
# In a sweep that measures: the log-partition.
MEASURED = STEP_DOT
# Squared norm of the last step, and running mean of the cosine between it and the change.
SQUARED_STEP, MEAN_COSINE = range(16, 18)
# Smallest residuals of this window of sweeps and of the one before.
WINDOW_RESIDUAL, LAST_WINDOW_RESIDUAL = range(18, 20)
# Factor by which changes must be smaller than `tol` before a row is stored and confirmed; how the
# row has ended, and whether it restarts from the stored state; number of entries.
STRICTNESS, STATUS, RETRACTED, SLOT_SIZE = range(20, 24)


class ActiveRows(NamedTuple):
    """The rows that a worker iterates, one per slot, and its scratch memory."""

    slots: Float64[3]  # (1, n_slots, SLOT_SIZE)
    # (5, n_slots, n_units), or (6, n_slots, n_units) for order 3: mean, variance, tilt b, tilt a
    # without the external precision, last step of the mean, and third cumulant
    state: Real[3]
    # (3, n_slots, max_columns), or (4, n_slots, max_columns) with groups: means, variances and
    # third cumulants times one block of couplings, their squares and cubes; with groups of states
    # see `fastmf.kernels.mean_field.tap`
    products: Real[3]
    scratch: Real[2]  # (5, max(max_columns, n_units))
    # (1, n_slots, n_group_fields): with groups of states, the fields of single groups, then the
    # shifted means of the neighbours of a group; otherwise empty
    group_fields: Real[3]


# Planes of a state; a record has the first four.
MEAN, VAR, B, A, STEP, THIRD = range(6)
# Planes of products: fields, their variances, and products with third cumulants, or of one source
# of groups of states; fields with the effect of a group on its neighbours.
FIELD, ONSAGER, CUBIC, WHOLE_FIELD = range(4)
ONE_SOURCE = CUBIC


@kernel(mode="merged")
def copy_row(old, source, new, target, n_planes):
    """Copy the first planes of a row of one state to a row of another of the same width."""
    n = old.shape[2]
    for plane in range(n_planes):
        copy(row(old, (plane, source, 0), n), row(new, (plane, target, 0), n))


@kernel(mode="merged")
def _has_converged(slot, settings):
    """Return whether means, and whether all measures of a row, have converged.

    The rule is stated in `FixedPoint`. Changes of a few units in the last place are rounding.
    """
    tol, unit = settings.tol / slot[STRICTNESS], settings.resolution
    if slot[CONFIRMS] == 1:
        tol, unit = settings.tol, STEEPNESS * unit
    rounding, var_tol = MEAN_ROUNDING * unit * slot[SCALE], larger(tol, VAR_ROUNDING * unit)
    settled = slot[RESIDUAL] <= larger(tol, rounding)
    still = slot[VAR_RESIDUAL] <= var_tol and slot[VAR_EFFECT] <= var_tol
    small = slot[RESIDUAL] <= rounding or slot[EFFECT] <= var_tol
    return settled, settled and still and small


@kernel(mode="merged")
def _verdict(slot, settings):
    """Return how a row has ended, RUNNING if it has not.

    If it was damped, or oscillates, it is stored (CONFIRMING), and a sweep without damping decides:
    if that moves it, it restarts from the stored state.
    """
    confirms = slot[CONFIRMS] == 1
    settled, converged = _has_converged(slot, settings)
    slot[SETTLED] = settled
    if slot[INFINITE] == 1 and not confirms:
        return DIVERGED
    if confirms and (slot[INFINITE] == 1 or not converged):
        slot[STRICTNESS], slot[CONFIRMS], slot[RETRACTED] = 4 * slot[STRICTNESS], 0, 1
        # Restart without momentum.
        slot[SQUARED_CHANGE] = slot[STEP_DOT] = 0
        return RUNNING
    if converged and (confirms or (slot[DAMPING] == 0 and slot[OSCILLATING] == 0)):
        return CONVERGED
    if converged and slot[SWEEP] < settings.max_iter:
        slot[CONFIRMS], slot[MOMENTUM] = 1, 0
        return CONFIRMING
    return RUNNING


@kernel(mode="merged")
def _adapt(slot, residual, settings):
    """Decide whether a row continues, and adapt its damping and momentum."""
    sweep = np.int64(slot[SWEEP])
    lengths = np.sqrt(slot[SQUARED_CHANGE] * slot[SQUARED_STEP])
    cosine = slot[STEP_DOT] / lengths if lengths > 0 else 0.0
    slot[MEAN_COSINE] += 0.1 * (cosine - slot[MEAN_COSINE])
    smallest, before = smaller(slot[WINDOW_RESIDUAL], residual), slot[LAST_WINDOW_RESIDUAL]
    slot[WINDOW_RESIDUAL] = smallest
    if sweep >= settings.max_iter:
        falling = smallest <= before / 2 or slot[MEAN_COSINE] >= 0.9
        return OUT_OF_ITERATIONS if falling else CYCLING
    if sweep % WINDOW_SWEEPS == 0:
        # With momentum, steps sometimes turn without oscillating.
        straight = 0.5 if slot[ACCELERATED] == 1 else 0.9
        stagnant = smallest > 0.95 * before and slot[MEAN_COSINE] < straight
        alternating = smallest > 0.5 * before and slot[MEAN_COSINE] < 0
        if settings.adaptive and slot[SETTLED] == 0 and (stagnant or alternating):
            # Without Onsager terms damping is the only remedy.
            if slot[OSCILLATING] == 1 or settings.order < 2:
                slot[DAMPING] = smaller((1 + slot[DAMPING]) / 2, MAX_DAMPING)
            slot[OSCILLATING] = 1
        slot[LAST_WINDOW_RESIDUAL], slot[WINDOW_RESIDUAL] = smallest, np.inf

    momentum = slot[MOMENTUM]
    slot[SQUARED_STEP] = slot[SQUARED_CHANGE] + momentum * (
        2 * slot[STEP_DOT] + momentum * slot[SQUARED_STEP]
    )
    limit = settings.late_residual if sweep >= LATE_SWEEPS else settings.early_residual
    accelerated = sweep >= 2 and residual < limit
    slot[ACCELERATED] = accelerated
    slot[MOMENTUM] = (momentum + MAX_MOMENTUM) / 2 if accelerated and cosine > 0 else 0.0
    return RUNNING


@kernel(mode="by_address", views=True)
def _assess_slot(slot, settings):
    """Run the part of `assess_row` that does not depend on the floating type of the state."""
    residual = slot[RESIDUAL]
    slot[SWEEP] += 1
    status = _verdict(slot, settings)
    if status == RUNNING:
        status = _adapt(slot, residual, settings)
    if status <= RUNNING:
        set_to_zero(row(slot, (INFINITE,), SQUARED_STEP - INFINITE))
    slot[STATUS] = status


@calls()
def _assess(address, slot, settings):
    call(address, (slot, settings))


@cache
def assess_address():
    """Return the address of the compiled assessment of a row."""
    return address_of(_assess_slot, *argument_types(float, Float64[1], TapSettings))


@kernel(mode="merged")
def assess_row(active, s, slot, settings, record):
    """Return the status of the row in slot s after a sweep, and adapt its damping and momentum.

    An accelerated row has momentum (Nesterov): before the next sweep, `move_on` extrapolates its
    mean by a fraction of its last step, which grows while consecutive steps have one direction.
    """
    index = np.int64(slot[ROW])
    if record.history.shape[0] > 0:
        residual = larger(slot[RESIDUAL], slot[VAR_RESIDUAL])
        record.history[index, np.int64(slot[SWEEP])] = residual
    _assess(settings.assess, slot, settings)
    if slot[RETRACTED] == 1:
        copy_row(record.state, index, active.state, s, 2)
        slot[RETRACTED] = 0
    return np.int64(slot[STATUS])


@kernel(mode="merged")
def move_on(active, s, slot):
    """Add momentum times the last step to the mean of the row in slot s."""
    if slot[MOMENTUM] > 0:
        n = active.state.shape[2]
        mean, step = row(active.state, (MEAN, s, 0), n), row(active.state, (STEP, s, 0), n)
        add_multiple(mean.dtype.type(slot[MOMENTUM]), step, mean)


@kernel(mode="merged")
def _magnitude_bits(x):
    """Return the bits of |x|, which are ordered as the values: loops over maxima vectorise."""
    return float_to_bits(abs(x))


@kernel(mode="inner", fastmath=REORDER)
def _relax(state, new, clamped, slot):
    """Move means and variances towards new values, and measure the change.

    The step size of a unit is 1 - damping, divided by 1 - a v / 2 in rows that are accelerated or
    oscillate. To first order, this evaluates the Onsager term at the average of the old and the new
    mean; at the old mean rows oscillate, and momentum does not help. Momentum times the last step
    has been added to the mean before. Variances are not damped once means have converged; in a
    sweep that confirms a row nothing is damped. Without moments nothing is changed.

    The effects of a unit on the log-partition are dm^2 / v and (a dv)^2: of second order, whatever
    the scale of the unit.
    """
    (mean, var, step, a), (new_mean, new_var) = state, new
    number = mean.dtype.type
    # Not 0: in Numba an integer would convert results to float64.
    zero, one, smallest = number(0), number(1), number(SMALLEST_NORMAL)
    missing, n = zero, mean.shape[0]
    for i in range(n):
        # 0, unless one of them is infinite or NaN.
        m, v = where(clamped[i], mean[i], new_mean[i]), where(clamped[i], var[i], new_var[i])
        missing += zero * m + zero * v
    if missing != 0:
        slot[INFINITE] = 1
        return
    undamped, momentum = number(1 - slot[DAMPING]), number(slot[MOMENTUM])
    half = number(0.5 if slot[ACCELERATED] + slot[OSCILLATING] > 0 else 0)
    if slot[CONFIRMS] == 1:
        undamped, half = one, zero
    squared_change = step_dot = zero
    settled = slot[SETTLED] == 1
    residual = var_residual = effect = var_effect = scale = _magnitude_bits(zero)
    for i in range(n):
        # Recomputed, not stored: LLVM would use masked stores, which some processors do slowly.
        m, v = where(clamped[i], mean[i], new_mean[i]), where(clamped[i], var[i], new_var[i])
        change, var_change = m - mean[i], v - var[i]
        precision = one / larger(v, smallest)
        per_var = smaller(one, precision)
        per_sd = np.sqrt(per_var)
        residual = larger(residual, _magnitude_bits(per_sd * change))
        scale = larger(scale, _magnitude_bits(larger(per_sd * abs(m), smaller(v, one))))
        var_residual = larger(var_residual, _magnitude_bits(per_var * var_change))
        effect = larger(effect, _magnitude_bits(precision * (change * change)))
        onsager_change = a[i] * var_change
        var_effect = larger(var_effect, _magnitude_bits(onsager_change * onsager_change))
        step_size = undamped / (one - half * (a[i] * v))
        change = step_size * change
        squared_change += change * change
        step_dot += change * step[i]
        step[i] = change + momentum * step[i]
        mean[i] += change
        var[i] += where(settled, one, step_size) * var_change
    slot[RESIDUAL] = larger(slot[RESIDUAL], bits_to_float(residual))
    slot[VAR_RESIDUAL] = larger(slot[VAR_RESIDUAL], bits_to_float(var_residual))
    slot[EFFECT] = larger(slot[EFFECT], bits_to_float(effect))
    slot[VAR_EFFECT] = larger(slot[VAR_EFFECT], bits_to_float(var_effect))
    slot[SCALE] = larger(slot[SCALE], bits_to_float(scale))
    slot[SQUARED_CHANGE] += squared_change
    slot[STEP_DOT] += step_dot


@kernel(mode="merged")
def _couple(layer, active, units, order, alone):
    """Set the tilts of some units of one row from their neighbours; return a for `_relax`.

    External tilts are not included.
    """
    s, first, n, column = units
    products, scratch, start = active.products, active.scratch, layer[START] + first
    mean, a = row(active.state, (MEAN, s, start), n), row(active.state, (A, s, start), n)
    b, field = row(active.state, (B, s, start), n), row(products, (FIELD, s, column), n)
    variance, implicit = row(products, (ONSAGER, s, column), n), a
    if order == 1:
        set_to_zero(a)
    for i in range(n if order > 1 else 0):
        a[i] = -variance[i]
    if alone.shape[0] > 0:
        # The states of a group take steps of equal size, so that their means still sum to 1.
        implicit = row(scratch, (4, 0), n)
        for i in range(n):
            implicit[i] = alone[i] * a[i]
    for i in range(n):
        b[i] = field[i] + implicit[i] * mean[i]
    if order == 3:
        cubic, derivative = row(products, (CUBIC, s, column), n), row(scratch, (3, 0), n)
        third_cumulants(layer, first, mean, row(scratch, (0, 0), n), derivative)
        sixth = scratch.dtype.type(1 / 6)
        for i in range(n):
            b[i] += sixth * cubic[i] * derivative[i]
    return implicit


@kernel(mode="merged")
def _add_external(layer, active, units, tilt):
    """Add external tilts to b of some units; return the total a, and which units are clamped."""
    s, first, n, _ = units
    start, index = layer[START] + first, np.int64(active.slots[0, s, ROW])
    b, a = row(active.state, (B, s, start), n), row(active.state, (A, s, start), n)
    total_a = row(active.scratch, (2, 0), n)
    external = row(tilt.field, (smaller(index, tilt.field.shape[0] - 1), start), n)
    precision = row(tilt.precision, (smaller(index, tilt.precision.shape[0] - 1), start), n)
    for i in range(n):
        total_a[i] = a[i] + precision[i]
    for i in range(n):
        b[i] += external[i]
    return total_a, row(tilt.clamped, (smaller(index, tilt.clamped.shape[0] - 1), start), n)


@kernel(mode="by_address", fastmath=REORDER, views=True)
def _update_units(layer, active, units, order, tilt, alone):
    """The compiled form of `update_units`."""
    s, first, n, _ = units
    start, state, scratch = layer[START] + first, active.state, active.scratch
    implicit = _couple(layer, active, units, order, alone)
    total_a, clamped = _add_external(layer, active, units, tilt)
    mean, b = row(state, (MEAN, s, start), n), row(state, (B, s, start), n)
    new_mean, new_var = row(scratch, (0, 0), n), row(scratch, (1, 0), n)
    tilted_moments(layer, first, b, total_a, new_mean, new_var)
    var, step = row(state, (VAR, s, start), n), row(state, (STEP, s, start), n)
    slot = row(active.slots, (0, s, 0), SLOT_SIZE)
    _relax((mean, var, step, implicit), (new_mean, new_var), clamped, slot)
    if order == 3:
        third_cumulants(layer, first, mean, row(state, (THIRD, s, start), n), new_mean)


@kernel(mode="by_address", fastmath=REORDER, views=True)
def _measure_units(layer, active, units, order, tilt, alone):
    """Add the terms of some units to the log-partition of one row, without updates.

    With half of the terms of each pair of units, f = W' m, and b, a without external tilts, they
    are

        log Z_i - m b / 2 + a v / 4               and at order 3  (W^3)' k (k - m k') / 12
        log Z_i + m (f + a - 3 b) / 4             for a state of a group, where v + m^2 = m

    where b m - a (m^2 + v) / 2 replaces log Z_i for a clamped unit.
    """
    s, first, n, column = units
    start, scratch = layer[START] + first, active.scratch
    _couple(layer, active, units, order, alone)
    mean, var = row(active.state, (MEAN, s, start), n), row(active.state, (VAR, s, start), n)
    b, a = row(active.state, (B, s, start), n), row(active.state, (A, s, start), n)
    pairs, of_clamped = 0.0, row(scratch, (1, 0), n)
    for i in range(n):
        m, v = np.float64(mean[i]), np.float64(var[i])
        pairs += a[i] * v / 4 - m * b[i] / 2
        of_clamped[i] = b[i] * m - a[i] * (m * m + v) / 2
    if alone.shape[0] > 0:
        field = row(active.products, (WHOLE_FIELD, s, column), n)
        for i in range(n):
            m, v = np.float64(mean[i]), np.float64(var[i])
            if alone[i] == 0:
                pairs += (m * (field[i] + a[i] - b[i]) - a[i] * v) / 4
                of_clamped[i] = b[i] * m - a[i] * m / 2
    if order == 3:
        cubic, derivative = row(active.products, (CUBIC, s, column), n), row(scratch, (3, 0), n)
        third = row(active.state, (THIRD, s, start), n)
        for i in range(n):
            pairs += np.float64(cubic[i]) * (third[i] - mean[i] * derivative[i]) / 12
    total_a, clamped = _add_external(layer, active, units, tilt)
    log_z = row(scratch, (0, 0), n)
    tilted_log_partition(layer, first, b, total_a, log_z)
    for i in range(n):
        pairs += where(clamped[i], of_clamped[i], log_z[i])
    active.slots[0, s, MEASURED] += pairs


@kernel(mode="merged")
def refresh_variances(layers, active, s, slot, tilt):
    """Set the variances of a damped row to the variances of its tilts, if these exist."""
    if slot[DAMPING] + slot[ACCELERATED] + slot[OSCILLATING] == 0 or slot[INFINITE] == 1:
        return
    index = np.int64(slot[ROW])
    for k in range(layers.shape[0]):
        n, start = layers[k, N_UNITS], layers[k, START]
        b, a = row(active.state, (B, s, start), n), row(active.state, (A, s, start), n)
        var, total_a = row(active.state, (VAR, s, start), n), row(active.scratch, (2, 0), n)
        new_mean, new_var = row(active.scratch, (0, 0), n), row(active.scratch, (1, 0), n)
        last = tilt.precision.shape[0] - 1
        precision = row(tilt.precision, (smaller(index, last), start), n)
        clamped = row(tilt.clamped, (smaller(index, tilt.clamped.shape[0] - 1), start), n)
        for i in range(n):
            total_a[i] = a[i] + precision[i]
        tilted_moments(layers[k], 0, b, total_a, new_mean, new_var)
        for i in range(n):
            var[i] = where(clamped[i], var[i], new_var[i])


@calls()
def update_units(address, layer, active, units, order, tilt, alone):
    """Update some units of one row, from their products."""
    call(address, (layer, active, units, order, tilt, alone))


@cache
def units_address(dtype, measure=False):
    """Return the address of the compiled update, or measurement, of some units of one row."""
    arguments = Int64[1], ActiveRows, (int,) * 4, int, Tilt, Real[1]
    return address_of(
        _measure_units if measure else _update_units, *argument_types(dtype, *arguments)
    )
