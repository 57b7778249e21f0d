"""Arguments of the kernel that takes steps of learning: batches, parameters, statistics, memory."""

from typing import NamedTuple

from fastmf._jit.argument_types import Float64, Int32, Int64, Real, UInt64, Workers
from fastmf.kernels.linear.sparse_rows import CompressedRows
from fastmf.kernels.mean_field.arguments import MeanFieldRecord, Sweep, TapSettings, Tilt
from fastmf.kernels.mean_field.rows import ActiveRows
from fastmf.kernels.training.statistics import POWER

# The solvers of a step: for solutions of the model, and of the hidden layers given data.
MODEL, POSTERIOR = range(2)
# The columns of a table of phases: the address of a kernel, and the number of the solver that it
# is, or -1.
ADDRESS, SOLVER = range(2)
# The entries of the queue of a phase: next task, next worker of the solver, threads that have
# entered and left.
ENTERED, LEFT, QUEUE_SIZE = 2, 3, 4
# The columns of a table of couplings, of which there is one row for each matrix: addresses of the
# weights, of their last step, of inner products of the step with the offsets below, of what groups
# of states add to the gradient, and of the packed gradient times the preconditioner above, or 0 for
# the last two; the first of its terms, and the one after the last.
(
    WEIGHT_MATRIX, VELOCITY, OFFSET_PRODUCTS, GROUP_GRADIENT, GRADIENT_TIMES_PRECONDITIONER,
    FIRST_TERM, END_TERM, N_COUPLING_COLUMNS,
) = range(8)  # fmt: skip
# The columns of a table of preconditioners: addresses of the matrix and of the packed one.
MATRIX, PANELS = range(2)
# The columns of a table of terms after those of `fastmf.kernels.training.statistics`: the address
# of the packed hidden units of all terms of the same couplings, the number of rows there, and the
# first row of this term.
RIGHTS, N_RIGHTS, FIRST_RIGHT, N_TERM_COLUMNS = range(POWER + 1, POWER + 5)
# The columns of a table of rows of hidden units: their address and number, the address of their
# first entry among the packed ones, and the bytes from one panel of these to the next.
HIDDEN, N_HIDDEN, PACKED, PANEL_BYTES = range(4)
# Rows of the statistics of units: offsets; gradients by the fields; inner products of the step of
# couplings, but for the rate, with the offsets above; squared norms of couplings; and differences
# between data and model of the averages of x, of x^2, and of whether x is not 0.
OFFSET, GRADIENT, STEP_DOT_OFFSET, SQUARES, FIRST, SECOND, NONZERO, N_STATISTICS = range(8)


class Batches(NamedTuple):
    """The rows of each step.

    Parameters
    ----------
    data : AddressTable
        The address of the data, (n_rows, n_visible), unless they are sparse.
    rows : int64 array of shape (n_steps, n_batch)
    seeds : uint64 array of shape (n_steps,)
        Seeds of Gibbs sampling.
    rates : float64 array of shape (n_steps,)
        Learning rates.
    sparse : CompressedRows
        Rows of all steps, one after another, if data are sparse.
    """

    data: Int64[1]
    rows: Int64[2]
    seeds: UInt64[1]
    rates: Float64[1]
    sparse: CompressedRows


class Parameters(NamedTuple):
    """Parameters that a step changes.

    Parameters
    ----------
    couplings : int64 array of shape (n_couplings, N_COUPLING_COLUMNS)
        Matrices of couplings between neighbouring layers: see the columns above.
    fields : array of shape (2, n_units)
        Fields of all units, and their last step; not used where more than the fields is learned.
    copies : int64 array of shape (n_couplings, 4, 5)
        Packed couplings: see `fastmf.kernels.linear.copies`. The last two are those for the hidden
        layers given data, or zero.
    diverged : int64 array of shape (1,)
        Set to 1 where couplings or fields exceed `Settings.max_weight`; no step is taken after
        that.
    preconditioners : int64 array of shape (n_layers, 2)
        Matrices of each layer that gradients are multiplied by: see the columns above.
    """

    couplings: Int64[2]
    fields: Real[2]
    copies: Int64[3]
    diverged: Int64[1]
    preconditioners: Int64[2]


class Settings(NamedTuple):
    """Options of a step.

    Parameters
    ----------
    momentum : float
        Weight of the last step in the next.
    decay : tuple of two floats
        l2, and the l1 of preconditioned gradients: l2 W + l1 sign(W) is subtracted from the
        gradient by couplings W.
    l1 : float
        The l1 of ordinary gradients, where soft thresholds take the place of the sign: see
        `fastmf.kernels.training.ascent`.
    centred : int64 array of shape (n_layers,)
        1 for layers whose fields act as tilts, if couplings are between deviations: only units
        coupled to those have offsets.
    phases : int64 array of shape (n_phases, 2)
        The phases in order: see the columns above, and
        `fastmf.kernels.training.train.phase_table`.
    solved : bool
        Whether states are mean-field solutions, not samples.
    order : int
        Order of the expansion, or 1.
    n_sweeps : int
        Sweeps of Gibbs sampling.
    tilts_kept : bool
        Whether solutions are needed with the tilts of which they are the moments: where more than
        fields is learned of the units. Then the caller moves these, from the averages.
    persistent : bool
        Whether solutions or samples go on from those of the step before.
    max_weight : float
    add_rows : int
        Address of `fastmf.kernels.linear.sparse_rows.add_rows`, compiled; 0 if data are dense.
    task_rows, task_samples : int
        Rows of data, and Gibbs samples, of one task.
    """

    momentum: float
    decay: tuple[float, float]
    l1: float
    centred: Int64[1]
    phases: Int64[2]
    solved: bool
    order: int
    n_sweeps: int
    tilts_kept: bool
    persistent: bool
    max_weight: float
    add_rows: int
    task_rows: int
    task_samples: int


class Solver(NamedTuple):
    """Arguments of the mean-field solver.

    Parameters
    ----------
    sweep : Sweep
    settings : TapSettings
    tilt : Tilt
    workers : ActiveRows
    """

    sweep: Sweep
    settings: TapSettings
    tilt: Tilt
    workers: Workers[ActiveRows]


class Moments(NamedTuple):
    """Means and variances of all units, and the tilts of which these are the moments.

    Parameters
    ----------
    mean, var, b, a : array of shape (n_rows, n_units)
    """

    mean: Real[2]
    var: Real[2]
    b: Real[2]
    a: Real[2]


class Statistics(NamedTuple):
    """Results of the phases of a step for the next ones.

    Parameters
    ----------
    data : Moments
        Hidden units given the rows of data, which are the means of the visible ones. The means lie
        before those of the model in memory. Where data are sparse there are hidden units alone.
    model : MeanFieldRecord
        Solutions, or samples and the moments given them.
    terms : int64 array of shape (n_terms, N_TERM_COLUMNS)
        Terms of the gradient, matrix by matrix, the highest power of the couplings first: see the
        columns in `fastmf.kernels.training.statistics`, and above.
    scales : array of shape (n_rows,)
        Weight of each row of the terms, one after another.
    hidden : int64 array of shape (n_rows, 4)
        The rows of hidden units of all terms: see the columns above.
    averages : int64 array of shape (n_tasks, 3)
        Tasks of the averages: layer, first unit among all, and number of units.
    panels : int64 array of shape (n_tasks, 3)
        Tasks of the couplings: number of the matrix, first row, and number of rows.
    units : array of shape (N_STATISTICS, n_units)
        See the rows above.
    transposed_batch : CompressedRows
        The transpose of the batch, if data are sparse, divided by its number of rows.
    posterior : MeanFieldRecord
        Solutions for the hidden layers of deep machines given the rows of data.
    data_fields : array of shape (n_rows, n_hidden_units)
        Their external fields.
    columns : int64 array of shape (n_layers,)
        The first unit of each layer there.
    uncoupled : array of shape (2, n_units)
        Means and variances of all units without couplings, from which deep machines start.
    second_moments : array of shape (n_starts, n_units)
        Second moments of the model where there are groups of states; otherwise of no size.
    """

    data: Moments
    model: MeanFieldRecord
    terms: Int64[2]
    scales: Real[1]
    hidden: Int64[2]
    averages: Int64[2]
    panels: Int64[2]
    units: Real[2]
    transposed_batch: CompressedRows
    posterior: MeanFieldRecord
    data_fields: Real[2]
    columns: Int64[1]
    uncoupled: Real[2]
    second_moments: Real[2]


class Scratch(NamedTuple):
    """Memory of one thread; that of all has an axis of threads more.

    Parameters
    ----------
    products : array of shape (n_rows, n_columns)
    weight_rows : array of shape (panel_width, n_above)
        As wide as the largest layer but the lowest.
    left : array of shape (n_rows, panel_width)
        Some visible units in all rows of a term.
    right : array of shape (n_panels, n_starts, panel_width)
        Hidden units in all rows of the model, packed, where there are groups of states.
    vectors : array of shape (3, n_columns)
        The first one is zero.
    uniforms : float64 array of shape (n_columns,)
    active : int32 array of shape (n_visible,)
        The units of a sample that are not zero; of no size if data are dense.
    n_active : int64 array of shape (2,)
        0, and their number.
    """

    products: Real[2]
    weight_rows: Real[2]
    left: Real[2]
    right: Real[3]
    vectors: Real[2]
    uniforms: Float64[1]
    active: Int32[1]
    n_active: Int64[1]
