"""Interleaved timing, and machines to time, for the scripts of this folder."""

import argparse
import os
import platform
import statistics
import sys
import time
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import numpy as np
from threadpoolctl import ThreadpoolController

import fastmf as mf

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "scripts" / "SPEED.md"
sys.path.insert(0, str(ROOT / "tests"))  # for the table of kernel cases

# Seconds of pause before each run: threads of a pool spin for a while after their work, on cores
# that the next solver needs. Those of OpenBLAS do so for 0.05 to 0.2 seconds.
REST = 0.3

POOLS, THREADS = ThreadpoolController(), os.cpu_count() or 1


def conditions():
    """What times were measured on: processor, versions, and the kernels of BLAS.

    With those of another processor (OPENBLAS_CORETYPE), products of matrices can take 1.6 times as
    long.
    """
    kernels = {pool["architecture"] for pool in POOLS.info() if "architecture" in pool}
    blas = f", OpenBLAS {' and '.join(sorted(kernels))}" if kernels else ""
    python, numpy = platform.python_version(), np.__version__
    return f"{platform.machine()}, Python {python}, NumPy {numpy}{blas}"


def blas_threads(n_threads):
    """Context in which NumPy's BLAS uses at most `n_threads` threads."""
    return POOLS.limit(limits=n_threads, user_api="blas")


@contextmanager
def pinned(n_threads):
    """Limit NumPy's BLAS to a number of threads, and the process to a number of cores."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_setaffinity") else []
    _bind(cores[:n_threads])
    try:
        with blas_threads(n_threads):
            yield
    finally:
        _bind(cores)


def _bind(cores):
    for thread in os.listdir("/proc/self/task") if cores else ():
        with suppress(ProcessLookupError):  # it has ended
            os.sched_setaffinity(int(thread), cores)


def parser(text):
    """A command line whose help is the text of a script."""
    as_written = argparse.RawDescriptionHelpFormatter
    return argparse.ArgumentParser(description=text, formatter_class=as_written)


def timed(function, *arguments):
    """Seconds of one call."""
    start = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - start


def interleaved(solvers, repeats=5, rest=REST):
    """Seconds of each solver by round: in a round each runs once, after a pause of `rest` seconds.

    A solver is a function without arguments; if it returns a number, that is its time.
    """
    times = {name: [] for name in solvers}
    for _ in range(repeats):
        for name, function in solvers.items():
            time.sleep(rest)
            start = time.perf_counter()
            measured = function()
            elapsed = time.perf_counter() - start
            times[name].append(measured if isinstance(measured, float) else elapsed)
    return times


def ratio(slow, fast):
    """Median of the ratios of the same round."""
    return statistics.median(s / f for s, f in zip(slow, fast, strict=True))


def write(name, text, path=PAGE):
    """Put a table between its markers on a page, and change nothing else."""
    parts = path.read_text(encoding="utf-8").partition(f"<!-- {name} table: begin -->")
    _, end, after = parts[2].partition(f"<!-- {name} table: end -->")
    if not end:
        raise SystemExit(f"{path} has no markers of a {name} table.")
    path.write_text(f"{parts[0]}{parts[1]}\n{text}\n{end}{after}", encoding="utf-8")


def images(n_rows):
    """Binary images of 784 pixels: MNIST if $FASTMF_DATA has it, digits enlarged otherwise."""
    path = Path(os.environ.get("FASTMF_DATA", "."), "mnist", "train-images-idx3-ubyte.gz")
    if path.is_file():
        X = (mf.datasets.read_array(path).reshape(-1, 784) > 127.5).astype(np.float32)
    else:
        small = mf.datasets.load_digits().X.reshape(-1, 8, 8)
        # Each digit in several positions, so that no two rows are alike.
        enlarged = np.kron(small, np.ones((3, 3), np.float32)) > 0.5
        X = np.zeros((5, 5, len(small), 28, 28), np.float32)
        for i, j in np.ndindex(5, 5):
            X[i, j, :, i : i + 24, j : j + 24] = enlarged
        X = X.reshape(-1, 784)
    return np.random.default_rng(0).permutation(X)[:n_rows]


def grid(n_rows, n_columns):
    """Edges between neighbours of a grid."""
    unit = np.arange(n_rows * n_columns).reshape(n_rows, n_columns)
    across, down = (unit[:, :-1], unit[:, 1:]), (unit[:-1], unit[1:])
    return np.concatenate([np.stack([a.ravel(), b.ravel()], 1) for a, b in (across, down)])


def symmetric(values, n, edges=None):
    """Couplings of all pairs of units, or of some, as a matrix."""
    couplings = np.zeros((n, n))
    i, j = np.triu_indices(n, 1) if edges is None else edges.T
    couplings[i, j] = couplings[j, i] = values
    return couplings


@cache
def trained_machine(n_hidden):
    """An RBM trained by scikit-learn on `images`."""
    from sklearn.neural_network import BernoulliRBM

    learner = BernoulliRBM(
        n_hidden, learning_rate=0.05, batch_size=100, n_iter=10, random_state=0
    ).fit(images(10_000))
    fields = learner.intercept_visible_, learner.intercept_hidden_
    layers = (mf.Bernoulli(field.astype(float)) for field in fields)
    return mf.RBM(learner.components_.T.astype(float), *layers)
