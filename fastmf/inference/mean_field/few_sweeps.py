"""A few sweeps of a machine coupled to itself, in many rows at once, as learning takes them."""

import numpy as np

from fastmf._outcomes import OUT_OF_ITERATIONS
from fastmf._threads.workers import in_parallel, workers_for
from fastmf.kernels.linear.product import pack, panel_width
from fastmf.kernels.mean_field.all_rows import ROWS_PER_TASK, RowsMemory, sweep_all_rows
from fastmf.kernels.mean_field.arguments import Layer, Layers, MeanFieldRecord
from fastmf.priors._protocol import is_concatenated, precomputed


def few_sweeps(machine, state, tilt, options):
    """Take `max_iter` sweeps of a fully visible machine, whose rows have the same precisions.

    They are the sweeps of `fastmf.tap` with `schedule="sequential"`, which does not damp the first
    ones; but no row ends before the last sweep. No unit is clamped, and options but the order and
    the number of sweeps have no effect. The state, (4, n_rows, n_units), is changed in place.
    Returns the record of the rows, and None in the place of their log-partitions.
    """
    dtype, (_, n_rows, n_units), n_sweeps = state.dtype, state.shape, options.max_iter
    couplings = pack(machine.couplings)
    powers = couplings, np.square(couplings), couplings[:0]
    copies = repeated(precomputed(machine.prior), ROWS_PER_TASK)
    layers = Layers([Layer(copies, n_units, 0, 0, *powers)])
    n_tasks = -(-n_rows // ROWS_PER_TASK)
    work = 10 * n_rows * couplings.size
    n_workers = workers_for(n_tasks, work, options.n_threads, n_sweeps)
    shapes = (2, ROWS_PER_TASK, panel_width(dtype)), (4, ROWS_PER_TASK)
    memory = RowsMemory(*(np.zeros((n_workers, *shape), dtype) for shape in shapes))
    queue, tilts = np.zeros(2, np.int64), (tilt.field, tilt.precision[0])
    arguments = layers, options.order, n_sweeps, tilts, memory, queue, state
    in_parallel(sweep_all_rows, arguments, n_workers)
    record = MeanFieldRecord(
        state=state,
        status=np.full(n_rows, OUT_OF_ITERATIONS),
        n_iter=np.full(n_rows, n_sweeps),
        residual=np.full(n_rows, np.inf, dtype),
        history=np.zeros((0, 0), dtype),
    )
    return record, None


def repeated(prior, n):
    """A prior of n copies of each unit, next to each other."""
    if is_concatenated(prior):
        return prior._make((tuple(repeated(part, n) for part in prior.parts),))
    return prior._make(np.repeat(f, n, axis=0) if np.ndim(f) else f for f in prior)
