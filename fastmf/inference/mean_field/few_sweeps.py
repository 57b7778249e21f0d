"""A few sweeps of a machine coupled to itself, in many rows at once, as learning takes them."""

import numpy as np

from fastmf._outcomes import OUT_OF_ITERATIONS, is_converged, messages_of
from fastmf._threads.workers import in_parallel, workers_for
from fastmf.inference.fixed_point import FixedPoint
from fastmf.kernels.linear.product import pack, panel_width
from fastmf.kernels.mean_field.all_rows import ROWS_PER_TASK, RowsMemory, sweep_all_rows
from fastmf.kernels.mean_field.arguments import Layer, Layers
from fastmf.priors._protocol import is_concatenated, precomputed


def few_sweeps(machine, init, *, field, precision, order, max_iter, n_threads=None, **options):
    """Take `max_iter` sweeps of a fully visible machine, whose rows have the same precisions.

    They are the sweeps of `fastmf.tap` with `schedule="sequential"`, which does not damp the first
    ones; but no row ends before the last sweep. Other options of `tap` have no effect.
    """
    (mean, var), dtype = init, machine.dtype
    n_rows, n_units = mean.shape
    state = np.zeros((4, n_rows, n_units), dtype)
    state[0], state[1] = mean, var
    couplings = pack(machine.couplings)
    powers = couplings, np.square(couplings), couplings[:0]
    copies = repeated(precomputed(machine.prior), ROWS_PER_TASK)
    layers = Layers([Layer(copies, n_units, 0, 0, *powers)])
    n_tasks = -(-n_rows // ROWS_PER_TASK)
    n_workers = workers_for(n_tasks, 10 * n_rows * couplings.size, n_threads)
    shapes = (2, ROWS_PER_TASK, panel_width(dtype)), (4, ROWS_PER_TASK)
    memory = RowsMemory(*(np.zeros((n_workers, *shape), dtype) for shape in shapes))
    tilt, queue = (field, precision[0]), np.zeros(2, np.int64)
    arguments = layers, order, max_iter, tilt, memory, queue, state
    in_parallel(sweep_all_rows, arguments, n_workers)
    status = np.full(n_rows, OUT_OF_ITERATIONS)
    return FixedPoint(
        *state, None, is_converged(status), np.full(n_rows, max_iter), np.full(n_rows, np.inf),
        messages_of(status),
    )  # fmt: skip


def repeated(prior, n):
    """A prior of n copies of each unit, next to each other."""
    if is_concatenated(prior):
        return prior._make((tuple(repeated(part, n) for part in prior.parts),))
    return prior._make(np.repeat(f, n, axis=0) if np.ndim(f) else f for f in prior)
