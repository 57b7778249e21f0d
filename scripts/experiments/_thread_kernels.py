"""The kernels of `threads.py`: six tasks of different kinds, by workers and by parallel loops."""

from typing import NamedTuple

import numba
import numpy as np

from fastmf._jit.intrinsics import fetch_and_increment
from fastmf._jit.kernel import REORDER, kernel
from fastmf._threads.interrupts import next_task
from fastmf._threads.waiting import leave_processor, load, pause
from fastmf._threads.workers import in_parallel

N_REGIONS = 24
# Pauses after which a waiting thread lets others run on its processor.
PAUSES = 2000

inner = kernel(mode="inner", name=None, fastmath=REORDER)


class Kind(NamedTuple):
    """A kind of kernel: a task, its arguments, and how many tasks and regions a call has."""

    name: str
    task: object
    arguments: tuple
    n_tasks: int
    n_regions: int = 1


# --- tasks ---------------------------------------------------------------------------------------


@inner
def product(a, i):
    """Rows of a product of matrices."""
    rows, matrix, out = a
    for r in range(16 * i, 16 * i + 16):
        for j in range(out.shape[1]):
            out[r, j] = 0.0
        for k in range(matrix.shape[0]):
            for j in range(out.shape[1]):
                out[r, j] += rows[r, k] * matrix[k, j]


@inner
def exponentials(a, i):
    """Functions of the entries of a row."""
    rows, _, out = a
    for j in range(rows.shape[1]):
        out[i, j] = 1 / (1 + np.exp(-rows[i, j]))


@inner
def fixed_point(a, i):
    """Mean-field equations of a row, iterated until nothing changes."""
    fields, couplings, mean = a
    n, change = couplings.shape[0], np.inf
    for j in range(n):
        mean[i, j] = 0.0
    while change > 1e-10:
        change = 0.0
        for j in range(n):
            total = fields[i, j]
            for k in range(n):
                total += couplings[j, k] * mean[i, k]
            new = np.tanh(total)
            change = max(change, abs(new - mean[i, j]))
            mean[i, j] = new


@inner
def region(a, i):
    """A row that depends on what all tasks of the last region have written."""
    x, weights, y = a
    n = x.shape[1] // N_REGIONS
    step, task = i // n, i % n
    for j in range(y.shape[1]):
        total = x[0, task]
        for k in range(weights.shape[0] if step > 0 else 0):
            total += weights[k, j] * y[(step - 1) * n + (task + k) % n, j]
        y[i, j] = total


@inner
def chains(a, i):
    """Twenty sweeps of Gibbs sampling."""
    fields, couplings, state = a
    word = np.uint64(i + 1)
    for j in range(state.shape[1]):
        state[i, j] = 0.0
    for _ in range(20):
        for j in range(state.shape[1]):
            total = fields[i, j]
            for k in range(state.shape[1]):
                total += couplings[j, k] * state[i, k]
            word ^= word << np.uint64(13)
            word ^= word >> np.uint64(7)
            word ^= word << np.uint64(17)
            uniform = float(word >> np.uint64(11)) * 2.0**-53
            state[i, j] = 1.0 if uniform * (1 + np.exp(-total)) < 1 else 0.0


@inner
def neighbours(a, i):
    """Functions of sums over neighbours, far apart in memory."""
    values, places, out = a
    for r in range(2000 * i, 2000 * i + 2000):
        total = 0.0
        for k in range(places.shape[1]):
            total += values[0, places[r, k]]
        out[r, 0] = np.tanh(total)


def kinds():
    """The six kernels; this compiles nothing."""
    rng = np.random.default_rng(0)

    def normal(*shape):
        return rng.normal(size=shape)

    def kind(name, task, first, second, shape, n_tasks, n_regions=1):
        return Kind(name, task, (first, second, np.zeros(shape)), n_tasks, n_regions)

    n, m, J = 160, 100_000, normal(64, 64) / 16
    # Rows near a transition take a hundred times as many sweeps as others.
    fields = normal(n, 64) * np.where(np.arange(n) % 20 == 0, 1e-3, 3.0)[:, None]
    ferromagnet, places = np.full((64, 64), 0.97 / 64), rng.integers(0, m, (m, 6))
    starts, weights = normal(1, 32 * N_REGIONS), normal(24, 200) / 24
    return [
        kind("product of matrices", product, normal(640, 256), normal(256, 96), (640, 96), 40),
        kind("functions of entries", exponentials, normal(400, 1000), J, (400, 1000), 400),
        kind("rows that converge at different times", fixed_point, fields, ferromagnet, (n, 64), n),
        kind(f"{N_REGIONS} regions, each after the last", region, starts, weights,
             (32 * N_REGIONS, 200), 32, N_REGIONS),
        kind("Gibbs chains", chains, normal(n, 64), J + J.T, (n, 64), n),
        kind("sums over neighbours", neighbours, normal(1, m), places, (m, 1), 50),
    ]  # fmt: skip


# --- both ways ------------------------------------------------------------------------------------


def with_workers(kind):
    """A function of a number of threads: tasks are taken from queues, one for each region."""
    task, n_tasks, n_regions = kind.task, kind.n_tasks, kind.n_regions

    @kernel(views=True, name=None)
    def one_region(a, queue):
        i = next_task(queue)
        while i < n_tasks:
            task(a, i)
            i = next_task(queue)

    @kernel(views=True, name=None)
    def regions(a, queue):
        for r in range(n_regions):
            i = next_task(queue[r:])
            while i < n_tasks:
                task(a, r * n_tasks + i)
                fetch_and_increment(queue[n_regions + r :])
                i = next_task(queue[r:])
            n_pauses = np.int64(0)
            while load(queue, n_regions + r) < n_tasks:
                pause()
                n_pauses += 1
                if n_pauses > PAUSES:
                    leave_processor()

    compiled = one_region if n_regions == 1 else regions

    def run(n_threads, arguments=kind.arguments):
        in_parallel(compiled, (arguments, np.zeros(2 * n_regions, np.int64)), n_threads)

    return run


def with_prange(kind):
    """A function of a number of threads: a parallel loop for each region."""
    task, n_tasks, n_regions = kind.task, kind.n_tasks, kind.n_regions

    @numba.njit(parallel=True, nogil=True, error_model="numpy")
    def loops(a):
        for r in range(n_regions):
            for i in numba.prange(n_tasks):
                task(a, r * n_tasks + i)

    def run(n_threads, arguments=kind.arguments):
        numba.set_num_threads(n_threads)
        loops(arguments)

    return run
