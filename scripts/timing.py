"""Interleaved timing, and data and machines for benchmarks, shared by the scripts."""

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
import scipy.linalg  # noqa: F401  (SciPy's BLAS is another library, which `POOLS` limits, too)
from threadpoolctl import ThreadpoolController

import fastmf as mf

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "scripts" / "SPEED.md"
sys.path.insert(0, str(ROOT / "tests"))  # for the table of kernel cases

# Pause before each run in seconds: threads of a pool spin for some time after their work, on cores
# needed by the next solver; OpenBLAS threads for 0.05 to 0.2 seconds.
REST = 0.3

POOLS, THREADS = ThreadpoolController(), os.cpu_count() or 1


def conditions():
    """Return processor, versions, and BLAS kernels, as text.

    With BLAS kernels for another processor (OPENBLAS_CORETYPE), matrix products can take 1.6 times
    as long.
    """
    kernels = {pool["architecture"] for pool in POOLS.info() if "architecture" in pool}
    blas = f", OpenBLAS {' and '.join(sorted(kernels))}" if kernels else ""
    python, numpy = platform.python_version(), np.__version__
    return f"{platform.machine()}, Python {python}, NumPy {numpy}{blas}"


def blas_threads(n_threads):
    """Return a context in which NumPy's BLAS uses at most `n_threads` threads."""
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
        with suppress(ProcessLookupError):  # the thread has ended
            os.sched_setaffinity(int(thread), cores)


def parser(text):
    """Return a command-line parser whose help is the docstring of a script."""
    as_written = argparse.RawDescriptionHelpFormatter
    return argparse.ArgumentParser(description=text, formatter_class=as_written)


def timed(function, *arguments):
    """Return the seconds of one call, or the float that it returns."""
    start = time.perf_counter()
    result = function(*arguments)
    return result if isinstance(result, float) else time.perf_counter() - start


def interleaved(solvers, repeats=5, rest=REST):
    """Time several solvers in rounds; each runs once in a round, after a pause of `rest` seconds.

    A call shorter than the pause, which empties caches, is repeated, and the last call is timed. A
    solver is a function without arguments; if it returns a float, this is taken as its time.
    """
    times = {name: [] for name in solvers}
    for _ in range(repeats):
        for name, function in solvers.items():
            time.sleep(rest)
            seconds = timed(function)
            times[name].append(seconds if seconds >= rest else timed(function))
    return times


def ratio(slow, fast):
    """Return the median of the ratios in the same round."""
    return statistics.median(s / f for s, f in zip(slow, fast, strict=True))


def write(name, text, path=PAGE):
    """Replace the table between its markers on a page."""
    parts = path.read_text(encoding="utf-8").partition(f"<!-- {name} table: begin -->")
    _, end, after = parts[2].partition(f"<!-- {name} table: end -->")
    if not end:
        raise SystemExit(f"{path} has no markers of a {name} table.")
    path.write_text(f"{parts[0]}{parts[1]}\n{text}\n{end}{after}", encoding="utf-8")


def images(n_rows):
    """Return binary images of 784 pixels: MNIST in $FASTMF_DATA, or enlarged digits."""
    path = Path(os.environ.get("FASTMF_DATA", "."), "mnist", "train-images-idx3-ubyte.gz")
    if path.is_file():
        X = (mf.datasets.read_array(path).reshape(-1, 784) > 127.5).astype(np.float32)
    else:
        small = mf.datasets.load_digits().X.reshape(-1, 8, 8)
        # Shift each digit to several positions, so that rows are distinct.
        enlarged = np.kron(small, np.ones((3, 3), np.float32)) > 0.5
        X = np.zeros((5, 5, len(small), 28, 28), np.float32)
        for i, j in np.ndindex(5, 5):
            X[i, j, :, i : i + 24, j : j + 24] = enlarged
        X = X.reshape(-1, 784)
    return np.random.default_rng(0).permutation(X)[:n_rows]


def grid(n_rows, n_columns):
    """Return the edges between neighbours on a grid."""
    unit = np.arange(n_rows * n_columns).reshape(n_rows, n_columns)
    across, down = (unit[:, :-1], unit[:, 1:]), (unit[:-1], unit[1:])
    return np.concatenate([np.stack([a.ravel(), b.ravel()], 1) for a, b in (across, down)])


def symmetric(values, n, edges=None):
    """Return couplings of all pairs of units, or of some edges, as a symmetric matrix."""
    couplings = np.zeros((n, n))
    i, j = np.triu_indices(n, 1) if edges is None else edges.T
    couplings[i, j] = couplings[j, i] = values
    return couplings


@cache
def trained_machine(n_hidden):
    """Return an RBM trained by scikit-learn on `images`."""
    from sklearn.neural_network import BernoulliRBM

    learner = BernoulliRBM(
        n_hidden, learning_rate=0.05, batch_size=100, n_iter=10, random_state=0
    ).fit(images(10_000))
    fields = learner.intercept_visible_, learner.intercept_hidden_
    layers = (mf.Bernoulli(field.astype(float)) for field in fields)
    return mf.RBM(learner.components_.T.astype(float), *layers)
