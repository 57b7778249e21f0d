"""Steps of learning a layered machine, one after another, without a return to Python.

A step has phases, each a queue of tasks that all threads take from:

    rows        fields and moments of the hidden units given the rows of a batch
    posterior   of deep machines, solutions for the hidden layers given these
    states      mean-field solutions, or Gibbs samples, of the model
    averages    offsets and gradients by the fields, and packed hidden units
    slabs       gradient of the couplings of some lower units, their update, packed copies
    fields      update of the fields

They are in `fastmf.kernels.training.rows` and, from the averages on, `training_ascent`. Those of
sparse data are in `training_sparse`, and of deep machines in `training_deep`. Where more than the
fields is learned of units (`training_units`) a call takes one step, and the caller moves the units.

The equations are those of `fastmf.learning.layered.gradients` and `fastmf.kernels.training.ascent`.
A phase ends when the threads that have begun it have left it, so nobody waits for a thread that has
not; a thread that comes later finds the queues empty.
"""

import numba
import numpy as np

from fastmf._jit.intrinsics import fetch_and_increment
from fastmf._jit.kernel import address_of, call, kernel
from fastmf._threads.waiting import leave_processor, load, pause
from fastmf.kernels.mean_field.tap import tap_address
from fastmf.kernels.training.arguments import (
    AVERAGES,
    COLLECTED,
    CUMULANTS,
    ENTERED,
    FIELDS,
    LEFT,
    N_PHASES,
    POSTERIOR,
    QUEUE_SIZE,
    ROWS,
    SLABS,
    STATES,
    Memory,
    no_arguments,
    no_memory,
)
from fastmf.kernels.training.gradients import average, move_couplings, move_fields
from fastmf.kernels.training.rows import find_cumulants, read_rows, sample_rows

# Pauses after which a waiting thread lets others run on its processor.
PATIENCE = 2000


@kernel(inner=True)
def _leave(queue):
    """Leave a phase, and wait until all threads that have begun it have left."""
    fetch_and_increment(queue[LEFT:])
    n_pauses = np.int64(0)
    # In this order: all that had entered by the second look had left by the first.
    left = load(queue, LEFT)
    while left != load(queue, ENTERED):
        pause()
        n_pauses += 1
        if n_pauses > PATIENCE:
            leave_processor()
        left = load(queue, LEFT)


@kernel(views=True)
def train(batches, parameters, solvers, settings, statistics, scratch, queues, workers):
    """Take steps of learning, one for each row of `batches.rows`.

    Parameters
    ----------
    batches : Batches
    parameters : Parameters
        Changed in place.
    solvers : tuple of two Solver
        For solutions of the model, and for those of the hidden layers given data.
    settings : Settings
    statistics : Statistics
        Those of the last step remain. Persistent solutions or samples are in `statistics.model`.
    scratch : Scratch
    queues : int64 array of shape (n_steps, N_PHASES, QUEUE_SIZE)
        Zero; shared by all threads that call this.
    workers : int64 array of shape (1,)
        Number of threads that have called this; one beyond the scratch memory returns at once.
    """
    w = fetch_and_increment(workers)
    if w >= scratch.products.shape[0]:
        return
    products, slab, left, right, vectors, uniforms, active, n_active = scratch
    of_all = products[w], slab[w], left[w], right[w], vectors[w]
    memory = Memory(*of_all, uniforms[w], active[w], n_active[w])
    (solver, posterior), sweep = solvers, solvers[0].sweep
    for step in range(batches.rows.shape[0]):
        if parameters.diverged[0] == 1:
            return
        for phase in range(N_PHASES):
            address, queue = settings.phases[phase], queues[step, phase]
            if address == 0:
                continue
            fetch_and_increment(queue[ENTERED:])
            if phase == STATES and settings.solved:
                options = sweep, solver.settings, solver.tilt, solver.workers
                call(address, (*options, queue, statistics.model))
            elif phase == POSTERIOR:
                given = posterior.sweep, posterior.settings, posterior.tilt, posterior.workers
                call(address, (*given, queue, statistics.posterior))
            else:
                options = sweep, settings, statistics, memory
                call(address, (step, batches, parameters, *options, queue))
            _leave(queue)


def phases(order):
    """The phases of steps, whose data are dense; 0 is the order of Gibbs sampling."""
    found = {
        ROWS: read_rows,
        AVERAGES: average,
        SLABS: move_couplings,
        FIELDS: move_fields,
    }
    if order == 3:
        found[CUMULANTS] = find_cumulants
    if order == 0:
        found[STATES] = sample_rows
    return found


def _types_of_phases(arguments):
    batches, parameters, (solver, _), settings, statistics, scratch, *_ = arguments
    queue, memory = np.zeros(QUEUE_SIZE, np.int64), no_memory(scratch)
    given = 0, batches, parameters, solver.sweep, settings, statistics, memory, queue
    return tuple(map(numba.typeof, given))


def phase_addresses(dtype, functions):
    """Addresses of the compiled phases; 0 for those without which steps do.

    Parameters
    ----------
    dtype : NumPy dtype
    functions : dict
        The phases, by number; without `STATES` these are mean-field solutions. `POSTERIOR` has
        no function of its own.

    Returns
    -------
    int64 array of shape (N_PHASES,)
    """
    addresses, types = np.zeros(N_PHASES, np.int64), _types_of_phases(no_arguments(dtype))
    for phase, function in functions.items():
        addresses[phase] = address_of(function, *types)
    if STATES not in functions:
        addresses[STATES] = tap_address(dtype)
    if COLLECTED in functions:
        addresses[POSTERIOR] = tap_address(dtype)
    return addresses
