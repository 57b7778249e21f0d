"""Steps of learning a layered machine, one after another, without a return to Python.

A step is a list of phases (see `fastmf.learning.layered.phases`), each a queue of tasks that all
threads take from:

    rows        moments of the hidden units given the rows of a batch; of deep machines solutions
    states      mean-field solutions, or Gibbs samples, of the model
    couplings   averages of units; gradient of the couplings of some lower units, their update
    units       update of the fields; where more is learned of units (`units.py`) a call takes one
                step, and the caller moves them

The kernels of dense rows are in `rows.py` and `gradients.py`, those of sparse rows in `sparse.py`,
and what is special about deep machines, groups of states and preconditioners in files of their own.

The equations are those of `fastmf.learning.layered.gradients` and `ascent.py`, and the general path
(`fastmf.learning.layered.general_step`) is the NumPy twin of these kernels. A phase ends when the
threads that have begun it have left it, so nobody waits for a thread that has not; a thread that
comes later finds the queues empty.
"""

import numpy as np

from fastmf._jit.argument_types import Int64, argument_types
from fastmf._jit.intrinsics import fetch_and_increment
from fastmf._jit.kernel import address_of, call, kernel
from fastmf._threads.waiting import leave_processor, load, pause
from fastmf.kernels.mean_field.arguments import Sweep
from fastmf.kernels.mean_field.tap import tap_address
from fastmf.kernels.training.arguments import (
    ADDRESS,
    ENTERED,
    LEFT,
    MODEL,
    SOLVER,
    Batches,
    Parameters,
    Scratch,
    Settings,
    Statistics,
)

# Pauses after which a waiting thread lets others run on its processor.
PAUSES = 2000


@kernel(mode="inner")
def _leave(queue):
    """Leave a phase, and wait until all threads that have begun it have left."""
    fetch_and_increment(queue[LEFT:])
    n_pauses = np.int64(0)
    # In this order: all that had entered by the second look had left by the first.
    left = load(queue, LEFT)
    while left != load(queue, ENTERED):
        pause()
        n_pauses += 1
        if n_pauses > PAUSES:
            leave_processor()
        left = load(queue, LEFT)


@kernel(views=True)
def train(batches, parameters, solvers, settings, statistics, scratch, queues, workers):
    """Take steps of learning, one for each row of `batches.rows`."""
    w = fetch_and_increment(workers)
    if w >= scratch.products.shape[0]:
        return
    products, weight_rows, left, right, vectors, uniforms, active, n_active = scratch
    of_all = products[w], weight_rows[w], left[w], right[w], vectors[w]
    memory = Scratch(*of_all, uniforms[w], active[w], n_active[w])
    sweep = solvers[MODEL].sweep
    for step in range(batches.rows.shape[0]):
        if parameters.diverged[0] == 1:
            return
        for phase in range(settings.phases.shape[0]):
            address, which = settings.phases[phase, ADDRESS], settings.phases[phase, SOLVER]
            queue = queues[step, phase]
            fetch_and_increment(queue[ENTERED:])
            if which >= 0:
                solver = solvers[which]
                record = statistics.model if which == MODEL else statistics.posterior
                given = solver.sweep, solver.settings, solver.tilt, solver.workers
                call(address, (*given, queue, record))
            else:
                options = sweep, settings, statistics, memory
                call(address, (step, batches, parameters, *options, queue))
            _leave(queue)


def phase_table(dtype, phases):
    """The table of phases that `train` takes, compiled."""
    given = int, Batches, Parameters, Sweep, Settings, Statistics, Scratch, Int64[1]
    types = argument_types(dtype, *given)
    table = [
        [tap_address(dtype), phase] if isinstance(phase, int)
        else [address_of(phase, *types), -1]
        for phase in phases
    ]  # fmt: skip
    return np.array(table, np.int64)
