"""Time of distributed learning and inference against the number of workers, on one machine.

Writes scaling_distributed.csv and scaling_distributed.png. Strong scaling: the same rows for any
number of workers; weak scaling: a number of rows for each. Every worker is a process of one thread.
The first run on each cluster, which loads the compiled code, is not on the clock. "plain" is the
same learning without Dask, in one thread; the difference is the overhead of the tasks. The ceiling
is the time of the matrix products of an epoch with three sweeps a step.
"""

import logging
from contextlib import contextmanager
from functools import partial

import numpy as np
from scaling import Work, over_threads, run, sized
from timing import images, positive, with_own_blas

import fastmf as mf
from fastmf import distributed as spread
from fastmf.learning.layered.settings import LayeredSettings
from fastmf.learning.layered.step import train

OPTIONS = (
    ("--rows", dict(type=positive, default=8192, metavar="N", help="of an epoch [8192]")),
    ("--hidden", dict(type=positive, default=500, metavar="N", help="hidden units [500]")),
    ("--batch", dict(type=positive, default=2048, metavar="N", help="rows of a step [2048]")),
    ("--chunk", dict(type=positive, default=256, metavar="N", help="rows of a task [256]")),
)
SWEEPS = 3


def machine(n_hidden):
    """An RBM before learning."""
    weights = np.random.default_rng(0).normal(scale=0.01, size=(784, n_hidden)).astype(np.float32)
    zeros = (np.zeros(n, np.float32) for n in weights.shape)
    return mf.RBM(weights, *(mf.Bernoulli(field) for field in zeros))


def points(options):
    """Epochs and solves on one worker, on two, ..."""
    if options.quick:
        small = sized(options, (64, 10, 64, 16), (2048, 100, 1024, 256), None)
        options.rows, options.hidden, options.batch, options.chunk = small
    for task in ("epoch",) if options.tiny else ("epoch", "tap"):
        yield from over_threads(task, "float32", (784, options.hidden), options.rows, options)


@contextmanager
def problem(clients, point, options):
    """The task on a cluster of workers; beside the epoch the plain one."""
    import dask.array as da
    from distributed import Client, LocalCluster, wait

    if point.threads not in clients:
        kind = {"threads_per_worker": 1, "dashboard_address": ":0"}
        cluster = LocalCluster(n_workers=point.threads, **kind)
        clients[point.threads] = Client(cluster, set_as_default=False)
    X, model = images(point.n_rows).astype(np.float32), machine(options.hidden)
    settings = LayeredSettings(
        n_epochs=1, batch_size=options.batch, monitor_rows=10, n_sweeps=SWEEPS
    )
    with clients[point.threads].as_current():
        rows = da.from_array(X, chunks=(options.chunk, -1)).persist()
        wait(rows)
        if point.task == "tap":
            solvers = {"fastmf": lambda: spread.tap(model, rows, max_iter=20).mean[1].compute()}
        else:
            solvers = {
                "fastmf": lambda: spread.train(model, rows, settings, chunk_rows=options.chunk),
                "plain": lambda: train(model, X, settings, n_threads=1),
            }
        for first in solvers.values():
            first()
        # Averages over data and over solutions take two products each, a sweep four.
        products = 4 + 4 * SWEEPS if point.task == "epoch" else 0
        yield solvers, lambda: Work(operations=2.0 * products * X.size * options.hidden)


def main(argv=None):
    """Measure, write the table, draw it."""
    clients = {}
    logging.getLogger("distributed").setLevel(
        logging.ERROR
    )  # how a cluster ends is not of interest
    try:
        run("scaling_distributed", __doc__, points, partial(problem, clients), OPTIONS, argv)
    finally:
        for client in clients.values():
            client.close()
            client.cluster.close()


if __name__ == "__main__":
    with_own_blas(main)
